//! [`Runners`]: the machines that users lend, and which of them answers for a user's workspaces.
//!
//! [`register`]: machines come and go. [`manage`]: one is chosen, cut or revoked.
//!
//! A machine is known by its name from its first registration until it is revoked, across restarts of the service. While a user has
//! one, the user's workspaces are there: when the machine is away, requests fail with `disconnected`, and nothing is done here instead.

mod manage;
mod register;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use policy::UserId;
use sandbox::wire::Registered;
use sandbox::{Link, Machine, Outgoing, RemoteSandbox, Sandbox, Transfers};
use serde::{Deserialize, Serialize};
use storage::Store;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::backends::Backends;
use super::sync::State;

/// Machines of one user.
pub const PER_USER_MAX: usize = 8;
/// Connections that have brought no token yet.
const STRANGERS_MAX: usize = 16;
/// Connections of one user that have brought a token and have not registered yet.
const REGISTERING_MAX: usize = 4;

/// The machines of all users.
pub struct Runners {
    /// What stands for a machine that is away.
    away: Arc<dyn Sandbox>,
    users: Mutex<HashMap<UserId, OfUser>>,
    registering: Mutex<HashMap<Option<UserId>, usize>>,
    /// Large files on their way over HTTP.
    pub transfers: Arc<Transfers>,
}

/// What is kept of a user's machines for the next start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    /// The machine that answers.
    active: String,
    /// Each machine, and what the token is called with which it registered last, if it needed one.
    names: BTreeMap<String, Option<String>>,
    /// Tokens with which none registers any more, the oldest first.
    refused: Vec<String>,
}

#[derive(Default)]
struct OfUser {
    /// Held while what is known of the user changes: what is kept and what is in force are one. No user waits for another.
    changing: Arc<tokio::sync::Mutex<()>>,
    kept: Kept,
    connected: BTreeMap<String, Connected>,
    /// Machines that have connected since the service was started: commands go on from one connection to the next.
    machines: BTreeMap<String, Arc<Machine>>,
}

struct Connected {
    link: Arc<Link>,
    /// The machine through this connection alone: an operation that has begun there does not go on at another machine, nor after
    /// another operation came between.
    sandbox: Arc<dyn Sandbox>,
    since: SystemTime,
    isolation: String,
    cut: CancellationToken,
    /// How far its synchronisation is, where there is one.
    sync: Option<watch::Receiver<State>>,
}

/// The place of a connection that has not registered yet.
pub struct Registering {
    runners: Arc<Runners>,
    user: Option<UserId>,
}

impl Drop for Registering {
    fn drop(&mut self) {
        let mut registering = self.runners.registering.lock();
        if let Some(count) = registering.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                registering.remove(&self.user);
            }
        }
    }
}

/// A machine that has registered.
pub struct Registration {
    /// The connection.
    pub link: Arc<Link>,
    /// Frames to be sent on it.
    pub outgoing: mpsc::Receiver<Outgoing>,
    /// Set when the connection is to end.
    pub cut: CancellationToken,
    /// The answer to the runner.
    pub answer: Registered,
    user: UserId,
    name: String,
}

impl Registration {
    /// The name of the machine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Why a machine does not register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unregistered {
    /// The registration makes no sense: the sentence for the runner.
    Invalid(String),
    /// An administrator has revoked the token for runners.
    Revoked,
    /// The user has [`PER_USER_MAX`] machines, or too many users have some.
    Full,
    /// It could not be written down.
    Failed,
}

/// A machine, as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentMachine {
    /// Its name.
    pub name: String,
    /// Whether it answers for the user's workspaces.
    pub is_active: bool,
    /// The connection, where there is one.
    pub connection: Option<Connection>,
}

/// A connection, as the user of the machine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Since when.
    pub since: SystemTime,
    /// The directory on the machine.
    pub workspace: String,
    /// What holds commands there, as the runner says.
    pub isolation: String,
    /// Whether it has more than founding runners.
    pub is_exact: bool,
    /// How far its synchronisation is, where there is one.
    pub sync: Option<State>,
}

impl Runners {
    /// The machines that `store` has kept; none is connected yet.
    ///
    /// # Errors
    /// Those of [`Store::runner_lists`].
    pub fn open(store: &Store, backends: &Backends) -> storage::Result<Self> {
        let runners = Self {
            away: Arc::new(RemoteSandbox::new()),
            users: Mutex::default(),
            registering: Mutex::default(),
            transfers: Arc::default(),
        };
        for (user, text) in store.runner_lists()? {
            match serde_json::from_str::<Kept>(&text) {
                Ok(kept) => {
                    if !kept.names.is_empty() {
                        backends.lend(user.clone(), Arc::clone(&runners.away));
                    }
                    runners.users.lock().insert(user, OfUser { kept, ..OfUser::default() });
                }
                // Written by another version.
                Err(error) => tracing::error!(
                    %user, %error,
                    "the list of a user's runners cannot be read: the user's workspaces are this service's"
                ),
            }
        }
        Ok(runners)
    }

    /// A place for a connection that has not registered yet: of a `user` who has brought a token, or of a stranger. `None` when all
    /// are taken: strangers take none of a user's.
    #[must_use]
    pub fn enter(self: &Arc<Self>, user: Option<UserId>) -> Option<Registering> {
        let most = if user.is_some() { REGISTERING_MAX } else { STRANGERS_MAX };
        let mut registering = self.registering.lock();
        let count = registering.entry(user.clone()).or_default();
        if *count == most {
            return None;
        }
        *count += 1;
        Some(Registering { runners: Arc::clone(self), user })
    }

    /// How many machines are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.users.lock().values().map(|of| of.connected.len()).sum()
    }

    /// The machines of `user`, sorted by name.
    #[must_use]
    pub fn of(&self, user: &UserId) -> Vec<LentMachine> {
        let users = self.users.lock();
        let Some(of) = users.get(user) else { return Vec::new() };
        let machine = |name: &String| LentMachine {
            name: name.clone(),
            is_active: of.kept.active == *name,
            connection: of.connected.get(name).map(|there| Connection {
                since: there.since,
                workspace: there.link.workspace().to_string(),
                isolation: there.isolation.clone(),
                is_exact: there.link.is_exact(),
                sync: there.sync.as_ref().map(|state| state.borrow().clone()),
            }),
        };
        of.kept.names.keys().map(machine).collect()
    }

    /// Notes what is kept of a user's machines by now; what answers then.
    fn put(&self, user: &UserId, kept: Kept) -> Arc<dyn Sandbox> {
        let mut users = self.users.lock();
        let of = users.entry(user.clone()).or_default();
        of.kept = kept;
        let active = of.connected.get(&of.kept.active);
        active.map_or_else(|| Arc::clone(&self.away), |there| Arc::clone(&there.sandbox))
    }

    fn changing(&self, user: &UserId) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.users.lock().get(user).map(|of| Arc::clone(&of.changing))
    }

    fn kept(&self, user: &UserId) -> Kept {
        self.users.lock().get(user).map(|of| of.kept.clone()).unwrap_or_default()
    }
}

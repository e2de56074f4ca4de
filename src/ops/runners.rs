//! [`Runners`]: the machines that users lend, and which of them answers for a user's workspaces.
//!
//! A machine is known by its name from its first registration until it is revoked, across restarts of the service. While a user has
//! one, the user's workspaces are there: when the machine is away, requests fail with `disconnected`, and nothing is done here instead.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use policy::UserId;
use sandbox::wire::{Feature, Register, Registered};
use sandbox::{Link, Machine, Outgoing, RemoteSandbox, Sandbox, Transfers};
use serde::{Deserialize, Serialize};
use storage::Store;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Service;
use super::admission::{Job, Weight};
use super::backends::Backends;
use super::error::{Error, Result};
use super::sync::State;

/// Machines of one user.
pub const PER_USER_MAX: usize = 8;
/// Connections that have brought no token yet.
const STRANGERS_MAX: usize = 16;
/// Connections of one user that have brought a token and have not registered yet.
const REGISTERING_MAX: usize = 4;
/// The longest name of a machine, in bytes.
const NAME_BYTES: usize = 64;
/// The name of a machine that tells none.
const UNNAMED: &str = "default";
/// Tokens of one user that are refused: the oldest counts no longer when there are more.
const REFUSED_MAX: usize = 64;

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

/// The features of a runner that this service has as well.
fn agreed(features: &[Feature]) -> Vec<Feature> {
    let has = |feature| features.contains(&feature);
    let mut agreed = Vec::new();
    if has(Feature::Exact) {
        agreed.push(Feature::Exact);
        agreed.extend([Feature::Live, Feature::Transfers].into_iter().filter(|feature| has(*feature)));
    }
    agreed
}

impl Service {
    /// Takes a machine of `user` that registers with the token called `token`, if it needs one. One of the same name gives way to it, with all
    /// requests that wait there.
    ///
    /// # Errors
    /// [`Unregistered`].
    pub async fn register_runner(
        self: &Arc<Self>,
        user: &UserId,
        register: &Register,
        token: Option<&str>,
    ) -> Result<Registration, Unregistered> {
        let name = match register.name.as_str() {
            "" => UNNAMED,
            name => name,
        };
        if name.len() > NAME_BYTES || !name.chars().all(|one| one.is_alphanumeric() || "-_.".contains(one)) {
            let message = format!("`name` has at most {NAME_BYTES} bytes of letters, digits and `-_.`");
            return Err(Unregistered::Invalid(message));
        }
        let features = agreed(&register.features);
        let transfers = Some(Arc::clone(&self.runners.transfers));
        let (link, outgoing) = Link::with_transfers(user.clone(), register, &features, transfers)
            .map_err(Unregistered::Invalid)?;
        let isolation = register.isolation.chars().filter(|one| !one.is_control()).take(NAME_BYTES).collect();
        let cut = CancellationToken::new();
        let runners = &self.runners;
        let changing = Arc::clone(&runners.users.lock().entry(user.clone()).or_default().changing);
        let _changing = changing.lock().await;
        let before = runners.kept(user);
        if before.refused.iter().any(|refused| Some(refused.as_str()) == token) {
            return Err(Unregistered::Revoked);
        }
        let mut kept = before.clone();
        kept.names.insert(name.to_owned(), token.map(str::to_owned));
        if kept.names.len() > PER_USER_MAX {
            return Err(Unregistered::Full);
        }
        if !kept.names.contains_key(&kept.active) {
            name.clone_into(&mut kept.active);
        }
        if kept != before {
            self.keep_runners(user, &kept).await.map_err(|error| match error {
                Error::Storage(storage::Error::TooManyEntries(_)) => Unregistered::Full,
                error => {
                    tracing::warn!(%user, %error, "a runner could not register: the list of the user's runners was not written");
                    Unregistered::Failed
                }
            })?;
        }
        let is_active = kept.active == name;
        let machine = {
            let mut users = runners.users.lock();
            let of = users.entry(user.clone()).or_default();
            Arc::clone(of.machines.entry(name.to_owned()).or_default())
        };
        machine.connected(Arc::clone(&link));
        let sandbox: Arc<dyn Sandbox> = Arc::new(RemoteSandbox::of(machine, Arc::clone(&link)));
        let (sandbox, sync) = if self.syncing.is_on() {
            let (sandbox, state) = self.begin_sync(user, sandbox);
            (sandbox, Some(state))
        } else {
            (sandbox, None)
        };
        let former = {
            let mut users = runners.users.lock();
            let of = users.entry(user.clone()).or_default();
            of.kept = kept;
            let connected = Connected {
                link: Arc::clone(&link),
                sandbox: Arc::clone(&sandbox),
                since: SystemTime::now(),
                isolation,
                cut: cut.clone(),
                sync,
            };
            of.connected.insert(name.to_owned(), connected)
        };
        if let Some(former) = former {
            former.link.end();
            former.cut.cancel();
        }
        if is_active {
            self.backends.lend(user.clone(), sandbox);
        }
        let answer = Registered::new(features);
        Ok(Registration { link, outgoing, cut, answer, user: user.clone(), name: name.to_owned() })
    }

    /// Notes that the connection of a machine has ended. One that took its place by now stays.
    pub fn runner_left(&self, registration: &Registration) {
        registration.link.end();
        let mut users = self.runners.users.lock();
        let Some(of) = users.get_mut(&registration.user) else { return };
        if of
            .connected
            .get(&registration.name)
            .is_some_and(|there| Arc::ptr_eq(&there.link, &registration.link))
        {
            of.connected.remove(&registration.name);
        }
    }

    /// Has the machine `name` answer for the workspaces of `user`.
    ///
    /// # Errors
    /// [`Error::NoRunner`]; those of writing it down.
    pub async fn choose_runner(self: &Arc<Self>, user: &UserId, name: &str) -> Result<()> {
        // A task of its own: a caller who leaves must not leave another list on the disk than in force.
        let (service, user, name) = (Arc::clone(self), user.clone(), name.to_owned());
        let changing = self.runs.spawn(async move { service.choose(&user, &name).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn choose(&self, user: &UserId, name: &str) -> Result<()> {
        let runners = &self.runners;
        let changing = runners.changing(user).ok_or_else(|| Error::NoRunner(name.to_owned()))?;
        let _changing = changing.lock().await;
        let mut kept = runners.kept(user);
        if !kept.names.contains_key(name) {
            return Err(Error::NoRunner(name.to_owned()));
        }
        if kept.active == name {
            return Ok(());
        }
        name.clone_into(&mut kept.active);
        self.keep_runners(user, &kept).await?;
        let sandbox = runners.put(user, kept);
        self.backends.lend(user.clone(), sandbox);
        Ok(())
    }

    /// Ends the connection of a machine, which may come back.
    ///
    /// # Errors
    /// [`Error::NoRunner`].
    pub fn cut_runner(&self, user: &UserId, name: &str) -> Result<()> {
        let users = self.runners.users.lock();
        let of = users.get(user).filter(|of| of.kept.names.contains_key(name));
        let of = of.ok_or_else(|| Error::NoRunner(name.to_owned()))?;
        if let Some(there) = of.connected.get(name) {
            there.link.end();
            there.cut.cancel();
        }
        Ok(())
    }

    /// Forgets a machine and ends its connection; no machine of the user registers with its token any more. When it was the last,
    /// the user's workspaces are this service's own again.
    ///
    /// # Errors
    /// [`Error::NoRunner`]; those of writing it down.
    pub async fn revoke_runner(self: &Arc<Self>, user: &UserId, name: &str) -> Result<()> {
        // As when one is chosen.
        let (service, user, name) = (Arc::clone(self), user.clone(), name.to_owned());
        let changing = self.runs.spawn(async move { service.revoke(&user, &name).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn revoke(&self, user: &UserId, name: &str) -> Result<()> {
        let runners = &self.runners;
        let changing = runners.changing(user).ok_or_else(|| Error::NoRunner(name.to_owned()))?;
        let _changing = changing.lock().await;
        let mut kept = runners.kept(user);
        let Some(token) = kept.names.remove(name) else { return Err(Error::NoRunner(name.to_owned())) };
        kept.refused.retain(|refused| Some(refused) != token.as_ref());
        kept.refused.extend(token);
        let surplus = kept.refused.len().saturating_sub(REFUSED_MAX);
        kept.refused.drain(..surplus);
        if kept.active == name {
            kept.active = kept.names.keys().next().cloned().unwrap_or_default();
        }
        self.keep_runners(user, &kept).await?;
        let is_last = kept.names.is_empty();
        let (machine, revoked) = {
            let mut users = runners.users.lock();
            let of = users.get_mut(user);
            of.map(|of| (of.machines.remove(name), of.connected.remove(name))).unwrap_or_default()
        };
        if let Some(machine) = machine {
            machine.revoked();
        }
        if let Some(there) = revoked {
            there.link.end();
            there.cut.cancel();
        }
        let sandbox = runners.put(user, kept);
        if is_last {
            self.backends.take_back(user);
        } else {
            self.backends.lend(user.clone(), sandbox);
        }
        Ok(())
    }

    /// Writes down what is known of a user's machines.
    async fn keep_runners(&self, user: &UserId, kept: &Kept) -> Result<()> {
        let text = serde_json::to_string(kept).map_err(|_| Error::Panicked)?;
        let (store, user) = (self.store.clone(), user.clone());
        let job = Job::about(Some(&user), Weight::Light).going_on();
        self.work(job, move || Ok(store.keep_runner_list(&user, Some(&text))?)).await
    }
}

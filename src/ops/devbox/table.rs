//! [`Devboxes`]: what is kept of each devbox, which requests are in it, and whose turn it is to change it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use policy::{AgentId, TreeId};
use serde::{Deserialize, Serialize};
use storage::{DEVBOXES_MAX, Store};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::name::DevboxName;
use crate::ops::error::{Error, Result};

/// What lies between the agent and the name in the key of a record; no agent has it in its id.
const BETWEEN: char = '/';

/// The state in which a devbox stays until a request changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Commands and files are there.
    #[default]
    Running,
    /// Nothing runs; files stay.
    Paused,
    /// As paused; platforms tell the two apart.
    Stopped,
}

impl Phase {
    /// The word of the dialect.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Paused => "Paused",
            Self::Stopped => "Stopped",
        }
    }
}

/// What is kept of a devbox for the next start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) phase: Phase,
    /// When it was created, in milliseconds since 1970.
    pub(super) created_ms: u64,
    /// The image that its creator named, which is told and means nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    /// Variables of its commands.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
}

/// A change under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Its runs are being ended, for this phase.
    Leaving(Phase),
    /// It is being removed, since this time.
    Deleting(SystemTime),
}

/// A devbox, as requests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devbox {
    /// Its name.
    pub name: DevboxName,
    /// The word of the dialect for what it is to be.
    pub wanted: &'static str,
    /// The word of the dialect for what it is.
    pub phase: &'static str,
    /// The image that its creator named.
    pub image: Option<String>,
    /// When it was created.
    pub created: SystemTime,
    /// Since when it is being removed.
    pub deleted: Option<SystemTime>,
}

/// The devboxes of the dialect's agent: at most [`DEVBOXES_MAX`], and those that a request asks for at the moment.
pub struct Devboxes {
    /// The agent whose workspaces they are.
    pub agent: AgentId,
    /// The absolute path by which the platform knows the workspace of each.
    pub work_directory: String,
    table: Mutex<HashMap<DevboxName, Entry>>,
}

#[derive(Default)]
struct Entry {
    /// Held while the devbox changes: what is kept and what is in force are one.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// `None` while it is not there.
    kept: Option<Kept>,
    change: Option<Change>,
    /// Requests that are in it.
    inside: usize,
    /// Set when they are to leave.
    leave: CancellationToken,
}

/// The turn of a request to change a devbox.
pub(super) struct Turn {
    devboxes: Arc<Devboxes>,
    name: DevboxName,
    _held: OwnedMutexGuard<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = self.devboxes.table.lock();
        // The table's own and that of the guard: no other request waits for its turn.
        let is_last = |entry: &Entry| entry.kept.is_none() && Arc::strong_count(&entry.turn) == 2;
        if table.get(&self.name).is_some_and(is_last) {
            table.remove(&self.name);
        }
    }
}

/// A request that is in a running devbox until this is dropped.
pub struct Inside {
    devboxes: Arc<Devboxes>,
    name: DevboxName,
    /// The variables of its commands.
    pub env: BTreeMap<String, String>,
    /// Set when the request is to leave.
    pub leave: CancellationToken,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(entry) = self.devboxes.table.lock().get_mut(&self.name) {
            entry.inside -= 1;
        }
    }
}

impl Devboxes {
    /// The devboxes that `store` has kept.
    ///
    /// # Errors
    /// Those of [`Store::devboxes`].
    pub fn open(store: &Store, agent: AgentId, work_directory: String) -> storage::Result<Self> {
        let mut table = HashMap::new();
        for (key, text) in store.devboxes()? {
            // Those of another agent stay for the day on which that one is configured again.
            let Some((of, name)) = key.split_once(BETWEEN) else { continue };
            if of != agent.as_str() {
                continue;
            }
            match (DevboxName::parse(name), serde_json::from_str::<Kept>(&text)) {
                (Ok(name), Ok(kept)) => {
                    table.insert(name, Entry { kept: Some(kept), ..Entry::default() });
                }
                // Written by another version.
                _ => tracing::error!(
                    devbox = name,
                    "the record of a devbox cannot be read: the devbox is not there until it is created again"
                ),
            }
        }
        Ok(Self { agent, work_directory, table: Mutex::new(table) })
    }

    /// The workspace of a devbox.
    #[must_use]
    pub fn workspace(&self, name: &DevboxName) -> TreeId {
        name.workspace(&self.agent)
    }

    /// The key of a devbox's record.
    pub(super) fn key(&self, name: &DevboxName) -> String {
        format!("{}{BETWEEN}{name}", self.agent)
    }

    /// A devbox as it is now.
    ///
    /// # Errors
    /// [`Error::NoDevbox`].
    pub fn get(&self, name: &DevboxName) -> Result<Devbox> {
        let table = self.table.lock();
        let entry = table.get(name);
        let kept = entry.and_then(|entry| entry.kept.as_ref());
        let (Some(entry), Some(kept)) = (entry, kept) else { return Err(missing(name)) };
        Ok(Devbox {
            name: name.clone(),
            wanted: kept.phase.word(),
            phase: entry.phase(kept),
            image: kept.image.clone(),
            created: UNIX_EPOCH + std::time::Duration::from_millis(kept.created_ms),
            deleted: match entry.change {
                Some(Change::Deleting(since)) => Some(since),
                _ => None,
            },
        })
    }

    /// Lets a request into a devbox, which has to be running.
    ///
    /// # Errors
    /// [`Error::NoDevbox`], [`Error::DevboxAway`].
    pub fn enter(self: &Arc<Self>, name: &DevboxName) -> Result<Inside> {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(name) else { return Err(missing(name)) };
        let Some(kept) = &entry.kept else { return Err(missing(name)) };
        let phase = entry.phase(kept);
        if phase != Phase::Running.word() {
            return Err(Error::DevboxAway { name: name.to_string(), phase });
        }
        entry.inside += 1;
        let (env, leave) = (kept.env.clone(), entry.leave.clone());
        Ok(Inside { devboxes: Arc::clone(self), name: name.clone(), env, leave })
    }

    /// Waits for the turn to change a devbox, or to make it.
    pub(super) async fn turn(self: &Arc<Self>, name: &DevboxName) -> Turn {
        let turn = Arc::clone(&self.table.lock().entry(name.clone()).or_default().turn);
        Turn { devboxes: Arc::clone(self), name: name.clone(), _held: turn.lock_owned().await }
    }
}

impl Turn {
    /// What is kept of the devbox; nothing when it is not there.
    pub(super) fn kept(&self) -> Option<Kept> {
        self.devboxes.table.lock().get(&self.name).and_then(|entry| entry.kept.clone())
    }

    /// Checks that one more devbox may be.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn check_room(&self) -> Result<()> {
        let there = self.devboxes.table.lock().values().filter(|entry| entry.kept.is_some()).count();
        if there < DEVBOXES_MAX {
            return Ok(());
        }
        let what = format!("there are {DEVBOXES_MAX} devboxes");
        Err(Error::Full { what, next: "delete those that are not needed", retry_after_seconds: 60 })
    }

    /// Notes what is kept of the devbox by now, and that a change begins or has ended.
    pub(super) fn put(&self, kept: Option<Kept>, change: Option<Change>) {
        self.change(|entry| {
            entry.kept = kept;
            entry.change = change;
        });
    }

    /// Has the requests that are in the devbox leave, and those that come later wait for another phase.
    pub(super) fn turn_out(&self, change: Change) {
        self.change(|entry| {
            entry.change = Some(change);
            std::mem::take(&mut entry.leave).cancel();
        });
    }

    /// How many requests are in the devbox.
    pub(super) fn inside(&self) -> usize {
        self.devboxes.table.lock().get(&self.name).map_or(0, |entry| entry.inside)
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        change(self.devboxes.table.lock().entry(self.name.clone()).or_default());
    }
}

impl Entry {
    /// The word of the dialect for what it is.
    fn phase(&self, kept: &Kept) -> &'static str {
        match self.change {
            None => kept.phase.word(),
            Some(Change::Leaving(Phase::Stopped)) => "Stopping",
            Some(Change::Leaving(Phase::Paused | Phase::Running)) => "Pausing",
            Some(Change::Deleting(_)) => "Shutting",
        }
    }
}

/// The failure of a request for a devbox that is not there.
pub(super) fn missing(name: &DevboxName) -> Error {
    Error::NoDevbox(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devboxes() -> Arc<Devboxes> {
        let (agent, work_directory) = (AgentId::parse("devbox").unwrap(), "/workspace".to_owned());
        Arc::new(Devboxes { agent, work_directory, table: Mutex::default() })
    }

    #[tokio::test]
    async fn a_devbox_that_is_not_there_takes_no_memory_once_its_requests_have_gone() {
        let devboxes = devboxes();
        let name = DevboxName::parse("one").unwrap();
        let turn = devboxes.turn(&name).await;
        let waiting = tokio::spawn({
            let (devboxes, name) = (Arc::clone(&devboxes), name.clone());
            async move { drop(devboxes.turn(&name).await) }
        });
        tokio::task::yield_now().await;
        drop(turn);
        waiting.await.unwrap();
        assert!(devboxes.table.lock().is_empty());
        assert!(matches!(devboxes.get(&name), Err(Error::NoDevbox(_))));
        assert!(matches!(devboxes.enter(&name), Err(Error::NoDevbox(_))));
        assert!(devboxes.table.lock().is_empty());
    }

    #[tokio::test]
    async fn only_a_running_devbox_is_entered_and_who_is_in_it_is_told_to_leave() {
        let devboxes = devboxes();
        let name = DevboxName::parse("one").unwrap();
        let turn = devboxes.turn(&name).await;
        turn.put(Some(Kept::default()), None);
        let inside = devboxes.enter(&name).unwrap();
        assert_eq!((turn.inside(), inside.leave.is_cancelled()), (1, false));
        turn.turn_out(Change::Leaving(Phase::Paused));
        assert!(inside.leave.is_cancelled());
        let refused = devboxes.enter(&name).err().map(|error| error.to_string());
        assert_eq!(refused.unwrap(), "the devbox `one` is Pausing: resume it before commands and files");
        drop(inside);
        assert_eq!(turn.inside(), 0);
        turn.put(Some(Kept::default()), None);
        assert!(!devboxes.enter(&name).unwrap().leave.is_cancelled());
    }
}

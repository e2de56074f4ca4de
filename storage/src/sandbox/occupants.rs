//! [`Occupants`]: who is in a sandbox.
//!
//! Every run is an occupant of the sandbox of its user and agent, whatever tree it is in, because all of them share
//! the home directory; so is what a run did aside until somebody decides about it. A sandbox is entered holding its
//! workspace as it is, and removed or replaced holding it alone: so nobody is in it then, and nobody comes.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::SandboxId;
use crate::error::{Error, Result};
use crate::store::Store;

/// Who is where. No more than what runs and snapshots under way ask for.
#[derive(Default)]
pub(crate) struct Occupants {
    sandboxes: Mutex<HashMap<SandboxId, Occupancy>>,
}

#[derive(Default)]
struct Occupancy {
    runs: usize,
    /// Those who want to know whether anybody was there.
    watchers: usize,
    entered: u64,
}

/// Somebody in a sandbox, until this is dropped.
pub(crate) struct Occupant {
    store: Store,
    id: SandboxId,
}

/// Somebody who wants to know whether anybody is or was in a sandbox.
pub(crate) struct Watcher {
    store: Store,
    id: SandboxId,
    entered: u64,
    was_occupied: bool,
}

impl Store {
    /// Enters a sandbox. The caller holds none of its trees.
    pub(crate) fn occupy(&self, id: SandboxId) -> Occupant {
        {
            let _held = self.inner.locks.read(&id.workspace());
            let mut sandboxes = self.inner.occupants.sandboxes.lock();
            let occupancy = sandboxes.entry(id.clone()).or_default();
            occupancy.runs += 1;
            occupancy.entered += 1;
        }
        Occupant { store: self.clone(), id }
    }

    /// How many are in a sandbox: runs, and runs whose changes nobody has decided about.
    #[must_use]
    pub fn occupants(&self, id: &SandboxId) -> usize {
        self.inner.occupants.sandboxes.lock().get(id).map_or(0, |occupancy| occupancy.runs)
    }

    /// Refuses to do something to a sandbox that somebody is in. The caller holds its workspace alone.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub(crate) fn check_left(&self, id: &SandboxId) -> Result<()> {
        match self.occupants(id) {
            0 => Ok(()),
            runs => Err(Error::Conflict(format!(
                "{runs} runs of `{}` with `{}` are under way or wait for a decision: wait for them, or end them",
                id.user, id.agent
            ))),
        }
    }

    /// Watches who is in a sandbox from now on.
    pub(crate) fn watch(&self, id: SandboxId) -> Watcher {
        let mut sandboxes = self.inner.occupants.sandboxes.lock();
        let occupancy = sandboxes.entry(id.clone()).or_default();
        occupancy.watchers += 1;
        let (entered, was_occupied) = (occupancy.entered, occupancy.runs > 0);
        drop(sandboxes);
        Watcher { store: self.clone(), id, entered, was_occupied }
    }
}

impl Watcher {
    /// Whether somebody has been in the sandbox since the watch began, or is.
    pub(crate) fn has_seen_somebody(&self) -> bool {
        let sandboxes = self.store.inner.occupants.sandboxes.lock();
        let entered = sandboxes.get(&self.id).map_or(self.entered, |occupancy| occupancy.entered);
        self.was_occupied || entered != self.entered
    }
}

impl Occupants {
    fn leave(&self, id: &SandboxId, change: impl FnOnce(&mut Occupancy)) {
        let mut sandboxes = self.sandboxes.lock();
        if let Some(occupancy) = sandboxes.get_mut(id) {
            change(occupancy);
            if occupancy.runs == 0 && occupancy.watchers == 0 {
                sandboxes.remove(id);
            }
        }
    }
}

impl Drop for Occupant {
    fn drop(&mut self) {
        // A run is a use until its end.
        self.store.note_use_of_there(&self.id);
        self.store.inner.occupants.leave(&self.id, |occupancy| occupancy.runs -= 1);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.store.inner.occupants.leave(&self.id, |occupancy| occupancy.watchers -= 1);
    }
}

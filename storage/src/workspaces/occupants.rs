//! [`Occupant`]: the runs that are in a workspace.
//!
//! Every run, in any tree, is an occupant of the sandbox of its user and agent, because all of them share the home
//! directory; so are the changes that a run made aside, until a caller decides about them. An occupant enters while it
//! holds the workspace as it is; a sandbox is removed or replaced by a request that holds the workspace alone. So no
//! occupant is in it then, and none comes.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Workspaces;
use crate::core::store::Store;
use crate::error::{Error, Result};
use policy::WorkspaceId;

/// A run, or undecided changes of one, in a sandbox, until this is dropped.
pub(crate) struct Occupant {
    store: Store,
    id: WorkspaceId,
    is_leaving: AtomicBool,
}

/// A watch on a sandbox: whether it has, or had, an occupant since the watch began.
pub(crate) struct Watcher {
    store: Store,
    id: WorkspaceId,
    entered: u64,
    was_occupied: bool,
}

impl Workspaces {
    /// Enters a sandbox. The caller holds none of its trees.
    pub(crate) fn occupy(&self, id: WorkspaceId) -> Occupant {
        {
            let _held = self.store.locks().read(&id.workspace());
            let mut sandboxes = self.store.occupancy().sandboxes.lock();
            let occupancy = sandboxes.entry(id.clone()).or_default();
            occupancy.runs += 1;
            occupancy.entered += 1;
        }
        Occupant { store: self.store.clone(), id, is_leaving: AtomicBool::new(false) }
    }

    /// How many runs of a sandbox are over and are being cleaned up, which no request can end any sooner.
    #[must_use]
    pub fn leaving(&self, id: &WorkspaceId) -> usize {
        self.store.occupancy().sandboxes.lock().get(id).map_or(0, |occupancy| occupancy.leaving)
    }

    /// How many are in a sandbox: runs, and runs with undecided changes.
    #[must_use]
    pub fn occupants(&self, id: &WorkspaceId) -> usize {
        self.store.occupancy().sandboxes.lock().get(id).map_or(0, |occupancy| occupancy.runs)
    }

    /// Refuses to change a sandbox that has an occupant. The caller holds its workspace alone.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub(crate) fn check_left(&self, id: &WorkspaceId) -> Result<()> {
        match self.occupants(id) {
            0 => Ok(()),
            runs => Err(Error::Conflict(format!(
                "{runs} runs of `{}` with `{}` are under way or wait for a decision: wait for them or end them, and \
                 commit or discard what waits",
                id.user, id.agent
            ))),
        }
    }

    /// Watches from now on whether a sandbox gets occupants.
    pub(crate) fn watch(&self, id: WorkspaceId) -> Watcher {
        let mut sandboxes = self.store.occupancy().sandboxes.lock();
        let occupancy = sandboxes.entry(id.clone()).or_default();
        occupancy.watchers += 1;
        let (entered, was_occupied) = (occupancy.entered, occupancy.runs > 0);
        drop(sandboxes);
        Watcher { store: self.store.clone(), id, entered, was_occupied }
    }
}

impl Occupant {
    /// Says that the run is over and will be gone soon. Once is enough.
    pub(crate) fn begin_to_leave(&self) {
        if !self.is_leaving.swap(true, Ordering::Relaxed) {
            self.store.occupancy().leave(&self.id, |occupancy| occupancy.leaving += 1);
        }
    }
}

impl Watcher {
    /// Whether the sandbox has an occupant, or had one since the watch began.
    pub(crate) fn has_seen_somebody(&self) -> bool {
        let sandboxes = self.store.occupancy().sandboxes.lock();
        let entered = sandboxes.get(&self.id).map_or(self.entered, |occupancy| occupancy.entered);
        self.was_occupied || entered != self.entered
    }
}

impl Drop for Occupant {
    fn drop(&mut self) {
        // A run is a use until its end.
        self.store.workspaces().note_use_of_there(&self.id);
        let was_leaving = usize::from(self.is_leaving.load(Ordering::Relaxed));
        self.store.occupancy().leave(&self.id, |occupancy| {
            occupancy.runs -= 1;
            occupancy.leaving -= was_leaving;
        });
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.store.occupancy().leave(&self.id, |occupancy| occupancy.watchers -= 1);
    }
}

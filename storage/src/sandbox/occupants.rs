//! [`Occupants`]: who is in a sandbox.
//!
//! Every run is an occupant of the sandbox of its user and agent, whatever tree it is in, because all of them share
//! the home directory; so is what a run did aside until somebody decides about it. A sandbox is entered holding its
//! workspace as it is, and removed or replaced holding it alone: so nobody is in it then, and nobody comes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use policy::{SkillId, TreeId};

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
    /// Those of the runs that are over, and are being cleaned up.
    leaving: usize,
    /// Those who want to know whether anybody was there.
    watchers: usize,
    entered: u64,
    /// Skills that their user published while runs were here, the last one last.
    promotions: Vec<Promoted>,
}

/// A version of a skill that its user published over another.
struct Promoted {
    skill: SkillId,
    /// What a base record says of the version that it took the place of; see [`Store::base_text`].
    over: String,
    by: String,
}

/// Publications of one sandbox that are remembered for its runs.
const PROMOTIONS_MAX: usize = 64;

/// Somebody in a sandbox, until this is dropped.
pub(crate) struct Occupant {
    store: Store,
    id: SandboxId,
    is_leaving: AtomicBool,
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
        Occupant { store: self.clone(), id, is_leaving: AtomicBool::new(false) }
    }

    /// How many runs of a sandbox are over and are being cleaned up, which nobody can end any sooner.
    #[must_use]
    pub fn leaving(&self, id: &SandboxId) -> usize {
        self.inner.occupants.sandboxes.lock().get(id).map_or(0, |occupancy| occupancy.leaving)
    }

    /// How many are in a sandbox: runs, and runs whose changes nobody has decided about.
    #[must_use]
    pub fn occupants(&self, id: &SandboxId) -> usize {
        self.inner.occupants.sandboxes.lock().get(id).map_or(0, |occupancy| occupancy.runs)
    }

    /// Notes that the user of `id` published it as `by`, over `over`, for runs that began before and work on copies.
    pub(crate) fn note_promotion(&self, id: &TreeId, over: &str, by: &str) {
        let TreeId::Skill(.., skill) = id else { return };
        let mut sandboxes = self.inner.occupants.sandboxes.lock();
        let Some(occupancy) = sandboxes.get_mut(&SandboxId::of(id)) else { return };
        if occupancy.promotions.len() >= PROMOTIONS_MAX {
            occupancy.promotions.remove(0);
        }
        let (over, by) = (over.to_owned(), by.to_owned());
        occupancy.promotions.push(Promoted { skill: skill.clone(), over, by });
    }

    /// What an overlay of `id` begins with that a run makes which began over `base`: what the user published since, if
    /// anything, holds all that the user had changed by then.
    pub(crate) fn base_since(&self, id: &TreeId, base: &str) -> String {
        let mut base = base.to_owned();
        let TreeId::Skill(.., skill) = id else { return base };
        let sandboxes = self.inner.occupants.sandboxes.lock();
        let promotions = sandboxes.get(&SandboxId::of(id)).map(|occupancy| occupancy.promotions.as_slice());
        for promoted in promotions.unwrap_or_default() {
            if promoted.skill == *skill && promoted.over == base {
                base.clone_from(&promoted.by);
            }
        }
        base
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

impl Occupant {
    /// Says that the run is over and will be gone soon. Once is enough.
    pub(crate) fn begin_to_leave(&self) {
        if !self.is_leaving.swap(true, Ordering::Relaxed) {
            self.store.inner.occupants.leave(&self.id, |occupancy| occupancy.leaving += 1);
        }
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
    /// Changes what is known of a sandbox, and forgets it when nobody is there.
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
        let was_leaving = usize::from(self.is_leaving.load(Ordering::Relaxed));
        self.store.inner.occupants.leave(&self.id, |occupancy| {
            occupancy.runs -= 1;
            occupancy.leaving -= was_leaving;
        });
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.store.inner.occupants.leave(&self.id, |occupancy| occupancy.watchers -= 1);
    }
}

//! [`Occupants`]: how many runs are in which workspace.

use std::collections::HashMap;

use parking_lot::Mutex;
use policy::{SkillId, WorkspaceId};

/// Who is where. No more than what runs and snapshots under way ask for.
#[derive(Default)]
pub(crate) struct Occupants {
    pub(crate) sandboxes: Mutex<HashMap<WorkspaceId, Occupancy>>,
}

#[derive(Default)]
pub(crate) struct Occupancy {
    pub(crate) runs: usize,
    /// Those of the runs that are over, and are being cleaned up.
    pub(crate) leaving: usize,
    /// Those who want to know whether a run was there.
    pub(crate) watchers: usize,
    pub(crate) entered: u64,
    /// Skills that their user published while runs were here, the last one last.
    pub(crate) promotions: Vec<Promoted>,
}

/// A version of a skill that its user published over another.
pub(crate) struct Promoted {
    pub(crate) skill: SkillId,
    /// The text of a base record about the version that it replaced; see [`Store::base_text`](crate::Store).
    pub(crate) over: String,
    pub(crate) by: String,
}

/// Publications of one sandbox that are remembered for its runs.
pub(crate) const PROMOTIONS_MAX: usize = 64;

impl Occupants {
    /// Changes what is known of a workspace, and forgets it when neither a run nor a watcher is there.
    pub(crate) fn leave(&self, id: &WorkspaceId, change: impl FnOnce(&mut Occupancy)) {
        let mut sandboxes = self.sandboxes.lock();
        if let Some(occupancy) = sandboxes.get_mut(id) {
            change(occupancy);
            if occupancy.runs == 0 && occupancy.watchers == 0 {
                sandboxes.remove(id);
            }
        }
    }
}

//! [`Occupants`]: how many runs are in which workspace.

use std::collections::HashMap;

use parking_lot::Mutex;
use policy::{SkillId, TreeId, WorkspaceId};

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
    pub(super) promotions: Vec<Promoted>,
}

/// A version of a skill that its user published over another.
pub(super) struct Promoted {
    pub(crate) skill: SkillId,
    /// The text of a base record about the version that it replaced; see [`Store::base_text`](crate::Store).
    pub(crate) over: String,
    pub(crate) by: String,
}

/// Publications of one sandbox that are remembered for its runs.
const PROMOTIONS_MAX: usize = 64;

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

    /// Notes that the user of `id` published it as `by`, over `over`, for runs that began before and work on copies.
    pub(crate) fn note_promotion(&self, id: &TreeId, over: &str, by: &str) {
        let TreeId::Skill(.., skill) = id else { return };
        let mut sandboxes = self.sandboxes.lock();
        let Some(occupancy) = sandboxes.get_mut(&WorkspaceId::of(id)) else { return };
        if occupancy.promotions.len() >= PROMOTIONS_MAX {
            occupancy.promotions.remove(0);
        }
        let (over, by) = (over.to_owned(), by.to_owned());
        occupancy.promotions.push(Promoted { skill: skill.clone(), over, by });
    }

    /// The base of an overlay of `id` that is made by a run which began over `base`: the version that the user
    /// published since, if anything, holds all that the user had changed by then.
    pub(crate) fn base_since(&self, id: &TreeId, base: &str) -> String {
        let mut base = base.to_owned();
        let TreeId::Skill(.., skill) = id else { return base };
        let sandboxes = self.sandboxes.lock();
        let promotions = sandboxes.get(&WorkspaceId::of(id)).map(|occupancy| occupancy.promotions.as_slice());
        for promoted in promotions.unwrap_or_default() {
            if promoted.skill == *skill && promoted.over == base {
                base.clone_from(&promoted.by);
            }
        }
        base
    }
}

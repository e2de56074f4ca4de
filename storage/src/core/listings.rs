//! [`Listings`]: which skills a user sees, as far as it is known without reading the directories again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::{AgentId, SkillId, UserId};

use crate::stat::Stat;

/// Lists that are kept. Beyond it all are forgotten, and read again.
const KEPT_MAX: usize = 256;
/// How old the last change of a directory must be when it is read, in nanoseconds: kernels before Linux 6.13 give the same
/// change time to changes within some milliseconds, of which the last may come after the reading.
const SETTLED_NS: i128 = 20_000_000;

/// The lists of one store.
#[derive(Default)]
pub(crate) struct Listings {
    kept: Mutex<HashMap<(UserId, AgentId), Listing>>,
}

#[derive(Clone)]
struct Listing {
    marks: Marks,
    skills: Arc<[SkillId]>,
}

/// The inode number and the change time of each of two directories: the overlays of a user, and the baselines. `None` where
/// there is none. An entry that is made, removed or renamed changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks([Option<(u64, i128)>; 2]);

impl Marks {
    pub(crate) fn new(overlays: Option<&Stat>, baselines: Option<&Stat>) -> Self {
        Self([overlays, baselines].map(|stat| stat.map(|stat| (stat.inode, stat.changed_ns))))
    }

    /// Tells whether the directories have been as they are for long enough at `now_ns` that each later change will show.
    fn are_settled(&self, now_ns: i128) -> bool {
        self.0.iter().flatten().all(|(_, changed_ns)| changed_ns.saturating_add(SETTLED_NS) < now_ns)
    }
}

impl Listings {
    /// The skills of a user with an agent whose directories are as `marks` say.
    pub(crate) fn known(&self, user: &UserId, agent: &AgentId, marks: Marks) -> Option<Arc<[SkillId]>> {
        let kept = self.kept.lock();
        let listing = kept.get(&(user.clone(), agent.clone()))?;
        (listing.marks == marks).then(|| Arc::clone(&listing.skills))
    }

    /// Notes `skills`, which were read after the directories were as `marks` say at `now_ns`, in nanoseconds since 1970.
    pub(crate) fn note(
        &self,
        (user, agent): (&UserId, &AgentId),
        marks: Marks,
        now_ns: i128,
        skills: &[SkillId],
    ) {
        if !marks.are_settled(now_ns) {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert((user.clone(), agent.clone()), Listing { marks, skills: skills.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_a_directory_that_changed_a_moment_ago_is_not_kept() {
        let ids = [UserId::parse("u").unwrap()];
        let (user, agent) = (&ids[0], &AgentId::parse("a").unwrap());
        let skills = [SkillId::parse("s").unwrap()];
        let listings = Listings::default();
        let marks = Marks([Some((1, 1_000)), None]);
        listings.note((user, agent), marks, 1_000 + SETTLED_NS, &skills);
        assert!(listings.known(user, agent, marks).is_none());
        listings.note((user, agent), marks, 1_001 + SETTLED_NS, &skills);
        assert_eq!(listings.known(user, agent, marks).as_deref(), Some(&skills[..]));
        assert!(listings.known(user, agent, Marks([Some((1, 1_000)), Some((2, 1))])).is_none());
    }
}

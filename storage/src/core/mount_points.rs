//! [`Points`]: the directories that workspaces hold for runs, and those that wait for a next run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use policy::{SkillId, TreeId};

use crate::layers::stage::Draft;
use crate::stat::Stat;

/// Sets of mount points that wait for a next run, of all workspaces. Each takes as many directories as its runs see skills,
/// and one more.
const IDLE_MAX: usize = 16;
/// Those of one workspace.
const IDLE_EACH_MAX: usize = 4;

/// The mount points that workspaces hold for runs, and those that no run needs at the moment.
#[derive(Default)]
pub(crate) struct Points {
    /// By workspace. No more than what runs under way ask for.
    pub(crate) held: Mutex<HashMap<TreeId, HeldPoints>>,
    /// The one used longest ago first.
    idle: Mutex<VecDeque<IdlePoints>>,
    /// The number of the set that was made last.
    last: AtomicU64,
}

/// The mount points that one workspace holds for runs.
#[derive(Default)]
pub(crate) struct HeldPoints {
    /// The directory that the others lie in.
    pub(crate) above: Point,
    /// Those that runs hold one by one.
    pub(crate) skills: HashMap<SkillId, Point>,
    /// Those that runs hold all at once, and how many runs do. All of them were made for runs.
    pub(crate) whole: Vec<(Arc<PointSet>, usize)>,
    /// All of them, when all runs that hold them see the same skills, and all were made for runs.
    pub(crate) set: Option<Arc<PointSet>>,
}

impl HeldPoints {
    /// Notes one run more that holds all of `set`.
    pub(crate) fn hold_whole(&mut self, set: &Arc<PointSet>) {
        match self.whole.iter_mut().find(|(held, _)| Arc::ptr_eq(held, set)) {
            Some((_, runs)) => *runs += 1,
            None => self.whole.push((Arc::clone(set), 1)),
        }
    }

    /// Notes one run less that holds all of `set`. Returns the skills whose directories no run needs any more.
    pub(crate) fn leave_whole<'a>(&mut self, set: &'a Arc<PointSet>) -> Vec<&'a SkillId> {
        let Some(index) = self.whole.iter().position(|(held, _)| Arc::ptr_eq(held, set)) else {
            return Vec::new();
        };
        if let Some((_, runs)) = self.whole.get_mut(index)
            && *runs > 1
        {
            *runs -= 1;
            return Vec::new();
        }
        self.whole.swap_remove(index);
        let mut free = Vec::with_capacity(set.skills.len());
        for skill in &set.skills {
            if let Some(point) = self.skills.get_mut(skill) {
                point.was_made = true;
            } else if !self.is_held_whole(skill) {
                free.push(skill);
            }
        }
        free
    }

    /// Notes one run less of those that hold the directory of `skill` by itself. Tells whether no run needs it any more and
    /// it was made for runs.
    pub(crate) fn leave(&mut self, skill: &SkillId) -> bool {
        let Some((true, was_made)) = self.skills.get_mut(skill).map(Point::leave) else { return false };
        self.skills.remove(skill);
        was_made && !self.is_held_whole(skill)
    }

    fn is_held_whole(&self, skill: &SkillId) -> bool {
        self.whole.iter().any(|(set, _)| set.skills.contains(skill))
    }
}

/// A directory that runs need.
#[derive(Default)]
pub(crate) struct Point {
    runs: usize,
    was_made: bool,
}

impl Point {
    /// Notes one run more; `was_made` says whether it was made for this one.
    pub(crate) fn hold(&mut self, was_made: bool) {
        self.runs += 1;
        self.was_made |= was_made;
    }

    /// Notes one run less. Tells whether it was the last, and whether the directory was made for runs.
    pub(crate) fn leave(&mut self) -> (bool, bool) {
        self.runs = self.runs.saturating_sub(1);
        (self.runs == 0, self.was_made)
    }
}

/// The mount points of the skills that a run saw, outside the workspace, where no run and no request finds them.
///
/// A directory that is renamed keeps what other mount namespaces have mounted in it; one that is removed loses that
/// (mount_namespaces(7)). So a first process that has stayed finds its mounts again when the directory is back.
pub(crate) struct IdlePoints {
    pub(crate) workspace: TreeId,
    pub(crate) set: Arc<PointSet>,
    /// The directory that the mount points lie in. It is removed when this is dropped.
    pub(crate) draft: Draft,
}

/// The mount points of runs that see the same skills, as they were when they were made or came back.
#[derive(Clone)]
pub(crate) struct PointSet {
    /// Counted from 1. Another set of the same skills in the same workspace has another one.
    pub(crate) number: u64,
    pub(crate) skills: Vec<SkillId>,
    /// One for each skill.
    pub(crate) marks: Vec<Mark>,
    /// Of the directory that they lie in.
    pub(crate) above: Mark,
}

/// The inode number and the change time of a directory. A directory that got, lost or renamed an entry has another change
/// time, and so has one that was renamed or got another mode. No command can set it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64, i128);

impl From<&Stat> for Mark {
    fn from(stat: &Stat) -> Self {
        Self(stat.inode, stat.changed_ns)
    }
}

impl Points {
    /// Has the mount points that runs of `workspace` hold removed after the last of them: none of them waits.
    pub(crate) fn doubt(&self, workspace: &TreeId) {
        if let Some(held) = self.held.lock().get_mut(workspace) {
            held.set = None;
        }
    }

    /// The number of a new set.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the mount points that wait for a run of `workspace` which sees exactly `skills`.
    pub(crate) fn take(&self, workspace: &TreeId, skills: &[SkillId]) -> Option<IdlePoints> {
        let mut idle = self.idle.lock();
        let index = idle.iter().position(|points| points.is_for(workspace, skills))?;
        idle.remove(index)
    }

    /// Lets mount points wait for the next run. Returns those that no longer wait, to be dropped without locks.
    #[must_use]
    pub(crate) fn put(&self, points: IdlePoints) -> Vec<IdlePoints> {
        let mut idle = self.idle.lock();
        let mut gone = Vec::new();
        let own = |other: &IdlePoints| other.workspace == points.workspace;
        if idle.iter().filter(|other| own(other)).count() >= IDLE_EACH_MAX
            && let Some(oldest) = idle.iter().position(own)
        {
            gone.extend(idle.remove(oldest));
        }
        if idle.len() >= IDLE_MAX {
            gone.extend(idle.pop_front());
        }
        idle.push_back(points);
        gone
    }

    /// Takes all mount points that wait.
    pub(crate) fn clear(&self) -> Vec<IdlePoints> {
        self.idle.lock().drain(..).collect()
    }

    /// Takes all mount points that wait for runs of `workspace`, which is removed.
    pub(crate) fn forget(&self, workspace: &TreeId) -> Vec<IdlePoints> {
        let mut idle = self.idle.lock();
        let (gone, stay) = idle.drain(..).partition(|points| points.workspace == *workspace);
        *idle = stay;
        gone.into()
    }
}

impl IdlePoints {
    fn is_for(&self, workspace: &TreeId, skills: &[SkillId]) -> bool {
        self.workspace == *workspace && self.set.skills == skills
    }
}

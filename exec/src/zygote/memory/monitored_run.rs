//! One run that is watched: whether it is in its group by now, whether it has more memory than it may, and how many
//! processors it wants.

use std::collections::HashSet;
use std::io;

use super::super::cgroup::Group;
use super::processes::{Family, Proc, Wanting};
use super::writing::Writing;
use crate::wire::Whole;

/// How often a round looks for processes that were forked meanwhile.
const PASSES: usize = 16;
/// How many processes are moved of a run that leaves a processor to others, of which none is in the group yet. The rest of it is
/// looked at, as where there are no groups. While one is moved, the kernel lets no process of the machine begin or end
/// (`cgroup_threadgroup_rwsem`). Those that wait for that go on when they have a processor, and the next move waits for all of them:
/// among hundreds of busy processes on few processors up to a second.
const MOVED_ASIDE: usize = 2;
/// After how many rounds a run whose memory the kernel bounds is looked at more seldom, and how seldom: rounds without a new process
/// where processes have to be moved to the group.
const QUIET_ROUNDS: u32 = 3;
const SELDOM: u32 = 10;

/// A run that is watched.
#[derive(Debug)]
pub(super) struct MonitoredRun {
    pub(super) run: u64,
    pub(super) family: Family,
    pub(super) identity: Option<u32>,
    /// The limits, where they are to be watched: not where the kernel keeps them from the first instruction on.
    pub(super) whole: Option<Whole>,
    /// A number for its user.
    pub(super) user: Option<u64>,
    /// The first process, where it only waits.
    pub(super) waiting: Option<i32>,
    /// Its threads that wanted a processor at the last look.
    pub(super) wanting: Wanting,
    /// Whether its threads go behind all others.
    pub(super) is_last: bool,
    /// Whether they leave one processor to others.
    pub(super) is_aside: bool,
    /// The group it is being moved to, where there are any.
    pub(super) group: Option<Group>,
    /// Those that were moved.
    pub(super) joined: HashSet<i32>,
    /// Whether all its processes were moved.
    pub(super) is_moved: bool,
    /// Rounds since the last new process.
    pub(super) quiet: u32,
    /// How many bytes its user's runs may write in a second while other users are there; 0 for any number.
    pub(super) write_rate: u64,
    /// What it writes.
    pub(super) writing: Writing,
}

impl MonitoredRun {
    /// The first half of a round: its processes, and how many processors they want. `None` when it rests this time.
    pub(super) fn look(&mut self, proc: &Proc) -> Option<Vec<i32>> {
        let is_kept_by_kernel = (self.group.is_some() && self.is_moved) || self.whole.is_none();
        if is_kept_by_kernel && self.quiet > QUIET_ROUNDS && !self.quiet.is_multiple_of(SELDOM) {
            self.quiet = self.quiet.wrapping_add(1);
            return None;
        }
        let members = proc.members(&self.family);
        self.wanting = proc.wanting(&members);
        Some(members)
    }

    /// The second half: moves what is not in the group yet, and tells whether the run has more memory than it may. `members` were seen
    /// by the first half.
    pub(super) fn exceeds(&mut self, proc: &Proc, members: Vec<i32>) -> bool {
        let members = self.gather(proc, members);
        let Some(Whole { memory_bytes: most, .. }) = self.whole else {
            self.quiet = self.quiet.wrapping_add(1);
            return false;
        };
        // Memory that was taken before the move is not counted in the group; and there may be no group.
        proc.resident(&members) > most && proc.proportional(&members, self.identity) > most
    }

    /// The processes of the run, moved into its group as far as they are not in it.
    fn gather(&mut self, proc: &Proc, mut members: Vec<i32>) -> Vec<i32> {
        let Some(group) = &self.group else { return members };
        let mut is_new = false;
        let (passes, moved) = match (self.is_aside, self.joined.is_empty()) {
            (false, _) => (PASSES, usize::MAX),
            (true, true) => (1, MOVED_ASIDE),
            (true, false) => (0, 0),
        };
        for _ in 0..passes {
            let strangers = members.iter().copied().filter(|pid| !self.joined.contains(pid));
            let strangers: Vec<i32> = strangers.take(moved).collect();
            if strangers.is_empty() {
                break;
            }
            is_new = true;
            for pid in strangers {
                match group.join(pid) {
                    Ok(()) => drop(self.joined.insert(pid)),
                    Err(error) if is_gone(&error) => {}
                    Err(_) => {
                        // From here on it is watched like a run without a group.
                        self.group = None;
                        return members;
                    }
                }
            }
            members = proc.members(&self.family);
        }
        self.is_moved = members.iter().all(|pid| self.joined.contains(pid));
        self.joined.retain(|pid| members.contains(pid));
        self.quiet = if is_new { 0 } else { self.quiet.wrapping_add(1) };
        members
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

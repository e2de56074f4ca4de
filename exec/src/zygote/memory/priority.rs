//! A run that has worked for long gives way: the kernel runs its processes when nothing else wants a processor.
//!
//! Commands have one niceness, so a run with a hundred busy processes would leave a hundredth of the processors to the short
//! command of another user. A command that has used little goes first, whoever started it.

use std::collections::HashSet;
use std::time::Duration;

use nix::unistd::{Uid, seteuid};

use super::processes::{Proc, Work};
use crate::sys;

/// The processor time that all processes of a run may use together before the run gives way.
const WORKED: Duration = Duration::from_millis(100);
/// How often a look lowers threads that were made meanwhile. A thread that is made by a lowered one is lowered, too.
const PASSES: usize = 16;

/// What is known of a run's use of the processors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// The first process of the run's own namespace, which only waits; `None` where the first process is the command.
    waiting: Option<i32>,
    /// What had been used by children that this process had collected at the first look: it may be a former command.
    before: Duration,
}

impl Use {
    /// Begins to look at the run with the first process `first`.
    pub(super) fn begin(proc: &Proc, first: i32, has_own_processes: bool) -> Self {
        let waiting = has_own_processes.then_some(first);
        let before = waiting.and_then(|first| proc.work(first)).map_or(Duration::ZERO, |work| work.ended);
        Self { waiting, before }
    }

    /// Lowers the processes of a run that has worked for long, as the uid `identity`: only the user of a process may, or a
    /// process with a capability that containers lack.
    ///
    /// `members` are all processes of the run at this moment, and `look` finds them again.
    pub(super) fn lower(
        self,
        proc: &Proc,
        members: &[i32],
        identity: Option<u32>,
        look: impl Fn() -> Vec<i32>,
    ) {
        let work: Vec<(i32, Work)> =
            members.iter().filter_map(|pid| Some((*pid, proc.work(*pid)?))).collect();
        let used = |(pid, work): &(i32, Work)| match Some(*pid) == self.waiting {
            true => work.ended.saturating_sub(self.before),
            false => work.own + work.ended,
        };
        if work.iter().map(used).sum::<Duration>() < WORKED
            || work.iter().all(|(pid, work)| work.is_lowered || Some(*pid) == self.waiting)
        {
            return;
        }
        let (mut members, mut lowered) = (members.to_vec(), HashSet::new());
        for _ in 0..PASSES {
            let of_command = members.iter().filter(|pid| Some(**pid) != self.waiting);
            let threads: Vec<i32> = of_command.flat_map(|pid| proc.threads(*pid)).collect();
            let new: Vec<i32> = threads.into_iter().filter(|thread| lowered.insert(*thread)).collect();
            if new.is_empty() {
                return;
            }
            lower_as(identity, &new);
            members = look();
        }
    }
}

/// Lowers threads; those that are gone are.
fn lower_as(identity: Option<u32>, threads: &[i32]) {
    let own = Uid::effective();
    // Back from this uid is always allowed: the real one stays, which also keeps processes of the user from sending signals here.
    if identity.is_some_and(|id| seteuid(Uid::from_raw(id)).is_err()) {
        return;
    }
    for thread in threads {
        let _ = sys::leave_processors_to_others(*thread);
    }
    if identity.is_some() {
        let _ = seteuid(own);
    }
}

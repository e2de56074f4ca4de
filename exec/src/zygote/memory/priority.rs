//! Runs of a user that want many processors at once give way: the kernel runs their processes when nothing else wants a processor.
//!
//! Commands have one niceness, so a user with a hundred busy processes would leave a hundredth of the processors to the short command
//! of another one. What is lowered cannot be raised again without privileges, so a user whose commands have a few busy processes,
//! which is usual, keeps what all have. Runs that end before they are watched are accounted for in `workloads.rs`.

use std::collections::{HashMap, HashSet};

use nix::unistd::{Uid, seteuid};

use super::monitored_run::MonitoredRun;
use super::processes::Proc;
use crate::sys;

/// How many threads of one user may want a processor at once, for each processor, before they give way.
const WANTING: usize = 2;
/// How often a look lowers threads that were made meanwhile. A thread that is made by a lowered one is lowered, too.
const PASSES: usize = 16;

/// Lowers the runs of every user who wants too much.
pub(super) fn lower(proc: &Proc, runs: &mut [MonitoredRun], processors: usize) {
    let most = processors.saturating_mul(WANTING);
    let mut of_users: HashMap<Result<u64, u64>, usize> = HashMap::new();
    for run in runs.iter() {
        *of_users.entry(owner(run)).or_default() += run.wanting.all;
    }
    for run in runs {
        if run.wanting.usual > 0 && of_users.get(&owner(run)).is_some_and(|wanting| *wanting > most) {
            lower_run(proc, run);
            // Until the next look finds others.
            run.wanting.usual = 0;
        }
    }
}

/// The user of a run, or the run itself.
fn owner(run: &MonitoredRun) -> Result<u64, u64> {
    run.user.ok_or(run.run)
}

/// Lowers all threads of a run but those of its waiting first process.
fn lower_run(proc: &Proc, run: &MonitoredRun) {
    let mut lowered = HashSet::new();
    for _ in 0..PASSES {
        let members = proc.members(&run.family);
        let of_command = members.into_iter().filter(|pid| Some(*pid) != run.waiting);
        let threads: Vec<i32> = of_command.flat_map(|pid| proc.threads(pid)).collect();
        let new: Vec<i32> = threads.into_iter().filter(|thread| lowered.insert(*thread)).collect();
        if new.is_empty() {
            return;
        }
        lower_as(run.identity, &new);
    }
}

/// Lowers threads as the uid `identity`: only the user of a thread may, or a process with a capability that containers lack. Threads
/// that are gone are.
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

//! Runs of a user that want many processors at once give way: they go behind all others, and while another user is there they leave
//! one processor to others.
//!
//! A command begins with a better claim to the processors than those that have been at work for a while, so a short one does not wait for
//! them. It keeps that for as long as it is not found at work.
//!
//! Commands at work have one niceness, so a user with a hundred busy processes would leave a hundredth of the processors to the short
//! command of another one. The niceness of what is lowered cannot be raised again without privileges, so a user whose commands have a few busy
//! processes, which is usual, keeps what all have. Runs that end before they are watched are accounted for in `workloads.rs`.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use nix::unistd::{Uid, seteuid};

use super::monitored_run::MonitoredRun;
use super::processes::Proc;
use crate::company::Company;
use crate::sys;

/// How many threads of one user may want a processor at once, for each processor, before they give way.
const WANTING: usize = 2;
/// How often a look changes threads that were made meanwhile. A thread that is made by a changed one is changed, too.
pub(super) const PASSES: usize = 16;

/// Lowers the runs of every user who wants too much, and those that were fresh and are at work; tells those that are last where they
/// belong, by the `company` of their user.
pub(super) fn lower(proc: &Proc, runs: &mut [MonitoredRun], processors: usize, company: &Company) {
    let most = processors.saturating_mul(WANTING);
    let mut of_users: HashMap<Result<u64, u64>, usize> = HashMap::new();
    for run in runs.iter() {
        *of_users.entry(owner(run)).or_default() += run.wanting.all;
    }
    let now = Instant::now();
    for run in runs {
        let too_much =
            run.wanting.all > 0 && of_users.get(&owner(run)).is_some_and(|wanting| *wanting > most);
        // A command may have the least priority by its own will, of which nobody knows whether all its threads have it.
        let is_lowered = too_much && (!run.is_last || run.wanting.usual > 0);
        run.is_last |= too_much;
        // Fresh ones may be last by their niceness alone.
        let is_fresh = run.wanting.fresh > 0;
        let is_lowered = is_lowered || (is_fresh && run.is_last);
        let is_aside = run.is_last && company.has_others(run.user, now);
        let steps_back = run.is_aside && !is_aside;
        if is_lowered || is_fresh || is_aside != run.is_aside {
            run.is_aside = is_aside;
            // Until the next look finds others.
            (run.wanting.usual, run.wanting.fresh) = (0, 0);
            change_run(proc, run, |thread| {
                if is_lowered {
                    sys::go_last(thread);
                } else if is_fresh {
                    sys::go_on_as_command(thread);
                }
                if is_aside {
                    sys::step_aside(thread);
                } else if steps_back {
                    sys::step_back(thread);
                }
            });
        }
    }
}

/// Lowers the process group `group` of a run if it wants too much all by itself, as far as one system call does, before its processes
/// are looked at one by one: among hundreds that want a processor, that takes tens of milliseconds. Tells whether it did.
pub(super) fn lower_group(proc: &Proc, group: i32, identity: Option<u32>, processors: usize) -> bool {
    let is_too_much = proc.want_more_than(processors.saturating_mul(WANTING), group);
    if is_too_much {
        change_as(identity, &[group], sys::go_last_as_group);
    }
    is_too_much
}

/// The user of a run, or the run itself.
pub(super) fn owner(run: &MonitoredRun) -> Result<u64, u64> {
    run.user.ok_or(run.run)
}

/// Changes all threads of a run but those of its waiting first process.
fn change_run(proc: &Proc, run: &MonitoredRun, change: impl Fn(i32)) {
    let mut changed = HashSet::new();
    for _ in 0..PASSES {
        let members = proc.members(&run.family);
        let of_command = members.into_iter().filter(|pid| Some(*pid) != run.waiting);
        let threads: Vec<i32> = of_command.flat_map(|pid| proc.threads(pid)).collect();
        let new: Vec<i32> = threads.into_iter().filter(|thread| changed.insert(*thread)).collect();
        if new.is_empty() {
            return;
        }
        change_as(run.identity, &new, &change);
    }
}

/// Changes threads, or sends signals to processes, as the uid `identity`: only the user of a thread may, or a process with a capability that containers lack. Threads
/// that are gone are.
pub(super) fn change_as(identity: Option<u32>, threads: &[i32], change: impl Fn(i32)) {
    let own = Uid::effective();
    // Back from this uid is always allowed: the real one stays, which also keeps processes of the user from sending signals here.
    if identity.is_some_and(|id| seteuid(Uid::from_raw(id)).is_err()) {
        return;
    }
    threads.iter().for_each(|thread| change(*thread));
    if identity.is_some() {
        let _ = seteuid(own);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use rustix::process::{Pid, Signal, getpriority_process, kill_process_group};

    use super::super::processes::Family;
    use super::*;

    #[test]
    fn a_group_of_many_busy_processes_is_lowered_as_one_and_a_small_one_is_not() {
        sys::find_processors();
        let proc = Proc::open().unwrap();
        let lowered = |busy: usize| {
            let script = format!("for i in $(seq {busy}); do (while :; do :; done) & done; wait");
            let mut shell = Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap();
            let first = i32::try_from(shell.id()).unwrap();
            let family = Family { first, guardian: None, runaways: None };
            // The shell wants a processor, too, until it has made the last of them.
            let are_busy = || {
                let members = proc.members(&family);
                let waits = proc.wanting(&[first]).all == 0;
                members.len() > busy && waits && proc.wanting(&members).all >= busy
            };
            while !are_busy() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let is_lowered = lower_group(&proc, first, None, 1);
            let last = proc.members(&family).into_iter();
            let last = last.filter(|pid| getpriority_process(Pid::from_raw(*pid)) == Ok(19)).count();
            kill_process_group(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
            shell.wait().unwrap();
            (is_lowered, last)
        };
        assert_eq!(lowered(WANTING), (false, 0));
        // Where there is one processor, they are lowered one by one.
        let all = if sys::can_step_aside() { 40 + 1 } else { 0 };
        assert_eq!(lowered(40), (true, all));
    }
}

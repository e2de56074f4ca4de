//! What runs write to the disk. While another user is there, the runs of a user who has written much pause until that is worked off, so
//! that what others write has its turn.
//!
//! Without a control group nobody can have the kernel share out a disk: its queue knows neither users nor niceness, and the journal of a
//! file system has one file wait for all that was written before. So the processes are stopped, and go on a while later. They notice
//! nothing of it but the time.
//!
//! A run that ends before it is watched is accounted for in `workloads.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::monitored_run::MonitoredRun;
use super::priority::{PASSES, change_as, owner};
use super::processes::Proc;
use crate::company::Company;

/// How long the runs of a user may have written for at once, at the rate that they may keep up.
const AT_ONCE: Duration = Duration::from_secs(4);
/// How long they pause at most, without writing meanwhile.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// What a process that hides its figure is taken to have written when a look finds it waiting for the disk, as time at that rate.
const HIDDEN: Duration = Duration::from_millis(250);
/// A run that wrote so many bytes since the last look is looked at each time.
const MUCH: u64 = 1 << 20;

/// When each user's runs will have worked off what they wrote.
#[derive(Debug, Default)]
pub(super) struct Writers(HashMap<Result<u64, u64>, Instant>);

impl Writers {
    fn add(&mut self, writer: Result<u64, u64>, lasting: Duration, now: Instant) {
        let until = self.0.entry(writer).or_insert(now);
        *until = ((*until).max(now) + lasting).min(now + AT_ONCE + PAUSE_MAX);
    }

    fn must_pause(&self, writer: Result<u64, u64>, now: Instant) -> bool {
        self.0.get(&writer).is_some_and(|until| until.saturating_duration_since(now) > AT_ONCE)
    }

    /// Adds what the runs have written since the last look, while other users are there, and has their processes pause or go on.
    /// `members` are those of each run, but of those that rest.
    pub(super) fn pace(
        &mut self,
        proc: &Proc,
        runs: &mut [MonitoredRun],
        members: &[Option<Vec<i32>>],
        company: &Company,
    ) {
        let now = Instant::now();
        self.0.retain(|_, until| *until > now);
        for (run, members) in runs.iter_mut().zip(members) {
            let rate = run.write_rate;
            if rate == 0 || !company.has_others(run.user, now) {
                run.writing.seen = None;
            } else if let Some(members) = members {
                let processes = proc.processes(members, run.identity);
                let (bytes, hidden) = run.writing.more(&processes);
                if bytes >= MUCH {
                    run.quiet = 0;
                }
                let written = Duration::from_micros(bytes.saturating_mul(1_000_000) / rate);
                self.add(owner(run), written + HIDDEN * hidden, now);
            }
        }
        for (run, members) in runs.iter_mut().zip(members) {
            if run.writing.seen.is_some() && self.must_pause(owner(run), now) {
                pause(proc, run, members.clone().unwrap_or_else(|| proc.members(&run.family)));
            } else {
                go_on(proc, run);
            }
        }
    }
}

/// Stops the processes of a run but its waiting first one, parents before their children: a parent would see its child stop. Those that the
/// run has stopped itself stay as they are.
fn pause(proc: &Proc, run: &mut MonitoredRun, mut members: Vec<i32>) {
    for _ in 0..PASSES {
        let of_command: Vec<i32> = members.into_iter().filter(|pid| Some(*pid) != run.waiting).collect();
        run.writing.paused.retain(|pid| of_command.contains(pid));
        let at_work = proc.processes(&of_command, None).into_iter();
        let at_work = at_work.filter(|process| process.state.is_some_and(|state| !"TtZX".contains(state)));
        let at_work: Vec<i32> = at_work.map(|process| process.pid).collect();
        if at_work.is_empty() {
            return;
        }
        change_as(run.identity, &at_work, |pid| _ = kill(Pid::from_raw(pid), Signal::SIGSTOP));
        for pid in at_work {
            if !run.writing.paused.contains(&pid) {
                run.writing.paused.push(pid);
            }
        }
        members = proc.members(&run.family);
    }
}

/// Has those that pause go on, children before their parents.
fn go_on(proc: &Proc, run: &mut MonitoredRun) {
    if run.writing.paused.is_empty() {
        return;
    }
    let members = proc.members(&run.family);
    let paused = std::mem::take(&mut run.writing.paused).into_iter().rev();
    let paused: Vec<i32> = paused.filter(|pid| members.contains(pid)).collect();
    change_as(run.identity, &paused, |pid| _ = kill(Pid::from_raw(pid), Signal::SIGCONT));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_more_than_the_rate_pauses_and_goes_on_at_the_rate() {
        let (mut writers, now) = (Writers::default(), Instant::now());
        let (alice, bob) = (Ok(1), Err(1));
        writers.add(alice, AT_ONCE, now);
        assert!(!writers.must_pause(alice, now));
        writers.add(alice, Duration::from_secs(1), now);
        assert!(writers.must_pause(alice, now) && !writers.must_pause(bob, now));
        assert!(!writers.must_pause(alice, now + Duration::from_secs(1)));
        writers.add(alice, Duration::MAX / 4, now);
        assert!(!writers.must_pause(alice, now + PAUSE_MAX));
    }
}

//! What runs write to the disk. While another user is there, the runs of a user who has written much pause until that is worked off, so
//! that what others write has its turn.
//!
//! Without a control group the kernel cannot be told to share out a disk: its queue knows neither users nor niceness, and the journal of a
//! file system has one file wait for all that was written before. So the processes are stopped, and go on a while later. To programs that is
//! as if they had no processor for so long, but that handlers for `SIGCONT` run, and some calls are interrupted (signal(7)).
//!
//! This holds for programs that write, and not for all that is made to deceive it. A process that hides its figure counts as one that writes
//! while it is at work, and a child that no process of the run collects as one that wrote; a run that goes on writing while it is to pause is ended.
//!
//! A run that ends before it is watched is accounted for in `workloads.rs`.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::monitored_run::MonitoredRun;
use super::priority::{PASSES, change_as, owner};
use super::processes::{Proc, Writer, Written};
use super::writing::More;
use crate::company::Company;

/// How long the runs of a user may have written for at once, at the rate that they may keep up.
const AT_ONCE: Duration = Duration::from_secs(4);
/// How long they pause at most, without writing meanwhile.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// What a process is taken to have written whose figure is not known, as time at that rate.
const UNKNOWN: Duration = Duration::from_millis(250);
/// At how many looks in succession a run may have written although it was to pause: some processes are made while others are stopped.
const DEFIED: u32 = 10;

/// When each user's runs will have worked off what they wrote.
#[derive(Debug, Default)]
pub(super) struct Writers {
    until: HashMap<Result<u64, u64>, Instant>,
    /// Whether this process was ever shown what a command had written: where it is not, all seem to hide it.
    is_shown: bool,
}

impl Writers {
    fn add(&mut self, writer: Result<u64, u64>, lasting: Duration, now: Instant) {
        let until = self.until.entry(writer).or_insert(now);
        *until = ((*until).max(now) + lasting).min(now + AT_ONCE + PAUSE_MAX);
    }

    fn must_pause(&self, writer: Result<u64, u64>, now: Instant) -> bool {
        self.until.get(&writer).is_some_and(|until| until.saturating_duration_since(now) > AT_ONCE)
    }

    /// Adds what the runs have written since the last look, while other users are there, and has their processes pause or go on; tells
    /// which runs have gone on writing although they were to pause. `members` are those of each run, but of those that rest.
    pub(super) fn pace(
        &mut self,
        proc: &Proc,
        runs: &mut [MonitoredRun],
        members: &[Option<Vec<i32>>],
        company: &Company,
    ) -> Vec<u64> {
        let now = Instant::now();
        self.until.retain(|_, until| *until > now);
        for (run, members) in runs.iter_mut().zip(members) {
            let rate = run.write_rate;
            if rate == 0 || !company.has_others(run.user, now) {
                run.writing.seen = None;
            } else if let Some(members) = members {
                let processes = proc.writers(members, run.identity);
                let is_shown = |writer: &Writer| {
                    Some(writer.pid) != run.waiting && matches!(writer.written, Written::Bytes(1..))
                };
                self.is_shown |= processes.iter().any(is_shown);
                let More { bytes, hidden, unseen, uncollected } = run.writing.more(&processes);
                run.writing.note_defiance(|pid| proc.is_stopping(pid));
                let unseen = if self.is_shown { unseen } else { 0 };
                let unknown = hidden.saturating_add(unseen).saturating_add(uncollected);
                let written = Duration::from_micros(bytes.saturating_mul(1_000_000) / rate);
                let written = written.saturating_add(UNKNOWN.saturating_mul(unknown));
                if !written.is_zero() {
                    self.add(owner(run), written, now);
                }
            }
            if self.until.contains_key(&owner(run)) {
                // It is looked at each time.
                run.quiet = 0;
            }
        }
        for (run, members) in runs.iter_mut().zip(members) {
            if run.writing.seen.is_some() && self.must_pause(owner(run), now) {
                pause(proc, run, members.clone().unwrap_or_else(|| proc.members(&run.family)));
            } else {
                go_on(proc, run);
            }
        }
        runs.iter().filter(|run| run.writing.defied >= DEFIED).map(|run| run.run).collect()
    }
}

/// Stops the processes of a run but its waiting first one, parents before their children: a parent would see its child stop. Those that the
/// run has stopped itself stay as they are.
fn pause(proc: &Proc, run: &mut MonitoredRun, mut members: Vec<i32>) {
    run.writing.paused.retain(|pid| members.contains(pid));
    let mut asked = HashSet::new();
    for _ in 0..PASSES {
        let known: HashSet<i32> = members.iter().copied().chain(run.family.guardian).collect();
        let of_command = members.into_iter().filter(|pid| Some(*pid) != run.waiting);
        // A number may be another process's by now, whose parent is not of the run.
        let is_at_work = |pid: &i32| {
            proc.parent_and_state(*pid).is_some_and(|(parent, state)| {
                (*pid == run.family.first || known.contains(&parent)) && !"TtZX".contains(state)
            })
        };
        let at_work: Vec<i32> = of_command.filter(|pid| !asked.contains(pid)).filter(is_at_work).collect();
        if at_work.is_empty() {
            return;
        }
        change_as(run.identity, &at_work, |pid| _ = kill(Pid::from_raw(pid), Signal::SIGSTOP));
        for pid in at_work {
            asked.insert(pid);
            if !run.writing.paused.contains(&pid) {
                run.writing.paused.push(pid);
            }
        }
        members = proc.members(&run.family);
    }
}

/// Has those that pause go on, children before their parents.
pub(super) fn go_on(proc: &Proc, run: &mut MonitoredRun) {
    if run.writing.paused.is_empty() {
        return;
    }
    let members: HashSet<i32> = proc.members(&run.family).into_iter().collect();
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

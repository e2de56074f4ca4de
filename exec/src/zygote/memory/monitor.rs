//! The memory monitor: a process beside the launcher that watches runs which live for a while, for their memory, for how many
//! processors they want, and for what they write.
//!
//! The launcher must never wait: looking through `/proc` and moving processes between groups takes milliseconds. And
//! when the launcher is killed, a process must be left to remove the groups.
//!
//! Its work is bounded: after each round it rests four times the processor time that the round took, and never less than
//! [`ROUND`], so however much there is to watch, it takes a fifth of one processor at most.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::monitored_run::MonitoredRun;
use super::pace::{self, Writers};
use super::processes::Family;
use super::writing::Writing;
use super::{Means, ROUND, priority};
use crate::company::Company;
use crate::limit::Limit;
use crate::sys;
use crate::wire::{self, Whole};

/// How many times the processor time of a round the memory monitor rests.
const REST: u32 = 4;
/// How long the processes of a launcher that is gone may take to be gone, too.
const FAREWELL: Duration = Duration::from_secs(10);
const FAREWELL_ROUND: Duration = Duration::from_millis(20);
/// Largest message, in bytes.
const MESSAGE_BYTES: usize = 512;

/// A message of the launcher to its memory monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// This run has lived for a while.
    Watch(Charge),
    /// This one has not, but there is a crowd, which may be its processes.
    Glance(Charge),
    /// The user with this number is here.
    Here {
        /// As in [`Charge::user`].
        user: u64,
    },
    /// This run has ended.
    Forget {
        /// Which.
        run: u64,
    },
}

/// A run as the memory monitor has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::zygote) struct Charge {
    pub(in crate::zygote) run: u64,
    /// A number for the user; a run without one gives way for itself.
    pub(in crate::zygote) user: Option<u64>,
    pub(in crate::zygote) first: i32,
    /// Whether the first process adopts the orphans of the run.
    pub(in crate::zygote) has_own_processes: bool,
    pub(in crate::zygote) identity: Option<u32>,
    /// Whether processes may have left the group of the first one.
    pub(in crate::zygote) has_runaways: bool,
    pub(in crate::zygote) whole: Whole,
    /// Whether it began as one that goes behind all others, and aside.
    pub(in crate::zygote) gives_way: bool,
    pub(in crate::zygote) is_aside: bool,
}

/// A message of the memory monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::zygote) enum Told {
    /// This run has gone beyond a limit.
    Exceeds {
        /// Which.
        run: u64,
        /// Beyond which one.
        limit: Limit,
    },
    /// Runs leave a processor to others, or none does any more.
    IsSpared(bool),
}

struct MemoryMonitor {
    socket: OwnedFd,
    means: Means,
    launcher: i32,
    /// Of this machine, as far as the launcher may use them.
    processors: usize,
    runs: Vec<MonitoredRun>,
    company: Company,
    writers: Writers,
    /// Whether the launcher was told that runs leave a processor to others.
    is_spared: bool,
    /// Groups of ended runs in which something was left.
    remains: Vec<u64>,
}

/// Lives as the memory monitor until the launcher closes its end, then cleans up. Does not return.
pub(super) fn live(socket: OwnedFd, means: Means, launcher: i32) -> ! {
    let mut monitor = MemoryMonitor {
        socket,
        means,
        launcher,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        runs: Vec::new(),
        company: Company::default(),
        writers: Writers::default(),
        is_spared: false,
        remains: Vec::new(),
    };
    // An error of the socket is treated as its end: no process is left to tell.
    let _ = monitor.serve();
    monitor.farewell();
    sys::exit_now(0)
}

impl MemoryMonitor {
    fn serve(&mut self) -> io::Result<()> {
        let mut next = Instant::now();
        loop {
            let rests = self.runs.is_empty() && self.remains.is_empty() && !self.is_spared;
            if self.hears((!rests).then(|| next.saturating_duration_since(Instant::now())))? {
                let mut buffer = [0; MESSAGE_BYTES];
                let (length, _) = wire::receive(self.socket.as_fd(), &mut buffer)?;
                if length == 0 {
                    return Ok(());
                }
                match wire::decode(buffer.get(..length).unwrap_or_default())? {
                    Word::Watch(charge) => {
                        self.lower_at_once(&charge);
                        self.watch(&charge);
                    }
                    // Of any other run nothing more needs to be known yet.
                    Word::Glance(charge) => {
                        if self.lower_at_once(&charge) {
                            self.watch(&charge);
                        }
                    }
                    Word::Here { user } => {
                        self.company.note(user, Instant::now());
                    }
                    Word::Forget { run } => self.forget(run),
                }
            }
            if Instant::now() >= next {
                let before = processor_time();
                self.round();
                next = Instant::now() + ROUND.max(processor_time().saturating_sub(before) * REST);
            }
            let is_spared = self.runs.iter().any(|run| run.is_aside);
            if is_spared != self.is_spared
                && wire::send_message(self.socket.as_fd(), &Told::IsSpared(is_spared)).is_ok()
            {
                self.is_spared = is_spared;
                // Looking at hundreds of processes takes some milliseconds, for which nobody should wait there.
                match is_spared {
                    true => sys::step_aside(0),
                    false => sys::step_back(0),
                }
            }
        }
    }

    /// Waits for a word; `false` when none came in time.
    fn hears(&self, patience: Option<Duration>) -> io::Result<bool> {
        let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience =
            patience.map(|rest| Timespec::try_from(rest).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
        match poll(&mut set, patience.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lowers a run that wants too much all by itself, and whose group is its own; tells whether it did.
    fn lower_at_once(&self, charge: &Charge) -> bool {
        let Ok(proc) = &self.means.proc else { return false };
        !charge.has_own_processes
            && !charge.gives_way
            && priority::lower_group(proc, charge.first, charge.identity, self.processors)
    }

    /// Watches a run, if it is not watched yet.
    fn watch(&mut self, charge: &Charge) {
        if self.runs.iter().any(|monitored| monitored.run == charge.run) {
            return;
        }
        let Charge { run, user, first, has_own_processes, identity, has_runaways, whole, .. } = *charge;
        let family = Family {
            first,
            guardian: (!has_own_processes).then_some(self.launcher),
            runaways: identity.filter(|_| has_runaways && !has_own_processes),
        };
        let Ok(proc) = &self.means.proc else { return };
        // Without a group the run is watched all the same.
        let group = self.means.moving().and_then(|groups| groups.make(run, whole).ok());
        let waiting = has_own_processes.then_some(first);
        let mut monitored = MonitoredRun {
            run,
            family,
            identity,
            whole: Some(whole).filter(|_| self.means.bearing().is_none()),
            user,
            waiting,
            wanting: Default::default(),
            is_last: charge.gives_way,
            is_aside: charge.is_aside,
            group,
            joined: Default::default(),
            is_moved: false,
            quiet: 0,
            write_rate: whole.write_bytes_per_second,
            writing: Writing::new(waiting, self.company.has_others(user, Instant::now())),
        };
        // At once, because the next round may be far.
        let members = monitored.look(proc);
        self.runs.push(monitored);
        priority::lower(proc, &mut self.runs, self.processors, &self.company);
        if let (Some(members), Some(monitored)) = (members, self.runs.last_mut())
            && monitored.exceeds(proc, members)
        {
            self.tell(run, Limit::Memory);
        }
    }

    fn forget(&mut self, run: u64) {
        self.go_on(|monitored| monitored.run == run);
        self.runs.retain(|monitored| monitored.run != run);
        if let Some(groups) = &self.means.groups
            && !groups.remove(run)
        {
            self.remains.push(run);
        }
    }

    /// Has what pauses of these runs go on: what is left of them is to end, or is left over, but not stopped for ever.
    fn go_on(&mut self, is_one: impl Fn(&MonitoredRun) -> bool) {
        if let Ok(proc) = &self.means.proc {
            self.runs.iter_mut().filter(|run| is_one(run)).for_each(|run| pace::go_on(proc, run));
        }
    }

    fn round(&mut self) {
        if let Some(groups) = &self.means.groups {
            self.remains.retain(|run| !groups.remove(*run));
        }
        let Ok(proc) = &self.means.proc else { return };
        // Before processes are moved, which those hold up that have not been lowered yet.
        let members: Vec<_> = self.runs.iter_mut().map(|run| run.look(proc)).collect();
        priority::lower(proc, &mut self.runs, self.processors, &self.company);
        let defying = self.writers.pace(proc, &mut self.runs, &members, &self.company);
        let mut exceeding = Vec::new();
        for (run, members) in self.runs.iter_mut().zip(members) {
            let wants =
                run.group.is_some() && self.means.groups.as_ref().is_some_and(|groups| groups.wants(run.run));
            if wants || members.is_some_and(|members| run.exceeds(proc, members)) {
                exceeding.push(run.run);
            }
        }
        exceeding.into_iter().for_each(|run| self.tell(run, Limit::Memory));
        defying.into_iter().for_each(|run| self.tell(run, Limit::Disk));
    }

    /// Tells the launcher; when it is behind, the next round does it again.
    fn tell(&self, run: u64, limit: Limit) {
        let _ = wire::send_message(self.socket.as_fd(), &Told::Exceeds { run, limit });
    }

    /// Removes all groups once their processes are gone, which die with the launcher.
    fn farewell(&mut self) {
        self.go_on(|_| true);
        let Some(groups) = &self.means.groups else { return };
        let began = Instant::now();
        while !groups.remove_all() && began.elapsed() < FAREWELL {
            std::thread::sleep(FAREWELL_ROUND);
        }
    }
}

/// The processor time that this process has used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

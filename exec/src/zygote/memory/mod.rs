//! The memory of a whole run: what bounds it here, and the launcher's side of it.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`monitor`] | the process that watches runs which live for a while |
//! | [`monitored_run`] | one such run |
//! | [`processes`] | which processes a run has, how much memory, and how many processors they want |
//! | [`priority`] | that the runs of a user who wants many processors give way to others |
//! | [`writing`] | what the processes of a run have written to the disk |
//! | [`pace`] | that the runs of a user who writes much pause |
//!
//! In order of preference:
//!
//! 1. a group of version 2, which the first process is born into;
//! 2. a group of either version, which all processes are moved to once the run has lived for [`ROUND`];
//! 3. looking at all processes every [`ROUND`].
//!
//! A run that ends before costs nothing but in the first case, where the kernel holds the limit from the first
//! instruction on. There the monitor looks at the processors that the run wants, and not at its memory.

mod monitor;
mod monitored_run;
mod pace;
mod priority;
mod processes;
mod writing;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::thread::{CapabilitySet, CapabilitySets};

use self::monitor::Word;
pub(super) use self::monitor::{Charge, Told};
use self::processes::Proc;
use super::cgroup::{self, Group, Groups};
use crate::limit::Limit;
use crate::sys;
use crate::tier::MemoryBound;
use crate::walls::seccomp::{self, Surroundings};
use crate::wire::{self, Whole};

/// How long a run lives before it is watched, and how often it is looked at.
pub(super) const ROUND: Duration = Duration::from_millis(100);

/// The means that bound the memory of runs on this host.
#[derive(Debug)]
pub(super) struct Means {
    pub(super) bound: MemoryBound,
    /// Why it is no control group; `None` when it is one.
    pub(super) shortfall: Option<String>,
    groups: Option<Groups>,
    /// `/proc`; otherwise why nothing can be looked at.
    proc: Result<Proc, String>,
}

impl Means {
    /// Finds out what this host grants; before the launcher leaves the host's root and gives up its capabilities.
    ///
    /// `born` when processes can be started in a group (see [`crate::walls::seccomp`]); `may_group` when groups may be used.
    pub(super) fn find(born: bool, may_group: bool) -> Self {
        let proc = Proc::open().map_err(|error| format!("the processes of a run cannot be listed: {error}"));
        let found = match may_group {
            true => cgroup::find(born),
            false => Err("control groups are switched off".to_owned()),
        };
        let found = found.and_then(|(groups, bound)| match &proc {
            // Processes that cannot be listed cannot be moved.
            Err(blind) if bound.is_by_moving() => {
                groups.remove_all();
                Err(blind.clone())
            }
            _ => Ok((groups, bound)),
        });
        match found {
            Ok((groups, bound)) => Self { bound, shortfall: None, groups: Some(groups), proc },
            Err(reason) => {
                let (bound, shortfall) = match &proc {
                    Ok(_) => (MemoryBound::Sampled, reason),
                    Err(blind) => (MemoryBound::EachProcess, format!("{reason}; {blind}")),
                };
                Self { bound, shortfall: Some(shortfall), groups: None, proc }
            }
        }
    }

    /// The launcher's descriptors that the memory monitor needs.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let groups = self.groups.iter().flat_map(Groups::descriptors);
        groups.chain(self.proc.iter().map(AsRawFd::as_raw_fd))
    }

    /// The groups that runs are born into.
    fn bearing(&self) -> Option<&Groups> {
        self.groups.as_ref().filter(|_| self.bound == MemoryBound::CgroupV2)
    }

    /// The groups that runs are moved to.
    fn moving(&self) -> Option<&Groups> {
        self.groups.as_ref().filter(|_| self.bound.is_by_moving())
    }
}

/// The launcher's side.
#[derive(Debug)]
pub(super) struct Memory {
    means: Means,
    monitor: OwnedFd,
    /// Messages for which the memory monitor's socket had no room yet.
    owed: VecDeque<Word>,
}

impl Memory {
    /// Starts the memory monitor, which gives up on its own what it does not need.
    ///
    /// # Errors
    /// As `socketpair(2)` and `fork(2)`.
    pub(super) fn start(means: Means, surroundings: Surroundings) -> io::Result<Self> {
        let (ours, theirs) = wire::packet_sockets()?;
        let launcher = nix::unistd::getpid().as_raw();
        if sys::fork_single_threaded()?.is_some() {
            return Ok(Self { means, monitor: ours, owed: VecDeque::new() });
        }
        // Descriptors of the launcher in this process would keep the service from noticing the launcher's end.
        sys::close_all_but(&means.descriptors().chain([theirs.as_raw_fd()]).collect::<Vec<_>>());
        confine(surroundings, means.groups.is_some());
        monitor::live(theirs, means, launcher)
    }

    /// The bound on the memory of runs, and why it is no control group.
    pub(super) fn bound(&self) -> (MemoryBound, Option<String>) {
        (self.means.bound, self.means.shortfall.clone())
    }

    /// The memory monitor's socket: readable when it has something to tell, and at its end.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }

    /// Makes the group that the first process of the run `run` is to be born into; `None` where it is not.
    ///
    /// # Errors
    /// As `mkdir(2)`. What was made is removed by [`Memory::ended`].
    pub(super) fn birthplace(&self, run: u64, whole: Whole) -> io::Result<Option<Group>> {
        self.means.bearing().map(|groups| groups.make(run, whole)).transpose()
    }

    /// After how long the memory monitor must be told of a run; `None` when it need not know.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.means.proc.is_ok().then_some(ROUND)
    }

    /// Tells the memory monitor of a run that has lived for a while.
    pub(super) fn watch(&mut self, charge: Charge) {
        self.owed.push_back(Word::Watch(charge));
        self.settle();
    }

    /// Tells the memory monitor of a run that may be a crowd; it is told again when the run has lived for a while.
    pub(super) fn glance(&mut self, charge: Charge) {
        self.owed.push_back(Word::Glance(charge));
        self.settle();
    }

    /// Tells the memory monitor that a user is here.
    pub(super) fn is_here(&mut self, user: u64) {
        self.owed.push_back(Word::Here { user });
        self.settle();
    }

    /// Tells whether the kernel killed something of the ended run `run` for want of memory.
    ///
    /// `watched` when the memory monitor was told of it, `suddenly` when its first process was killed, and not by the
    /// launcher. Without a kill there is nothing to look for but in a group to which the monitor moved the run.
    pub(super) fn verdict(&self, run: u64, watched: bool, suddenly: bool) -> Option<Limit> {
        let is_moved = watched && self.means.bearing().is_none();
        let groups = self.means.groups.as_ref().filter(|_| is_moved || suddenly)?;
        groups.wants(run).then_some(Limit::Memory)
    }

    /// Cleans up after a run; `watched` when the memory monitor was told of it.
    pub(super) fn ended(&mut self, run: u64, watched: bool) {
        let is_clean = self.means.bearing().is_none_or(|groups| groups.remove(run));
        if watched || !is_clean {
            self.owed.push_back(Word::Forget { run });
            self.settle();
        }
    }

    /// Tells the memory monitor what it had no room to hear; `false` when something is still owed.
    pub(super) fn settle(&mut self) -> bool {
        while let Some(word) = self.owed.front() {
            match wire::send_message(self.monitor.as_fd(), word) {
                // The wait for the memory monitor's socket notices that the memory monitor is gone.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                _ => drop(self.owed.pop_front()),
            }
        }
        true
    }

    /// Hears what the memory monitor has to tell.
    ///
    /// # Errors
    /// `UnexpectedEof` when the memory monitor is gone: nothing bounds the runs any more.
    pub(super) fn hear(&self) -> io::Result<Told> {
        let mut buffer = [0; 64];
        let (length, _) = wire::receive(self.monitor.as_fd(), &mut buffer)?;
        if length == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the process that watches memory ended",
            ));
        }
        wire::decode(buffer.get(..length).unwrap_or_default())
    }
}

/// Gives up what the memory monitor does not need. It keeps what it takes to look at processes as their uid, to end what is left
/// in a group, and to remove groups at the top of a hierarchy, where not even their owner may write (cgroups(7)).
fn confine(surroundings: Surroundings, groups: bool) {
    // A command may have the last one where directories above its tree are closed to it. The kernel changes the priority of a thread
    // (cap_task_setscheduler in security/commoncap.c), and tells of its memory, only for one that may do all that the thread may.
    let mut kept = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_READ_SEARCH;
    if groups {
        kept |= CapabilitySet::KILL | CapabilitySet::DAC_OVERRIDE;
    }
    if let Ok(sets) = rustix::thread::capabilities(None) {
        let left = sets.permitted & kept;
        let sets = CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
        let _ = rustix::thread::set_capabilities(None, sets);
    }
    // As the launcher does; where the kernel has no filters, the launcher's greeting says so.
    let _ = rustix::thread::set_no_new_privs(true);
    let _ = seccomp::load_for_monitor(surroundings);
}

//! The launcher process: a small, single-threaded copy of this binary that starts and reaps every run.
//!
//! The service is large and has threads; forking it costs ten times as much as forking this process, and a fork would
//! copy its secrets and open files. The launcher starts with an empty environment and one socket, and gives up at once
//! what it does not need.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`start`] | what is done once, before the first run |
//! | [`root`], [`etc`] | the minimal root and the namespaces that mounted runs begin with, and its `/etc` |
//! | [`mounting`] | detached mounts |
//! | [`init`] | the first process of a mounted run |
//! | [`crowd`] | whether far more threads want a processor than there are
//! | [`parked`] | first processes made ahead |
//! | [`passwd`] | the users that a run sees |
//! | [`run`], [`deadline`], [`shared_clock`] | what is known of a run under way |
//! | [`child`] | the steps from `clone` to `execve`, in their order |
//! | [`ceilings`], [`filters`], [`failure`] | what these steps set, and how they fail |
//! | [`network`] | the process that makes network namespaces ahead |
//! | [`swap`] | user namespaces for the service's own mounts |
//! | [`supervision`] | whether system calls of runs can be answered by the service |
//! | [`users`] | user namespaces in which processes are counted apart |
//! | [`ending`] | how runs end, by themselves or by force
//! | [`kill`] | how a whole tree of processes dies |
//! | [`memory`], [`cgroup`] | how the memory of a whole run is bounded |
//!
//! It dies with the service: the end of the main socket kills all runs and ends the loop. It asks for no parent death
//! signal, which would fire when the *thread* that started it ends (`PR_SET_PDEATHSIG(2const)`); a run's own process
//! does ask for one, because the launcher has one thread.

mod ceilings;
mod cgroup;
mod child;
mod crowd;
mod deadline;
mod ending;
mod etc;
mod failure;
mod filters;
mod init;
mod kill;
mod memory;
mod mounting;
mod network;
mod parked;
mod passwd;
mod root;
mod run;
mod shared_clock;
mod start;
mod supervision;
mod swap;
mod users;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::child::Spawner;
use self::crowd::Crowd;
use self::memory::{Memory, Told};
use self::parked::Parked;
use self::run::{Run, Spawned};
use self::users::Users;
use crate::step::Step;
use crate::sys;
use crate::wire::{self, Arrived, Descriptors, PACKET_BYTES_MAX, Report, Request, TreeLocation, Whole};

/// How long until what the memory monitor had no room to hear is sent again.
const OWED: Duration = Duration::from_millis(10);

/// First processes made ahead, as long as there is nothing else to do; more only help callers that start more commands
/// at once.
const PARKED: usize = 2;
/// After how long the memory monitor is told of a run of a user who has used too much lately, and of any while there is a crowd: before
/// it has many processes, which would all have to be moved to its group, and not before a short command has ended.
const EARLY: Duration = Duration::from_millis(5);
/// How long the launcher leaves the processor to a run that it has just started, before it makes the next process.
const START: Duration = Duration::from_millis(1);

/// The launcher's state: the main socket, the children's signal, the runs.
struct Loop {
    main: OwnedFd,
    children: SignalFd,
    runs: Vec<Run>,
    spawner: Spawner,
    filtered: bool,
    memory: Memory,
    crowd: Crowd,
    /// Whether runs leave a processor to others.
    is_spared: bool,
    /// Namespaces for the commands of mounted runs; `None` where their processes need not, or cannot, be counted apart.
    users: Option<Users>,
    /// The process that makes network namespaces; `None` where runs have none.
    networks: Option<Pid>,
    /// First processes that wait for their runs.
    parked: VecDeque<Parked>,
    /// The limits they are made for: those of the run before. `None` before the first run, and after a failure.
    usual: Option<Whole>,
    /// When the next one may be made.
    free: Instant,
    /// The number of the next run, or of the next parked process, whose run will have it.
    next: u64,
}

/// Runs the launcher until the service closes the socket on standard input.
///
/// The service's `main` calls this first of all for its hidden subcommand, before it reads a configuration, opens a
/// file or starts a thread.
///
/// # Errors
/// An exit code other than 0, and one line on standard error, when the process cannot become a launcher: standard
/// input is no socket, say.
#[must_use]
pub fn launcher_main() -> ExitCode {
    match start::start().and_then(|mut state| state.serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The service logs what its launcher writes here; there is no other way to it any more.
            let _ = io::Write::write_all(&mut io::stderr(), format!("launcher: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

impl Loop {
    fn new(
        (main, children): (OwnedFd, SignalFd),
        spawner: Spawner,
        filtered: bool,
        (memory, crowd): (Memory, Crowd),
        users: Option<Users>,
        networks: Option<Pid>,
    ) -> Self {
        let (runs, parked) = (Vec::new(), VecDeque::new());
        Self {
            main,
            children,
            runs,
            spawner,
            filtered,
            memory,
            crowd,
            is_spared: false,
            users,
            networks,
            parked,
            usual: None,
            free: Instant::now(),
            next: 1,
        }
    }

    /// Serves requests until the main socket ends; then kills what runs.
    fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let ready = self.wait()?;
            // Before the dead are collected, which renumbers the runs.
            for index in ready.runs {
                self.kill_run(index);
            }
            self.kill_overdue();
            if ready.monitor {
                match self.memory.hear()? {
                    Told::Exceeds { run, limit } => self.kill_for(run, limit),
                    // The kernel starts a process where the least load is, which may be among hundreds that have little weight each.
                    Told::IsSpared(is_spared) => {
                        self.is_spared = is_spared;
                        if is_spared { sys::take_spare_processor() } else { sys::step_back(0) }
                    }
                }
            }
            if ready.children {
                while matches!(self.children.read_signal(), Ok(Some(_))) {}
                self.reap()?;
            }
            if ready.main {
                match wire::receive_order(self.main.as_fd(), &mut buffer) {
                    Ok(Some(Arrived::Run(request, descriptors))) => self.launch(&request, descriptors),
                    Ok(Some(Arrived::SwapOwner(owner, reply))) => swap::answer(owner, &reply),
                    Ok(Some(Arrived::Here(user))) => self.memory.is_here(user),
                    Ok(None) => break,
                    // Descriptors that did not fit were closed by the kernel; the run's socket with them.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if ready.is_idle {
                self.park_ahead();
            }
        }
        for index in 0..self.runs.len() {
            self.kill_run(index);
        }
        Ok(())
    }

    /// Waits until something happens.
    fn wait(&mut self) -> io::Result<Ready> {
        let patience = self.announce();
        let monitor = self.memory.socket();
        let mut set = vec![
            PollFd::new(&self.main, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::from_borrowed_fd(monitor, PollFlags::IN),
        ];
        // A run that was killed already has nothing more to ask.
        let listening: Vec<usize> = (0..self.runs.len())
            .filter(|index| self.runs.get(*index).is_some_and(|run| !run.killed))
            .collect();
        set.extend(
            listening
                .iter()
                .filter_map(|index| self.runs.get(*index))
                // A message on it is for a first process that has stayed; its end is for the launcher.
                .map(|run| PollFd::new(&run.socket, PollFlags::RDHUP)),
        );
        let is_idle = match poll(&mut set, patience.as_ref()) {
            Ok(happened) => happened == 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        let mut happened = set.iter().map(|entry| !entry.revents().is_empty());
        Ok(Ready {
            is_idle,
            main: happened.next().unwrap_or(false),
            children: happened.next().unwrap_or(false),
            monitor: happened.next().unwrap_or(false),
            runs: listening
                .into_iter()
                .zip(happened)
                .filter(|(_, yes)| *yes)
                .map(|(index, _)| index)
                .collect(),
        })
    }

    /// Tells the memory monitor of runs that have lived for a while; how long until the next one will have.
    fn announce(&mut self) -> Option<Timespec> {
        let is_owed = !self.memory.settle();
        let now = Instant::now();
        let patience = self.memory.patience();
        let mut look = None;
        for run in &mut self.runs {
            look = run.look(now, patience).or(look);
            if run.due.is_none_or(|due| due > now) {
                continue;
            }
            if run.waits_on() {
                if !run.has_own_processes && self.crowd.is_here() {
                    run.is_known = true;
                    self.memory.glance(run.charge);
                }
            } else {
                run.is_watched_now();
                self.memory.watch(run.charge);
            }
        }
        let alive = self.runs.iter().filter(|run| !run.killed);
        let next = alive.flat_map(|run| run.due.into_iter().chain([run.deadline])).chain(look).min();
        let patience = next.map(|due| due.saturating_duration_since(now)).into_iter();
        let parking = self.wants_parked().map(|_| self.free.saturating_duration_since(now));
        let patience = patience.chain(is_owed.then_some(OWED)).chain(parking).min()?;
        Timespec::try_from(patience).ok()
    }

    /// Starts one run, or reports why not.
    fn launch(&mut self, request: &Request, descriptors: Descriptors<OwnedFd>) {
        let has_own_processes = matches!(request.place, TreeLocation::Mounted { .. });
        let spawned = if has_own_processes {
            self.usual = Some(request.whole);
            self.hand_over(request, &descriptors)
        } else {
            let number = self.next;
            self.next += 1;
            // What goes last leaves this processor alone where one is left to others.
            let is_slow = !self.is_spared && self.crowd.is_here();
            let spawned = self.spawner.spawn(request, &descriptors, is_slow);
            // A program that is executed gets to the processor with the least load, so it was begun with this one only. Not with a uid of
            // its own, as which this process would have to act.
            if let Ok(pid) = spawned
                && self.is_spared
                && !request.gives_way
                && request.identity.is_none()
            {
                sys::step_back(pid.as_raw());
            }
            let spawned = spawned.map(|pid| Spawned { number, pid, busy: None, users: None });
            spawned.map_err(|error| (Step::Clone, error))
        };
        let spawned = match spawned {
            Ok(spawned) => spawned,
            Err((step, error)) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let _ = wire::send_message(descriptors.run.as_fd(), &Report::Failed { step, errno });
                return;
            }
        };
        let now = Instant::now();
        self.free = now + START;
        let due = self.memory.patience().map(|patience| (now + EARLY, now + patience));
        self.runs.push(Run::new(request, descriptors.run, spawned, !self.filtered, due));
    }
}

/// The events that [`Loop::wait`] found.
struct Ready {
    /// Nothing.
    is_idle: bool,
    main: bool,
    children: bool,
    monitor: bool,
    /// Runs whose socket was closed or holds a message, in ascending order.
    runs: Vec<usize>,
}

//! The launcher process: a small, single-threaded copy of this binary that starts and reaps every run.
//!
//! The service is large and has threads; forking it costs ten times what forking this process costs, and whatever
//! it holds (secrets, open files) would be copied. The launcher starts with an empty environment and one socket, and
//! gives up at once what it does not need.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`root`] | the minimal root and the namespaces that mounted runs begin with |
//! | [`init`] | the first process of a mounted run |
//! | [`child`] | the steps from `clone` to `execve`, in their order |
//! | [`kill`] | how a whole tree of processes dies |
//! | [`memory`], [`cgroup`] | how the memory of a whole run is bounded |
//!
//! It dies with the service: the end of the main socket kills all runs and ends the loop. It asks for no parent death
//! signal, which would fire when the *thread* that started it ends (`PR_SET_PDEATHSIG(2const)`); a run's own process
//! does ask for one, because the launcher has one thread.

mod cgroup;
mod child;
mod init;
mod kill;
mod memory;
mod root;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;

use self::cgroup::Group;
use self::child::Cradle;
use self::memory::{Charge, Means, Memory};
use crate::result::Limit;
use crate::seccomp::{self, Surroundings};
use crate::step::Step;
use crate::sys;
use crate::wire::{self, Arrived, Descriptors, Hello, PACKET_BYTES_MAX, Place, Report, Request, Setup};

/// How long until what the warden had no room to hear is sent again.
const OWED: Duration = Duration::from_millis(10);
/// How much longer than its deadline a run lives when the service does not end it.
const GRACE: Duration = Duration::from_secs(1);
/// Longest deadline that is counted, in milliseconds: a year.
const DEADLINE_MAX_MS: u64 = 366 * 24 * 3600 * 1000;

/// A run under way.
struct Run {
    /// The launcher's child: the main process, also its session and its group; or the first process of a mounted run.
    pid: Pid,
    /// Whether the kernel ends the whole run with that process.
    has_own_processes: bool,
    socket: OwnedFd,
    identity: Option<u32>,
    killed: bool,
    /// When it is killed although nobody asked.
    deadline: Instant,
    /// What the warden must know of it.
    charge: Charge,
    /// When it is told.
    due: Option<Instant>,
    /// Whether it was told.
    watched: bool,
    /// The limit that the warden found exceeded.
    limit: Option<Limit>,
}

/// The launcher's state: the main socket, the children's signal, the runs.
struct Loop {
    main: OwnedFd,
    children: SignalFd,
    runs: Vec<Run>,
    cradle: Cradle,
    filtered: bool,
    memory: Memory,
    /// The number of the next run.
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
    match start().and_then(|mut state| state.serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The service logs what its launcher writes here; there is no other way to it any more.
            let _ = io::Write::write_all(&mut io::stderr(), format!("launcher: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Gives up everything a launcher does not need, once, so that no run has to.
fn start() -> io::Result<Loop> {
    sys::close_from(3)?;
    sys::reset_signals();
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_set_mask()?;
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    // Out of the terminal's foreground group: an interrupt typed there must not end runs before the service does.
    let _ = nix::unistd::setsid();
    // Where that is refused, so is looking at keys, or there are none.
    let _ = sys::leave_session_keyring();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    // No attach, no core, and the process directory belongs to root (PR_SET_DUMPABLE(2const)).
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // One descriptor for each run; the runs have limits of their own.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    let main = rustix::stdio::stdin().try_clone_to_owned()?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let (length, _) = wire::receive(main.as_fd(), &mut buffer)?;
    let setup: Setup = wire::decode(buffer.get(..length).unwrap_or_default())?;
    let means = Means::find(setup.root.is_some(), setup.control_groups);
    let (root, namespaces) = match setup.root.as_ref().map(root::enter) {
        None => (None, None),
        Some(Ok(root)) => {
            let offers = root.offers.clone();
            (Some(root), Some(Ok(offers)))
        }
        Some(Err(failure)) => (None, Some(Err(failure.to_string()))),
    };
    let surroundings = if root.is_some() { Surroundings::Namespaces } else { Surroundings::Host };
    let memory = Memory::start(means, surroundings)?;
    let can_change_identity = reduce_capabilities(root.is_some());
    rustix::thread::set_no_new_privs(true)?;
    let filter = match seccomp::load_opening(surroundings, setup.memory_files) {
        Ok(()) if seccomp::is_in_force() => Ok(()),
        Ok(()) => Err("the filter was accepted but refuses nothing".to_owned()),
        Err(error) => Err(format!("the kernel refuses the filter: {error}")),
    };
    let filtered = filter.is_ok();
    let pid = nix::unistd::getpid().as_raw();
    let bound = memory.bound();
    let hello = wire::encode(&Hello { pid, filter, can_change_identity, namespaces, memory: bound })?;
    let mut shown = Vec::new();
    if let Some(root) = &root {
        shown.push(root.directory.as_fd());
        shown.extend(root.proxy.as_ref().map(AsFd::as_fd));
    }
    wire::send(main.as_fd(), &hello, &shown)?;
    let cradle = Cradle::new(root, filtered)?;
    Ok(Loop { main, children, runs: Vec::new(), cradle, filtered, memory, next: 1 })
}

/// Empties the bounding set and keeps what launching needs; tells whether that includes changing identity.
fn reduce_capabilities(mounts: bool) -> bool {
    let mut kept =
        CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL | CapabilitySet::DAC_READ_SEARCH;
    if mounts {
        // SETFCAP: a user namespace in which user 0 has a meaning is made by nobody without it (Linux 5.12).
        kept |= CapabilitySet::SYS_ADMIN | CapabilitySet::SETFCAP;
    }
    let Ok(mut sets) = rustix::thread::capabilities(None) else { return false };
    // Inheritable before the bounding set is empty, which forbids adding to it (capabilities(7)); a run that cannot
    // reach its tree needs this one.
    sets.inheritable = sets.permitted & CapabilitySet::DAC_READ_SEARCH;
    let _ = rustix::thread::set_capabilities(None, sets);
    // Needs a capability that is about to go. Without it the set is left alone, which `no_new_privs` makes harmless.
    for capability in CapabilitySet::all().iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    sets.permitted &= kept;
    sets.effective = sets.permitted;
    let reduced = rustix::thread::set_capabilities(None, sets).is_ok();
    reduced && sets.permitted.contains(CapabilitySet::SETUID | CapabilitySet::SETGID)
}

impl Loop {
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
            if ready.warden {
                let run = self.memory.hear()?;
                self.kill_for_memory(run);
            }
            if ready.children {
                while matches!(self.children.read_signal(), Ok(Some(_))) {}
                self.reap();
            }
            if ready.main {
                match wire::receive_order(self.main.as_fd(), &mut buffer) {
                    Ok(Some(Arrived::Run(request, descriptors))) => self.launch(&request, descriptors),
                    Ok(Some(Arrived::SwapOwner(owner, reply))) => swap_owner(owner, &reply),
                    Ok(None) => break,
                    // Descriptors that did not fit were closed by the kernel; the run's socket with them.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
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
        let warden = self.memory.socket();
        let mut set = vec![
            PollFd::new(&self.main, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::from_borrowed_fd(warden, PollFlags::IN),
        ];
        // A run that was killed already has nothing more to ask.
        let listening: Vec<usize> = (0..self.runs.len())
            .filter(|index| self.runs.get(*index).is_some_and(|run| !run.killed))
            .collect();
        set.extend(
            listening
                .iter()
                .filter_map(|index| self.runs.get(*index))
                .map(|run| PollFd::new(&run.socket, PollFlags::IN)),
        );
        match poll(&mut set, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut happened = set.iter().map(|entry| !entry.revents().is_empty());
        Ok(Ready {
            main: happened.next().unwrap_or(false),
            children: happened.next().unwrap_or(false),
            warden: happened.next().unwrap_or(false),
            runs: listening
                .into_iter()
                .zip(happened)
                .filter(|(_, yes)| *yes)
                .map(|(index, _)| index)
                .collect(),
        })
    }

    /// Tells the warden of runs that have lived for a while; how long until the next one will have.
    fn announce(&mut self) -> Option<Timespec> {
        let is_owed = !self.memory.settle();
        let now = Instant::now();
        for run in &mut self.runs {
            if run.due.is_some_and(|due| due <= now) {
                run.due = None;
                run.watched = true;
                self.memory.watch(run.charge);
            }
        }
        let alive = self.runs.iter().filter(|run| !run.killed);
        let next = alive.flat_map(|run| run.due.into_iter().chain([run.deadline])).min();
        let patience = next.map(|due| due.saturating_duration_since(now)).into_iter();
        let patience = patience.chain(is_owed.then_some(OWED)).min()?;
        Timespec::try_from(patience).ok()
    }

    /// Starts one run, or reports why not.
    fn launch(&mut self, request: &Request, descriptors: Descriptors<OwnedFd>) {
        let number = self.next;
        self.next += 1;
        let group = self.memory.birthplace(number, request.whole);
        let group = group.map_err(|error| (Step::Group, error));
        let spawned = group.and_then(|group| {
            let group = group.as_ref().and_then(Group::birthplace).map(AsFd::as_fd);
            self.cradle.spawn(request, &descriptors, group).map_err(|error| (Step::Clone, error))
        });
        match spawned {
            Ok(pid) => {
                let (socket, identity) = (descriptors.run, request.identity);
                let has_own_processes = matches!(request.place, Place::Mounted { .. });
                let charge = Charge {
                    run: number,
                    first: pid.as_raw(),
                    has_own_processes,
                    identity,
                    has_runaways: !self.filtered,
                    whole: request.whole,
                };
                let now = Instant::now();
                let due = self.memory.patience().map(|patience| now + patience);
                let allowed = Duration::from_millis(request.deadline_ms.min(DEADLINE_MAX_MS)) + GRACE;
                self.runs.push(Run {
                    pid,
                    has_own_processes,
                    socket,
                    identity,
                    killed: false,
                    deadline: now + allowed,
                    charge,
                    due,
                    watched: false,
                    limit: None,
                });
                self.memory.make_ahead(self.next, request.whole);
            }
            Err((step, error)) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let _ = wire::send_message(descriptors.run.as_fd(), &Report::Failed { step, errno });
                self.memory.ended(number, false);
            }
        }
    }

    /// Kills runs whose deadline has passed and that the service, which keeps the time, has not asked to be killed.
    fn kill_overdue(&mut self) {
        let now = Instant::now();
        for index in 0..self.runs.len() {
            if self.runs.get(index).is_some_and(|run| !run.killed && run.deadline <= now) {
                self.kill_run(index);
            }
        }
    }

    /// Kills a run that has more memory than it may.
    fn kill_for_memory(&mut self, number: u64) {
        let found = self.runs.iter().position(|run| run.charge.run == number && !run.killed);
        if let Some(index) = found {
            if let Some(run) = self.runs.get_mut(index) {
                run.limit = Some(Limit::Memory);
            }
            self.kill_run(index);
        }
    }

    /// Kills a run because its socket was closed or asked for it.
    fn kill_run(&mut self, index: usize) {
        let Some(run) = self.runs.get_mut(index) else { return };
        run.killed = true;
        if run.has_own_processes {
            kill::first(run.pid);
            return;
        }
        kill::group(run.pid);
        self.sweep(index);
    }

    /// Kills by uid what a group cannot name, unless another run shares the uid.
    fn sweep(&self, index: usize) {
        let Some(Some(uid)) = self.runs.get(index).map(|run| run.identity) else { return };
        let shared = self
            .runs
            .iter()
            .enumerate()
            .any(|(other, run)| other != index && !run.killed && run.identity == Some(uid));
        if !shared {
            kill::uid(uid);
        }
    }

    /// Collects all dead children: main processes end their run, adopted orphans only vanish.
    fn reap(&mut self) {
        // Looked at first and collected later: until then the number of a main process cannot be given to another,
        // so the group that is killed is the run's.
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let status = match waitid(Id::All, look) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            let Some(pid) = status.pid() else { return };
            let found = self.runs.iter().position(|run| run.pid == pid);
            let is_alone =
                found.and_then(|index| self.runs.get(index)).is_none_or(|run| run.has_own_processes);
            if let (Some(index), false) = (found, is_alone) {
                // Nothing leaves the group where the filter holds, so the group is enough if it can be killed.
                if !kill::group(pid) || !self.filtered {
                    self.sweep(index);
                }
            }
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
            if let Some(index) = found {
                let run = self.runs.swap_remove(index);
                let was_killed = matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _));
                let number = run.charge.run;
                let found = self.memory.verdict(number, run.watched, was_killed && !run.killed);
                let _ = wire::send_message(run.socket.as_fd(), &exited(status, run.limit.or(found)));
                self.memory.ended(number, run.watched);
            }
        }
    }
}

/// Makes a user namespace for the service, or tells why not.
fn swap_owner(owner: u32, reply: &OwnedFd) {
    let _ = match init::swap_owner(owner) {
        Ok(namespace) => wire::send(reply.as_fd(), b"namespace", &[namespace.as_fd()]),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            wire::send_message(reply.as_fd(), &Report::Failed { step: Step::Clone, errno })
        }
    };
}

/// What [`Loop::wait`] found.
struct Ready {
    main: bool,
    children: bool,
    warden: bool,
    /// Runs whose socket was closed or holds a message, in ascending order.
    runs: Vec<usize>,
}

fn exited(status: WaitStatus, limit: Option<Limit>) -> Report {
    match status {
        WaitStatus::Exited(_, code) => Report::Exited { code: Some(code), signal: None, limit },
        WaitStatus::Signaled(_, signal, _) => {
            Report::Exited { code: None, signal: Some(signal as i32), limit }
        }
        _ => Report::Exited { code: None, signal: None, limit },
    }
}

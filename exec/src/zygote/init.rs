//! The first process of a mounted run: it attaches what the run sees, starts the command, and waits.
//!
//! It is process 1 of the run's process namespace, so that the kernel kills all that is left when it ends, however a
//! process tried to get away (pid_namespaces(7)). The command is never process 1 itself: that one ignores signals it
//! has no handler for, and would have to collect the orphans of others.
//!
//! It keeps the run's leases open, and nothing else: a process that waits for a lease waits for the end of the whole
//! run.
//!
//! When the request lets it, and the command has ended by itself and left nothing behind, no process and no file in
//! memory, it stays, for a next command that is to see exactly the same: of the same user in the same tree. Then nothing
//! is mounted, and the process that becomes the command is there already, behind its walls. The command that ran before
//! can have touched neither: it was another user without any capability, and the tree, the home and the temporary
//! directory are the same in any case.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{MountAttrFlags, MoveMountFlags, move_mount};
use rustix::process::{WaitOptions, wait as wait_for_any};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::failure::Failure;
use super::memory::ROUND;
use super::mounting;
use super::passwd::PasswdFile;
use super::root::{self, LauncherNetwork, SHARED_MEMORY, WORKSPACE};
use super::shared_clock::SharedClock;
use crate::step::Step;
use crate::sys;
use crate::wire::{self, Arrived, Descriptors, Report, Request, Sockets, TreeLocation};

/// Size of the memory shared between the processes of a run, as `tmpfs(5)` takes it.
const SHARED_MEMORY_SIZE: &str = "64m";
/// Size of the directory that holds nothing but mount points.
const HOLDER_SIZE: &str = "1m";
/// No program runs from what is only memory.
const NO_PROGRAMS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC.union(MountAttrFlags::MOUNT_ATTR_NODEV);
/// How long a command that the kernel ended by a fault waits for the memory monitor's word: some of its rounds.
const LAST_LOOK: Duration = ROUND.saturating_mul(3);

/// The descriptors and facts that every first process needs of its launcher.
pub(super) struct Surroundings<'a> {
    /// The network in which the first process is, and the way to another.
    pub(super) network: &'a LauncherNetwork,
    /// The launcher itself.
    pub(super) launcher: BorrowedFd<'a>,
    /// The user namespace of the command.
    pub(super) users: Option<BorrowedFd<'a>>,
    /// Whether `/proc` can be mounted.
    pub(super) has_proc: bool,
}

/// Which command of a first process is to be started.
pub(super) enum Start<'a> {
    /// The command of the request.
    First(&'a Request, &'a Descriptors<OwnedFd>),
    /// A command that is not known yet, in the surroundings of the request. Until it has ended, the first process does
    /// nothing but wait.
    Next(&'a Request, &'a Descriptors<OwnedFd>),
}

/// Lives as the first process of a run: prepares what is the same for every run, takes its run from the socket `orders`, with
/// room for a packet, and stays until the end of the run. Does not return.
///
/// `start` starts a command.
pub(super) fn live(
    surroundings: &Surroundings<'_>,
    (orders, buffer): (&OwnedFd, &mut [u8]),
    busy: &SharedClock,
    mut start: impl FnMut(Start<'_>) -> io::Result<Pid>,
) -> ! {
    // Descriptors of other runs in this process would keep the ends of those runs from being noticed.
    let network = [surroundings.network.to_host(), surroundings.network.to_empty()];
    let needed = [Some(surroundings.launcher), Some(orders.as_fd()), surroundings.users];
    let needed = network.into_iter().chain(needed).flatten().map(|fd| fd.as_raw_fd());
    sys::close_all_but(&[0, 1, 2].into_iter().chain(needed).collect::<Vec<_>>());
    let prepared = prepare(surroundings);
    let Ok(Some(Arrived::Run(request, descriptors))) = wire::receive_order(orders.as_fd(), buffer) else {
        // The launcher closed the socket: it needs this process no more.
        sys::exit_now(0)
    };
    // Before there is a command, which may be quick.
    let as_new = Memory::look();
    let started = prepared
        .and_then(|passwd| name_user(&passwd, &request))
        .and_then(|()| attach(&request, &descriptors, surroundings.network))
        .and_then(|()| {
            start(Start::First(&request, &descriptors)).map_err(|error| Failure(Step::Clone, error))
        })
        .and_then(|command| hand_over(command, &request, &descriptors));
    match started {
        Ok(command) => {
            give_up(&request, &descriptors);
            serve(command, &request, &descriptors, as_new, busy, start)
        }
        Err(failure) => {
            failure.report(descriptors.run.as_fd());
            sys::exit_now(127)
        }
    }
}

/// Waits for the end of one command after the other, as long as this process may stay and shared memory is `as_new`.
fn serve(
    mut command: Pid,
    request: &Request,
    descriptors: &Descriptors<OwnedFd>,
    as_new: Option<Memory>,
    busy: &SharedClock,
    mut start: impl FnMut(Start<'_>) -> io::Result<Pid>,
) -> ! {
    let run = descriptors.run.as_fd();
    let mut worked_before = sys::Work::default();
    loop {
        let (code, signal) = wait(command);
        let is_alone = is_alone();
        if !is_alone && busy.is_watched() && matches!(signal, Some(libc::SIGSEGV | libc::SIGBUS)) {
            // Perhaps others wait for memory, and the command is the one that could not wait. Then the launcher ends this
            // process as well, and says why.
            std::thread::sleep(LAST_LOOK);
        }
        if !is_alone && !end_the_rest() {
            sys::exit_now(0)
        }
        let stays = request.may_stay
            && is_alone
            && code.is_some()
            && busy.current_run().is_some()
            && !busy.is_watched()
            && !busy.is_large()
            && as_new.is_some()
            && Memory::look() == as_new;
        if stays {
            busy.end();
        }
        let in_all = sys::work_of_children();
        let worked = in_all.since(std::mem::replace(&mut worked_before, in_all));
        let _ = wire::send_message(run, &Report::Ended { code, signal, stays, worked });
        if !stays {
            sys::exit_now(0)
        }
        // The receiver of the report runs on this processor, as the kernel takes a message for a hand-over (`WF_SYNC`).
        std::thread::yield_now();
        match start(Start::Next(request, descriptors)) {
            Ok(next) => command = next,
            Err(error) => {
                Failure(Step::Clone, error).report(run);
                sys::exit_now(127)
            }
        }
    }
}

/// How much is free of the memory that the processes of a run share as files.
#[derive(PartialEq, Eq)]
struct Memory {
    blocks: u64,
    files: u64,
}

impl Memory {
    fn look() -> Option<Self> {
        let found = rustix::fs::statfs(SHARED_MEMORY).ok()?;
        Some(Self { blocks: found.f_bfree, files: found.f_ffree })
    }
}

/// Gives the caller who takes part in the run a handle on the command.
fn hand_over(command: Pid, request: &Request, descriptors: &Descriptors<OwnedFd>) -> Result<Pid, Failure> {
    if request.is_live
        && let Some(pid) = rustix::process::Pid::from_raw(command.as_raw())
    {
        wire::send_handle(descriptors.run.as_fd(), pid).map_err(|error| Failure(Step::Handle, error))?;
    }
    Ok(command)
}

/// Does what no run changes.
fn prepare(surroundings: &Surroundings<'_>) -> Result<PasswdFile, Failure> {
    die_with(surroundings.launcher).map_err(|error| Failure(Step::ParentDeath, error))?;
    let passwd = PasswdFile::prepare().map_err(|error| Failure(Step::MemoryFiles, error))?;
    let memory = mounting::memory_files("1777", SHARED_MEMORY_SIZE, NO_PROGRAMS);
    memory
        .and_then(|memory| mounting::attach(&memory, SHARED_MEMORY))
        .map_err(|error| Failure(Step::MemoryFiles, error))?;
    if surroundings.has_proc {
        root::own_processes().map_err(|error| Failure(Step::Proc, error))?;
    }
    Ok(passwd)
}

/// Gives the user of the run a name.
fn name_user(passwd: &PasswdFile, request: &Request) -> Result<(), Failure> {
    match request.identity.unwrap_or_else(|| rustix::process::getuid().as_raw()) {
        0 => Ok(()),
        uid => passwd.add(uid).map_err(|error| Failure(Step::MemoryFiles, error)),
    }
}

/// Lets the run see what is its own.
fn attach(
    request: &Request,
    descriptors: &Descriptors<OwnedFd>,
    launchers: &LauncherNetwork,
) -> Result<(), Failure> {
    let TreeLocation::Mounted { at, .. } = &request.place else {
        return Err(Failure(Step::Request, io::ErrorKind::InvalidInput.into()));
    };
    attach_all(at, &descriptors.mounts)?;
    let malformed = || Failure(Step::Request, io::ErrorKind::InvalidInput.into());
    let network = match request.sockets {
        // There the launcher and all such runs have pairs of sockets.
        Sockets::Refused => launchers.to_empty(),
        Sockets::OwnNetwork => Some(descriptors.network.as_ref().ok_or_else(malformed)?.as_fd()),
        Sockets::HostNetwork => launchers.to_host(),
        // Runs in namespaces have the proxy in a network of their own.
        Sockets::Connected => return Err(malformed()),
    };
    if let Some(network) = network {
        nix::sched::setns(network, CloneFlags::CLONE_NEWNET)
            .map_err(|error| Failure(Step::Network, error.into()))?;
    }
    match request.sockets {
        Sockets::Refused => root::cover_processes().map_err(|error| Failure(Step::Proc, error)),
        _ => Ok(()),
    }
}

/// Asks to die with the launcher, and makes sure that it has not died before the question.
///
/// Its number cannot be asked for: it has none in this process namespace (getppid(2)).
pub(super) fn die_with(launcher: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut set = [PollFd::from_borrowed_fd(launcher, PollFlags::IN)];
    match poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Attaches each mount at its path. Skills stand below the workspace, or below an empty directory in its place.
fn attach_all(at: &[String], mounts: &[OwnedFd]) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure(Step::Attach, error);
    let mut workspace = None;
    for (path, mount) in at.iter().zip(mounts) {
        let Some(below) = path.strip_prefix(WORKSPACE).filter(|below| below.starts_with('/')) else {
            mounting::attach(mount, path.as_str()).map_err(failed)?;
            if path == WORKSPACE {
                workspace = Some(mount.try_clone().map_err(failed)?);
            }
            continue;
        };
        let holder = match &workspace {
            Some(holder) => holder,
            None => {
                let holder = mounting::memory_files("0755", HOLDER_SIZE, NO_PROGRAMS)
                    .and_then(|holder| mounting::attach(&holder, WORKSPACE).map(|()| holder))
                    .map_err(|error| Failure(Step::MemoryFiles, error))?;
                make_dirs(&holder, below).map_err(failed)?;
                workspace.insert(holder)
            }
        };
        let target = walk(holder, below).map_err(failed)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(mount, "", &target, "", flags).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

fn make_dirs(holder: &OwnedFd, below: &str) -> io::Result<()> {
    let mut path = String::from(".");
    for name in below.split('/').filter(|name| !name.is_empty()) {
        path = format!("{path}/{name}");
        rustix::fs::mkdirat(holder, &path, Mode::from_raw_mode(0o755))?;
    }
    Ok(())
}

/// Opens a directory below `holder` step by step, through no link: the user may have put one there.
fn walk(holder: &OwnedFd, below: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(holder, ".", flags, Mode::empty())?;
    for name in below.split('/').filter(|name| !name.is_empty()) {
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(directory)
}

/// Gives up what this process neither needs nor may hold from now on: the command could try to get at it.
fn give_up(request: &Request, descriptors: &Descriptors<OwnedFd>) {
    let mut needed = CapabilitySet::KILL;
    if request.may_stay {
        needed |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    let none = CapabilitySet::empty();
    let permitted = rustix::thread::capabilities(None).map_or(none, |sets| sets.permitted & needed);
    let _ = rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: permitted, permitted, inheritable: none },
    );
    let walls = descriptors.walls.as_ref().filter(|_| request.may_stay);
    let kept = [&descriptors.run].into_iter().chain(walls).chain(&descriptors.leases);
    let mut kept: Vec<_> = kept.map(AsRawFd::as_raw_fd).collect();
    if request.may_stay {
        // Descriptors 0 to 2, on which the launcher left nothing.
        kept.extend([0, 1, 2]);
    }
    sys::close_all_but(&kept);
    let _ = rustix::process::chdir("/");
}

/// Waits for the end of the command: its exit code, or the signal that killed it.
///
/// Everything else that is left is ended by this process. The kernel would do it too, once this process is gone; but
/// taking the mounts down comes before that and waits for all processors (`synchronize_rcu`). So the answer leaves
/// first, and with the same promise.
fn wait(command: Pid) -> (Option<i32>, Option<i32>) {
    loop {
        match wait_for_any(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid() == command.as_raw() => {
                return (status.exit_status(), status.terminating_signal());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return (None, None),
        }
    }
}

/// Collects what is dead already; tells whether there is no other process in the namespace.
fn is_alone() -> bool {
    loop {
        match wait_for_any(WaitOptions::NOHANG) {
            Ok(None) => return false,
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            // Without children there may be no other process at all: a process that loses its parent becomes a child.
            Err(_) => return kill(Pid::from_raw(-1), None) == Err(Errno::ESRCH),
        }
    }
}

/// Kills every other process of the namespace and collects them all; tells whether none is left.
fn end_the_rest() -> bool {
    loop {
        // All but this process itself (kill(2)). One that is being made meanwhile is killed or never comes to be.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        match wait_for_any(WaitOptions::empty()) {
            // A process hands its children on before it can be collected, so that there are none anywhere.
            Err(rustix::io::Errno::CHILD) => return true,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

//! [`Users`]: user namespaces in which the processes of each run are counted apart.
//!
//! Without root all runs have the uid of the service, and the kernel counts the processes of a uid against the limit of
//! each (`RLIMIT_NPROC`): a run that makes as many as it may would keep all others from making any. Since Linux 5.14 the
//! kernel counts for each user namespace. So the command of a run enters one that no other run is in. The namespace maps
//! the one user to itself and owns nothing.
//!
//! Making one takes a process, so they are kept for later runs. What is left in one after its last process is nothing.
//!
//! # References
//! `user_namespaces(7)`, `getrlimit(2)`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::DumpableBehavior;
use rustix::thread::CapabilitySet;

use crate::sys;
use crate::wire;

/// Namespaces kept for runs to come; more runs than that at once each make one.
const IDLE_MAX: usize = 64;
/// Processes that the trial may have; there are more of the uid, the service and the launcher among them.
const TRIAL_PROCESSES: u64 = 2;

/// The namespaces that no run is in.
#[derive(Debug)]
pub(super) struct Users {
    idle: Vec<OwnedFd>,
}

impl Users {
    /// Makes a first namespace and tries whether processes in it are counted apart; why not.
    pub(super) fn start() -> Result<Self, String> {
        let failed = |error: io::Error| format!("processes of runs are not counted apart: {error}");
        let namespace = make().map_err(failed)?;
        counts_apart(namespace.as_fd()).map_err(failed)?;
        Ok(Self { idle: vec![namespace] })
    }

    /// A namespace for one run.
    ///
    /// # Errors
    /// As `clone(2)`: `ENOSPC` at a limit on namespaces, `EAGAIN` at one on processes.
    pub(super) fn lend(&mut self) -> io::Result<OwnedFd> {
        self.idle.pop().map_or_else(make, Ok)
    }

    /// Takes back the namespace of a run of which no process is left.
    pub(super) fn take_back(&mut self, namespace: OwnedFd) {
        if self.idle.len() < IDLE_MAX {
            self.idle.push(namespace);
        }
    }
}

/// Moves this process into `namespace`, where it is the only user and gives up what the namespace grants it at once,
/// but for what [`identify`](super::child) takes from every process.
///
/// # Errors
/// As `setns(2)`.
pub(super) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    setns(namespace, CloneFlags::CLONE_NEWUSER)?;
    for capability in CapabilitySet::all().iter() {
        // Unknown to this kernel, perhaps.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    Ok(())
}

/// Makes a namespace in which this user is the only one and has the same number.
fn make() -> io::Result<OwnedFd> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (ours, theirs) = wire::packet_sockets()?;
    let Some(child) = sys::fork_into(CloneFlags::CLONE_NEWUSER, None)? else {
        let offered = map_own(user, group).and_then(|()| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let namespace = openat(CWD, "/proc/self/ns/user", flags, Mode::empty())?;
            wire::send(theirs.as_fd(), b"namespace", &[namespace.as_fd()])
        });
        sys::exit_now(offered.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0));
    };
    drop(theirs);
    let mut buffer = [0; 16];
    let received = wire::receive(ours.as_fd(), &mut buffer);
    ended(child)?;
    received?.1.into_iter().next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn map_own(user: u32, group: u32) -> io::Result<()> {
    // Of a copy of the launcher: its files in `/proc` are root's otherwise (proc(5), "Overview").
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1\n")),
        ("gid_map", format!("{group} {group} 1\n")),
    ] {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(CWD, format!("/proc/self/{file}"), flags, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes())?;
    }
    Ok(())
}

/// Makes a process in `namespace` under a limit that all processes of the uid together exceed.
fn counts_apart(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let Some(child) = sys::fork_single_threaded()? else {
        let tried = enter(namespace).and_then(|()| {
            let (_, most) = getrlimit(Resource::RLIMIT_NPROC)?;
            setrlimit(Resource::RLIMIT_NPROC, TRIAL_PROCESSES.min(most), most)?;
            match sys::fork_single_threaded()? {
                None => sys::exit_now(0),
                Some(child) => ended(child),
            }
        });
        sys::exit_now(tried.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0));
    };
    ended(child)
}

/// Waits for a process that ends with an `errno`, or 0.
fn ended(child: Pid) -> io::Result<()> {
    match waitpid(child, None)? {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

//! A user namespace in which the service and the owner of a sandbox have changed places, for idmapped mounts.
//!
//! The kernel makes user namespaces only with processes in them, and takes their maps from outside.
//!
//! # References
//! `user_namespaces(7)`; Documentation/filesystems/idmappings.rst of Linux.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::CloneFlags;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::step::Step;
use crate::sys;
use crate::wire::{self, Report};

/// Makes a user namespace for the service, or tells why not.
pub(super) fn answer(owner: u32, reply: &OwnedFd) {
    let made = swap_owner(owner);
    let _ = match &made {
        Ok((namespace, _)) => wire::send(reply.as_fd(), b"namespace", &[namespace.as_fd()]),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            wire::send_message(reply.as_fd(), &Report::Failed { step: Step::Clone, errno })
        }
    };
    // While the service uses the namespace.
    if let Ok((_, maker)) = made {
        maker.end();
    }
}

/// The process with which a namespace was made.
struct Maker {
    process: Pid,
    /// It lives until this is closed.
    socket: OwnedFd,
}

impl Maker {
    fn end(self) {
        drop(self.socket);
        let _ = waitpid(self.process, None);
    }
}

/// Makes the user namespace in which this process's own id and `owner` change places, and hands it out.
///
/// # Errors
/// As `clone(2)` and `user_namespaces(7)`: `EPERM` without `CAP_SETUID`, `CAP_SETGID` and `CAP_SETFCAP`.
fn swap_owner(owner: u32) -> io::Result<(OwnedFd, Maker)> {
    let own = rustix::process::geteuid().as_raw();
    let (ours, theirs) = wire::packet_sockets()?;
    let Some(process) = sys::fork_into(CloneFlags::CLONE_NEWUSER, None)? else {
        // The end of the other half is what this process waits for: it must not hold it open itself.
        drop(ours);
        let Err(_) = offer_namespace(&theirs);
        sys::exit_now(0)
    };
    drop(theirs);
    let maker = Maker { process, socket: ours };
    match receive_namespace(&maker.socket, process, own, owner) {
        Ok(namespace) => Ok((namespace, maker)),
        Err(error) => {
            maker.end();
            Err(error)
        }
    }
}

/// In the new namespace: hands out a descriptor of it, and lives until it is no longer needed.
fn offer_namespace(socket: &OwnedFd) -> io::Result<Infallible> {
    let namespace = rustix::fs::open("/proc/self/ns/user", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    wire::send(socket.as_fd(), b"namespace", &[namespace.as_fd()])?;
    let mut nothing = [0; 1];
    while rustix::io::read(socket, &mut nothing)? > 0 {}
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn receive_namespace(socket: &OwnedFd, child: Pid, own: u32, owner: u32) -> io::Result<OwnedFd> {
    let mut buffer = [0; 16];
    let (_, attached) = wire::receive(socket.as_fd(), &mut buffer)?;
    let namespace = attached.into_iter().next().ok_or(io::ErrorKind::UnexpectedEof)?;
    for kind in ["uid_map", "gid_map"] {
        // Both lines, or the file system of an overlay could not make what belongs to the service.
        let map =
            openat(CWD, format!("/proc/{child}/{kind}"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&map, format!("{own} {owner} 1\n{owner} {own} 1\n").as_bytes())?;
    }
    Ok(namespace)
}

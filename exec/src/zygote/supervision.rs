//! Whether the calls of a run can be answered by another process here, found out by doing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::{self, Answer};
use crate::walls::seccomp;
use crate::wire;

/// How long each step may take.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Has a call of a child answered; why it cannot be.
///
/// To be called when `no_new_privs` is set.
pub(super) fn probe() -> Result<(), String> {
    let failed = |error: io::Error| format!("no system call can be answered for a run: {error}");
    let (ours, theirs) = wire::packet_sockets().map_err(failed)?;
    let Some(child) = sys::fork_single_threaded().map_err(failed)? else {
        drop(ours);
        sys::exit_now(match ask(theirs.as_fd()) {
            Ok(true) => 0,
            Ok(false) => libc::EPROTO,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        })
    };
    drop(theirs);
    let answered = reply(&ours);
    drop(ours);
    if answered.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        let _ = kill(child, Signal::SIGKILL);
    }
    match waitpid(child, None) {
        Ok(WaitStatus::Exited(_, 0)) => answered.map_err(failed),
        Ok(WaitStatus::Exited(_, errno)) => Err(failed(io::Error::from_raw_os_error(errno))),
        _ => Err(failed(answered.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))),
    }
}

/// The child: makes two calls that wait for their answers; tells whether those were the right ones.
fn ask(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let number = u32::try_from(libc::SYS_getsid).map_err(io::Error::other)?;
    let expected = nix::unistd::getsid(None)?;
    let listener = sys::load_seccomp_listening(&seccomp::asking(number))?;
    wire::send(socket, b"listener", &[listener.as_fd()])?;
    drop(listener);
    Ok(nix::unistd::getsid(None) == Ok(expected) && nix::unistd::getsid(None) == Err(Errno::EXDEV))
}

/// The launcher: leaves the first call to the kernel, and fails the second.
fn reply(socket: &OwnedFd) -> io::Result<()> {
    wait(socket.as_fd())?;
    let mut buffer = [0; 16];
    let (_, attached) = wire::receive(socket.as_fd(), &mut buffer)?;
    let listener = attached.into_iter().next().ok_or(io::ErrorKind::UnexpectedEof)?;
    for answer in [Answer::Continue, Answer::Failed(libc::EXDEV)] {
        wait(listener.as_fd())?;
        let call = sys::receive_notification(listener.as_fd())?;
        sys::answer(listener.as_fd(), call.id, answer)?;
    }
    Ok(())
}

fn wait(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match poll(&mut set, Some(&PATIENCE))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ if set.iter().any(|entry| entry.revents().contains(PollFlags::IN)) => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

//! System calls of a run that another process answers (seccomp_unotify(2)), which no safe crate offers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::check;

/// Wake the other side on this processor (linux/seccomp.h, Linux 6.6).
const SYNC_WAKE_UP: u64 = 1;

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Names the call to the kernel.
    pub(crate) id: u64,
    /// The thread that makes it, as this process numbers it.
    pub(crate) thread: i32,
    /// The number of the call.
    pub(crate) number: i32,
    /// Its arguments.
    pub(crate) arguments: [u64; 6],
}

/// The answer to the caller of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call was made by another process, with success.
    Made,
    /// The caller got a file as this descriptor, which the call returns.
    Opened(u32),
    /// The call fails with this `errno`.
    Failed(i32),
    /// The kernel makes the call. Only for calls of which nothing behind a pointer was judged: the caller can change
    /// that meanwhile.
    Continue,
}

/// Loads one seccomp filter as [`load_seccomp`](super::load_seccomp) does; the descriptor on which its calls arrive.
///
/// # Errors
/// As `seccomp(2)`: `EBUSY` where a filter of this process has such a descriptor already, `EINVAL` before Linux 5.0.
pub(crate) fn load_seccomp_listening(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let header = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let load = |flags: libc::c_ulong| {
        // SAFETY: `header` points to `length` instructions that outlive the call; the kernel copies and checks them and
        // never writes through the pointer.
        check(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                std::ptr::from_ref(&header),
            )
        })
    };
    let listening = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With the second flag (Linux 5.19) only a deadly signal interrupts a call that is being answered.
    let listener = match load(listening | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => load(listening),
        loaded => loaded,
    }?;
    let listener = RawFd::try_from(listener).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us; it closes itself on `execve`.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// Lets the threads on both sides of a listener hand the processor to each other, where the kernel can.
pub(crate) fn wake_in_turn(listener: BorrowedFd<'_>) {
    // SAFETY: an open descriptor and an integer. Older kernels refuse the command.
    let _ = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Takes the next call that waits for its answer. Waits for one unless `poll(2)` has just told of it.
///
/// # Errors
/// As `ioctl(2)`: `ENOENT` when the caller was killed meanwhile, `EINTR`.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut found = libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] },
    };
    // SAFETY: the kernel wants the structure zeroed, and writes as many bytes as the command's number says it has.
    check(i64::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, std::ptr::from_mut(&mut found))
    }))?;
    Ok(Notification {
        id: found.id,
        thread: i32::try_from(found.pid).map_err(io::Error::other)?,
        number: found.data.nr,
        arguments: found.data.args,
    })
}

/// Tells whether a call still waits for its answer, so that its thread has not ended and its number is not another's.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads eight bytes, which outlive the call.
    let valid = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, std::ptr::from_ref(&id))
    };
    valid == 0
}

/// Gives the caller of a waiting call `file` as its descriptor `number`, in place of the file that it has open there.
///
/// # Errors
/// As `ioctl(2)`: `ENOENT` when the caller was killed meanwhile, `EBADF` where `number` is beyond what it may have open,
/// `EINVAL` before Linux 5.9.
pub(crate) fn put_in_place(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    number: u32,
    close_on_exec: bool,
) -> io::Result<()> {
    add(listener, id, file, Some(number), close_on_exec).map(drop)
}

/// Gives the caller of a waiting call `file` as its lowest free descriptor, which this returns.
///
/// # Errors
/// As `ioctl(2)`: `ENOENT` when the caller was killed meanwhile, `EMFILE` where it has as many open as it may have,
/// `EINVAL` before Linux 5.9.
pub(crate) fn hand_over(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<u32> {
    add(listener, id, file, None, close_on_exec)
}

fn add(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    number: Option<u32>,
    close_on_exec: bool,
) -> io::Result<u32> {
    let added = libc::seccomp_notif_addfd {
        id,
        flags: if number.is_some() { libc::SECCOMP_ADDFD_FLAG_SETFD as u32 } else { 0 },
        srcfd: u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?,
        newfd: number.unwrap_or(0),
        newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the kernel reads as many bytes as the command's number says, which is the size of the structure.
    let number = check(i64::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, std::ptr::from_ref(&added))
    }))?;
    u32::try_from(number).map_err(io::Error::other)
}

/// Answers a call.
///
/// # Errors
/// As `ioctl(2)`: `ENOENT` when its caller was interrupted or killed meanwhile.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Made => (0, 0, 0),
        Answer::Opened(number) => (i64::from(number), 0, 0),
        Answer::Failed(errno) => (0, -errno, 0),
        Answer::Continue => (0, 0, u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(0)),
    };
    let response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the kernel reads as many bytes as the command's number says, which is the size of the structure.
    check(i64::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, std::ptr::from_ref(&response))
    }))
    .map(drop)
}

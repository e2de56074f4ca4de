//! The system calls no safe crate offers: the only place with `unsafe` in the workspace.
//!
//! One call per function, each with the reason it is sound. Everything here runs either in the service before a
//! run, or in the single-threaded launcher and the processes it forks.
#![allow(unsafe_code)] // raw system calls: fork, _exit, mmap, seccomp, landlock, close_range, mount_setattr and quotactl_fd have no safe wrapper

mod allocator;
mod mount;
mod notify;
mod program;
mod quota;
mod scheduling;
mod shared;
mod wait;

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sched::CloneFlags;
use nix::unistd::{ForkResult, Pid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use allocator::{return_free_memory, return_large_allocations};
pub(crate) use mount::{Extent, MountAttributes, fork_into, map_owners, raise_loopback, restrict_mount};
pub(crate) use notify::{
    Answer, Notification, answer, hand_over, is_waiting, load_seccomp_listening, put_in_place,
    receive_notification, wake_in_turn,
};
pub(crate) use program::Program;
pub(crate) use quota::{
    FileAttributes, QuotaBlock, file_attributes, project_quota, set_file_attributes, set_project_quota,
};
pub use scheduling::{begin_as_command, take_short_slices, work_for_long};
pub(crate) use scheduling::{
    can_step_aside, find_processors, go_last, go_last_as_group, go_last_behind_filter, go_on_as_command,
    leave_processors_to_others, on_processors_of, step_aside, step_back, take_spare_processor,
};
pub(crate) use shared::Shared;
pub(crate) use wait::{Dead, Work, find_dead, work_of_children};

/// Makes a second process like this one; `None` in the new process.
///
/// # Errors
/// As `fork(2)`: `EAGAIN` at a limit on processes, `ENOMEM`.
pub(crate) fn fork_single_threaded() -> io::Result<Option<Pid>> {
    // SAFETY: the launcher, which never starts a thread, and the service before it starts one call this, so no lock can be
    // held by a thread that the child lacks and the child may allocate.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Makes a second process that runs `child` on `stack`, in the memory of this one, which waits until it has executed
/// a program or is gone.
///
/// Nothing is copied, so it costs the same however large the caller is. What `child` allocates and does not free
/// stays allocated here.
///
/// # Errors
/// As `clone(2)`: `EAGAIN` at a limit on processes, `ENOMEM`.
pub(crate) fn spawn_in_our_memory<'a>(
    stack: &mut [u8],
    child: impl FnOnce() -> Infallible + 'a,
) -> io::Result<Pid> {
    let mut child = Some(child);
    let entry: nix::sched::CloneCb<'a> = Box::new(move || match child.take() {
        Some(child) => match child() {},
        None => exit_now(127),
    });
    // SAFETY: `CLONE_VFORK` suspends this process, which has one thread, while the child uses its memory, so no other
    // thread touches that memory; `child` never returns or unwinds into our frames, because it ends in `execve` or
    // `_exit` and a panic at the edge of the C callback aborts; and `stack` is far larger than its few shallow calls
    // need.
    let pid = unsafe {
        nix::sched::clone(entry, stack, CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK, Some(libc::SIGCHLD))
    };
    Ok(pid?)
}

/// Makes a second process that runs `child` on `stack`, in the memory of this one, which goes on at once. It ends with the
/// code that `child` returns, if it does.
///
/// Costs as little as [`spawn_in_our_memory`]. Until the new process has executed a program or is gone, this one must
/// not allocate, free, or touch what `child` uses, which must stay where it is; see the safety comment. What `child`
/// allocates stays allocated here.
///
/// # Errors
/// As `clone(2)`: `EAGAIN` at a limit on processes, `ENOMEM`.
pub(crate) fn spawn_beside<F: FnOnce() -> i32>(stack: &mut [u8], child: F) -> io::Result<Pid> {
    extern "C" fn enter<F: FnOnce() -> i32>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `spawn_beside` passes a pointer to an `F` that no other code reads.
        let child = unsafe { std::ptr::read(child.cast::<F>()) };
        exit_now(child())
    }
    let size = size_of::<F>();
    let Some(room) = stack.len().checked_sub(size + align_of::<F>()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // The closure lies above what the new process uses as its stack, because our own frame may be gone before it begins.
    let end = stack.as_mut_ptr().wrapping_add(room);
    let place = end.wrapping_add(end.align_offset(align_of::<F>())).cast::<F>();
    let top = end.wrapping_sub(end.addr() % STACK_ALIGNMENT);
    // SAFETY: `place` is aligned, inside `stack`, and large enough. The caller is a process with one thread that only
    // waits for the new one from then on, so no other thread touches the memory that both use, the allocator's
    // included; `child` never returns or unwinds into our frames, because `enter` ends in `_exit` and a panic at the
    // edge of the C callback aborts; and `stack` is far larger than its few shallow calls need.
    let pid = unsafe {
        place.write(child);
        libc::clone(enter::<F>, top.cast(), libc::CLONE_VM | libc::SIGCHLD, place.cast())
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pid::from_raw(pid))
}

// The process that [`spawn_beside`] makes shares the thread-local memory of its parent, the C library's `errno` in it, so
// the parent waits by calls that do not touch it: those of rustix, as long as no crate of the build asks for its feature
// `use-libc`. That backend has errors of another size.
const _: () = assert!(
    size_of::<rustix::io::Errno>() == size_of::<u16>(),
    "rustix is built with `use-libc`, with which `spawn_beside` is unsound: find the dependency that asks for it"
);

/// How the processors we know want a stack aligned, in bytes.
const STACK_ALIGNMENT: usize = 16;

/// Ends this process at once: no destructors, no exit handlers, which belong to the process it was forked from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Marks every file descriptor from `first` up to be closed by `execve`.
///
/// # Errors
/// As `close_range(2)`: `ENOSYS` before Linux 5.9, `EINVAL` before 5.11.
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: integers only; the flag marks descriptors and closes none, so no owner is left with a stale number.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) }).map(drop)
}

/// Closes every file descriptor from `first` up.
///
/// # Errors
/// As `close_range(2)`: `ENOSYS` before Linux 5.9.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: called once, as the launcher's first act, before it owns any descriptor numbered `first` or above.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Closes every file descriptor but `kept`, as far as the kernel can.
///
/// For a process that goes on without ever using, or dropping, an owner of another descriptor.
pub(crate) fn close_all_but(kept: &[RawFd]) {
    let mut kept: Vec<u32> = kept.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if fd > first {
            // SAFETY: integers only; no code uses the closed descriptors any more: the caller promises to go on with
            // `kept` alone and to end in `exit_now`.
            let _ = unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = fd.saturating_add(1);
    }
}

/// Loads one seccomp filter for this thread and all it forks and executes.
///
/// # Errors
/// As `seccomp(2)`: `EACCES` without `no_new_privs`, `EINVAL` for a malformed program or a kernel without filters.
pub(crate) fn load_seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let header = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `header` points to `length` instructions that outlive the call; the kernel copies and checks them and
    // never writes through the pointer.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&header))
    })
    .map(drop)
}

/// The Landlock ABI of this kernel, 1 or more.
///
/// # Errors
/// As `landlock_create_ruleset(2)`: `ENOSYS` where the kernel lacks it, `EOPNOTSUPP` where it is off at boot.
pub(crate) fn landlock_abi() -> io::Result<u32> {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with the version flag, a null attribute of size 0 is what the call asks for.
    let abi = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    })?;
    Ok(u32::try_from(abi).unwrap_or(0))
}

/// Puts this thread, and all it forks and executes, under a Landlock ruleset.
///
/// # Errors
/// As `landlock_restrict_self(2)`: `EPERM` without `no_new_privs`, `E2BIG` after 16 layers.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an open descriptor and a zero flag; the kernel reads nothing of ours.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(drop)
}

/// Leaves the session keyring that this process was started with for an empty one that no other process can read.
///
/// Runs inherit the launcher's, and a container's keyring bears its name (`session-keyring(7)`).
///
/// # Errors
/// As `keyctl(2)`: `EPERM` where a container's filter refuses it, `ENOSYS` in a kernel without keys.
pub(crate) fn leave_session_keyring() -> io::Result<()> {
    // From linux/keyctl.h.
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    const SETPERM: libc::c_long = 5;
    let anonymous = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for an anonymous keyring; nothing of ours is read or written.
    let own = check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) })?;
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_keyctl, SETPERM, own, 0) }).map(drop)
}

/// Sends a signal to the process group that the process behind `pidfd` leads; before Linux 6.9, to the process alone.
///
/// # Errors
/// As `pidfd_send_signal(2)`: `ESRCH` when no process is left, `EPERM`.
pub(crate) fn signal_group(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    const PROCESS_GROUP: libc::c_uint = 4; // PIDFD_SIGNAL_PROCESS_GROUP, linux/pidfd.h
    let send = |flags: libc::c_uint| {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: an open descriptor and integers; a null `info` asks the kernel to fill in its own.
        check(unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, nothing, flags)
        })
    };
    match send(PROCESS_GROUP) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => send(0).map(drop),
        sent => sent.map(drop),
    }
}

/// Gives every signal its default action again, so that nothing the service ignores is ignored in a run.
pub(crate) fn reset_signals() {
    // 31 ordinary signals, and the real-time ones up to 64 (signal(7)).
    for number in 1..=64 {
        // SAFETY: the default action is no function of ours. KILL, STOP and the C library's own two are refused
        // with `EINVAL`, which is what we want for them.
        let _ = unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Gives an open descriptor to the event loop of the tokio runtime we run in.
///
/// # Errors
/// As `epoll_ctl(2)`: `ENOSPC` at the user's limit on watches.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open file until it is dropped, and `AsyncFd` drops it after taking it
    // out of the loop.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

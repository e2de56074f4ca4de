//! How children ended, by any signal: safe wrappers know those with a name alone, and refuse to tell of a child that one
//! of the others (real-time signals, signal(7)) has killed.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) pid: Pid,
    /// The exit code, when it exited.
    pub(crate) code: Option<i32>,
    /// The signal, when one killed it.
    pub(crate) signal: Option<i32>,
}

/// For how long the children that this process has collected used a processor, and theirs (getrusage(2)).
pub(crate) fn work_of_children() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Duration::ZERO };
    let duration = |time: TimeVal| {
        let microseconds = time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_usec());
        Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
    };
    duration(usage.user_time()) + duration(usage.system_time())
}

/// Finds a child that has ended and leaves it as it is; `None` when there is none.
///
/// # Errors
/// As `waitid(2)`: `ECHILD` without children.
pub(crate) fn find_dead() -> io::Result<Option<Dead>> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes at most one `siginfo_t` through a pointer to room for one.
    super::check(libc::c_long::from(unsafe { libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), options) }))?;
    // SAFETY: all zeros, as it was before the call, are a valid value, too.
    let found = unsafe { found.assume_init() };
    // SAFETY: these are the fields of what `waitid` writes; zeros when there was nothing (waitid(2)).
    let (pid, status) = unsafe { (found.si_pid(), found.si_status()) };
    let (code, signal) = match found.si_code {
        libc::CLD_EXITED => (Some(status), None),
        _ => (None, Some(status)),
    };
    Ok((pid != 0).then(|| Dead { pid: Pid::from_raw(pid), code, signal }))
}

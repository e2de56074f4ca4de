//! How children ended, by any signal: safe wrappers know those with a name alone, and refuse to tell of a child that one
//! of the others (real-time signals, signal(7)) has killed.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) pid: Pid,
    /// The exit code, when it exited.
    pub(crate) code: Option<i32>,
    /// The signal, when one killed it.
    pub(crate) signal: Option<i32>,
}

/// What processes have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// For how long they used a processor.
    pub(crate) lasted: Duration,
    /// How much they wrote to disks, in blocks of 512 bytes.
    pub(crate) blocks: u64,
}

impl Work {
    /// What was done since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            lasted: self.lasted.saturating_sub(before.lasted),
            blocks: self.blocks.saturating_sub(before.blocks),
        }
    }
}

/// The work of the children that this process has collected, and of theirs (getrusage(2)).
pub(crate) fn work_of_children() -> Work {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Work::default() };
    let duration = |time: TimeVal| {
        let microseconds = time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_usec());
        Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
    };
    Work {
        lasted: duration(usage.user_time()) + duration(usage.system_time()),
        blocks: u64::try_from(usage.block_writes()).unwrap_or(0),
    }
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

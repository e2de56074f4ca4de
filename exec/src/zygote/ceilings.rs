//! The resource limits of a command's own process (setrlimit(2)), and its claim to the processors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{Mode, OFlags};

use crate::sys::{self, COMMAND_SLICE, LONG_NICENESS, Sharing};
use crate::wire::Ceilings;

/// How much a command gives way to the service (setpriority(2)): with the default of 0, other users' requests would wait for
/// whole slices of the commands' time.
const NICENESS: i32 = LONG_NICENESS;
/// The same as text, for the session of the command where the kernel groups processes by session (sched(7), "The autogroup
/// feature").
const SESSION: &str = "/proc/self/autogroup";
const SESSION_NICENESS: &[u8] = b"10";
/// The same for a session that is to leave the processors to others. The kernel has no session that only runs when no other wants to.
const LAST_SESSION_NICENESS: &[u8] = b"19";

/// Locked memory of a process, in bytes.
const LOCKED_BYTES: u64 = 64 * 1024;
/// Signals that may be queued for one uid.
const PENDING_SIGNALS: u64 = 256;

/// Lets the service, or everything else (`to_all`), go before the command, where both want a processor; `is_aside` when the
/// command leaves one to others besides. Only a courtesy to other users: a kernel that refuses it is as fair as it is by itself.
///
/// Allocates nothing.
pub(super) fn give_way(to_all: bool, is_aside: bool) {
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let _ = sys::share_processors(0, Sharing::Batch, NICENESS, COMMAND_SLICE);
    if to_all {
        sys::go_last(0);
    }
    match is_aside {
        true => sys::step_aside(0),
        // The launcher may use fewer.
        false => sys::step_back(0),
    }
}

/// The same for the session of the command, which has just got one of its own.
///
/// Allocates nothing.
pub(super) fn give_way_as_session(to_all: bool) {
    if let Ok(session) = rustix::fs::open(SESSION, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&session, if to_all { LAST_SESSION_NICENESS } else { SESSION_NICENESS });
    }
}

/// Limits what the steps before `execve` themselves may run into.
pub(super) fn limit_space(ceilings: &Ceilings) -> nix::Result<()> {
    lower(&[(Resource::RLIMIT_AS, ceilings.memory_bytes), (Resource::RLIMIT_NOFILE, ceilings.open_files)])
}

/// Sets every other limit.
pub(super) fn limit(ceilings: &Ceilings) -> nix::Result<()> {
    lower(&[
        (Resource::RLIMIT_NPROC, ceilings.processes),
        (Resource::RLIMIT_FSIZE, ceilings.file_bytes),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_MEMLOCK, LOCKED_BYTES),
        (Resource::RLIMIT_MSGQUEUE, 0),
        (Resource::RLIMIT_SIGPENDING, PENDING_SIGNALS),
    ])?;
    // XCPU at the soft limit, which a program can report; KILL a second later, which it cannot ignore.
    let (_, most) = getrlimit(Resource::RLIMIT_CPU)?;
    let seconds = ceilings.cpu_seconds;
    setrlimit(Resource::RLIMIT_CPU, seconds.min(most), seconds.saturating_add(1).min(most))
}

/// Sets limits, never above what this process itself may have.
fn lower(wanted: &[(Resource, u64)]) -> nix::Result<()> {
    for (resource, value) in wanted {
        let (_, most) = getrlimit(*resource)?;
        setrlimit(*resource, (*value).min(most), (*value).min(most))?;
    }
    Ok(())
}

//! The resource limits of a command's own process (setrlimit(2)), and its claim to the processors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{Mode, OFlags};

use crate::sys;
use crate::wire::{Ceilings, Request};

/// How much the session of a command gives way to the service, where the kernel groups processes by session (sched(7), "The autogroup
/// feature").
const SESSION: &str = "/proc/self/autogroup";
const SESSION_NICENESS: &[u8] = b"10";
/// The same for a session that is to leave the processors to others. The kernel has no session that only runs when no other wants to.
const LAST_SESSION_NICENESS: &[u8] = b"19";

/// Locked memory of a process, in bytes.
const LOCKED_BYTES: u64 = 64 * 1024;
/// Signals that may be queued for one uid.
const PENDING_SIGNALS: u64 = 256;

/// Lets the service, or everything else (`to_all`), go before the command, where both want a processor. With a niceness of 0, other
/// users' requests would wait for whole slices of the commands' time. Only a courtesy to other users: a kernel that refuses it is as
/// fair as it is by itself.
///
/// Allocates nothing.
pub(super) fn give_way(request: &Request, to_all: bool) {
    begin(request.is_watched);
    if to_all {
        sys::go_last(0);
    }
}

/// Lets the command use all processors, or all but that which is left to others, of which the launcher may use fewer.
///
/// Allocates nothing.
pub(super) fn place(request: &Request) {
    match request.is_aside {
        true => sys::step_aside(0),
        false => sys::step_back(0),
    }
}

/// A command at which nothing would find that it is at work for long begins like one for which that was found.
fn begin(is_watched: bool) {
    match is_watched {
        true => sys::begin_as_command(),
        false => sys::go_on_as_command(0),
    }
}

/// [`give_way`] for the session of the command, which has just got one of its own.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_nothing_looks_at_has_no_better_claim_when_it_begins() {
        let niceness = |is_watched| {
            let begun = move || {
                begin(is_watched);
                rustix::process::getpriority_process(None).unwrap()
            };
            std::thread::spawn(begun).join().unwrap()
        };
        assert_eq!([true, false].map(niceness), [5, 10]);
    }
}

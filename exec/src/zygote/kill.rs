//! How a whole tree of processes dies.
//!
//! The filter pretends `setsid` and `setpgid`, so all descendants of a run are in the group of its main process, and
//! signalling a group is atomic against `fork(2)`: a process forked meanwhile is either signalled or not created.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::sys;

/// Kills every process of the group of `leader`, which has not been collected yet; tells whether it could.
///
/// Root without `CAP_KILL`, as in a hardened container, cannot: only the uid of the run can.
pub(crate) fn group(leader: Pid) -> bool {
    // It may have no group yet, and has made no process then.
    let _ = kill(leader, Signal::SIGKILL);
    // `ESRCH`: all gone.
    killpg(leader, Signal::SIGKILL) != Err(Errno::EPERM)
}

/// Tells whether processes are left in the group of `leader`, which has been collected.
pub(crate) fn has_left(leader: Pid) -> bool {
    killpg(leader, None) != Err(Errno::ESRCH)
}

/// Kills the first process of a run that has a process namespace; the kernel kills the rest (pid_namespaces(7)).
pub(crate) fn first(process: Pid) {
    let _ = kill(process, Signal::SIGKILL);
}

/// Kills every process of `uid`, of any group; for a uid that belongs to one sandbox alone.
///
/// A process that has the uid does it: `kill(-1)` then reaches that uid only. It is waited for, so that a run started
/// next with the same uid is not among its victims.
pub(crate) fn uid(uid: u32) {
    if uid == 0 {
        return;
    }
    match sys::fork_single_threaded() {
        Ok(None) => {
            if become_only(uid).is_ok() {
                let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
            }
            sys::exit_now(0);
        }
        Ok(Some(helper)) => {
            let _ = waitpid(helper, None);
        }
        Err(_) => {} // at the limit of processes: the group was killed, which is all that the filter lets exist
    }
}

fn become_only(uid: u32) -> rustix::io::Result<()> {
    let (user, group) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(uid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

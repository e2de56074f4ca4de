//! The system call filter: what no namespace, Landlock rule or uid can take away.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`policy`] | which calls are refused, and how, as data |
//! | [`calls`] | the calls of the policy, by what is done with them |
//! | [`compile`] | that data as a classic BPF program in binary-search layout |
//!
//! The filter is loaded in two stages, because loading is the dearest step of a run: the kernel emulates the
//! program once for each call number to learn which are always allowed. The launcher loads the large first stage
//! once and every run inherits it; a run loads only the closing stage of a dozen instructions, with what its own
//! set-up still needed.
//!
//! # References
//! `seccomp(2)`; `Documentation/userspace-api/seccomp_filter.rst` of Linux.

mod calls;
pub(crate) mod compile;
pub(crate) mod policy;

use std::io;

pub(crate) use self::policy::{SharedUid, Surroundings};
use crate::sys;
use crate::wire::Sockets;

/// Landlock ABI from which truncating files is mediated (`landlock(7)`, as the one below).
pub(crate) const ABI_TRUNCATE: u32 = 3;
/// Landlock ABI from which signals are mediated.
pub(crate) const ABI_SIGNALS: u32 = 6;

/// Loads the first stage; inherited by every run.
///
/// `landlock` is the ABI of the kernel's Landlock, 0 where it has none.
///
/// # Errors
/// As `seccomp(2)`; `EINVAL` where the kernel has no filters.
pub(crate) fn load_opening(surroundings: Surroundings, memory_files: bool, landlock: u32) -> io::Result<()> {
    let mut policy = policy::opening(surroundings);
    if surroundings == Surroundings::Host && (1..ABI_TRUNCATE).contains(&landlock) {
        policy::refuse_truncating(&mut policy);
    }
    if !memory_files {
        policy::refuse_memory_files(&mut policy);
    }
    sys::load_seccomp(&compile::program(&policy))
}

/// Loads the filter of the process that makes network namespaces: the first stage of runs in namespaces, but for
/// `unshare(2)`.
///
/// # Errors
/// As [`load_opening`].
pub(crate) fn load_for_networks() -> io::Result<()> {
    let mut policy = policy::opening(Surroundings::Namespaces);
    policy::allow_unshare(&mut policy);
    sys::load_seccomp(&compile::program(&policy))
}

/// Loads the filter of the memory monitor: the first stage of runs, but for `sched_setattr(2)` and `setpriority(2)`, and without files in memory.
///
/// # Errors
/// As [`load_opening`].
pub(crate) fn load_for_monitor(surroundings: Surroundings) -> io::Result<()> {
    let mut policy = policy::opening(surroundings);
    policy::allow_scheduling(&mut policy);
    policy::refuse_memory_files(&mut policy);
    sys::load_seccomp(&compile::program(&policy))
}

/// The closing stage of runs with `sockets`, ready to load; the first stage may refuse files in memory where this does not.
pub(crate) fn closing(
    sockets: Sockets,
    surroundings: Surroundings,
    shared: SharedUid,
    memory_files: bool,
) -> Vec<libc::sock_filter> {
    let mut policy = policy::closing(sockets, surroundings, shared);
    if !memory_files {
        policy::refuse_memory_files(&mut policy);
    }
    compile::program(&policy)
}

/// A filter that allows everything, but lets `number` wait for its answer.
pub(crate) fn asking(number: u32) -> Vec<libc::sock_filter> {
    let rule = compile::Rule { number, verdict: compile::Verdict::Always(compile::Action::Notify) };
    compile::program(&compile::Policy {
        rules: vec![rule],
        newest: u32::MAX - 1,
        unknown: compile::Action::Allow,
    })
}

/// Tells by doing whether the first stage is in force: `unshare(0)` changes nothing and succeeds without it.
pub(crate) fn is_in_force() -> bool {
    nix::sched::unshare(nix::sched::CloneFlags::empty()) == Err(nix::errno::Errno::EPERM)
}

#[cfg(test)]
mod oracle;

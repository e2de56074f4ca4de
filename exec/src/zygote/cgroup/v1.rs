//! Version 1 of control groups: one hierarchy for memory, another for the number of processes.

use std::path::PathBuf;

use super::base::Base;
use super::place::{Hierarchy, own_group};
use super::{Groups, Setting};

/// The limits of a group, by file; memory and swap together only where the kernel counts swap.
///
/// The kernel would kill one process and let the others go on. With `memory.oom_control` it lets those wait that need more
/// (memory.rst, "OOM Control"), until the memory monitor sees it and has the whole run killed.
pub(super) const MEMORY: &[(&str, Setting)] = &[
    ("memory.limit_in_bytes", Setting::Memory),
    ("memory.memsw.limit_in_bytes", Setting::MemoryIfThere),
    ("memory.oom_control", Setting::OneIfPossible),
];
pub(super) const PIDS: &[(&str, Setting)] = &[("pids.max", Setting::Processes)];
/// Where the kernel tells that it killed processes for want of memory, or lets them wait.
pub(super) const WANTS: &str = "memory.oom_control";

/// Makes a base in the memory hierarchy, and in the other one where that can be done too.
///
/// # Errors
/// In words, for results too and so without paths of the host: when there is no memory hierarchy or it is not this
/// process's to use.
pub(super) fn find(mounts: &str, own: &str) -> Result<Groups, String> {
    let group = |controller| own_group(Hierarchy::Controller(controller), mounts, own);
    let memory = group("memory").ok_or("no hierarchy with the memory controller is mounted")?;
    let base =
        Base::make(&memory).map_err(|error| format!("no group can be made below the service's: {error}"))?;
    let pids = group("pids").and_then(|path: PathBuf| Base::make(&path).ok());
    let places = [(base, MEMORY)].into_iter().chain(pids.map(|base| (base, PIDS))).collect();
    Ok(Groups { places, wants: WANTS })
}

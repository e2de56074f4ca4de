//! Version 1 of control groups: one hierarchy for memory, another for the number of processes.

use std::path::PathBuf;

use super::base::Base;
use super::place::{Hierarchy, own_group};
use super::{Groups, Setting};

/// What a group limits, by file; memory and swap together only where the kernel counts swap.
pub(super) const MEMORY: &[(&str, Setting)] =
    &[("memory.limit_in_bytes", Setting::Memory), ("memory.memsw.limit_in_bytes", Setting::MemoryIfThere)];
pub(super) const PIDS: &[(&str, Setting)] = &[("pids.max", Setting::Processes)];
/// Where the kernel counts processes that it killed for want of memory.
pub(super) const KILLS: &str = "memory.oom_control";

/// Makes a base in the memory hierarchy, and in the other one where that can be done too.
///
/// # Errors
/// In words, when there is no memory hierarchy or it is not this process's to use.
pub(super) fn find(mounts: &str, own: &str) -> Result<Groups, String> {
    let group = |controller| own_group(Hierarchy::Controller(controller), mounts, own);
    let memory = group("memory").ok_or("no hierarchy with the memory controller is mounted")?;
    let base = Base::make(&memory).map_err(|error| format!("`{}`: {error}", memory.display()))?;
    let pids = group("pids").and_then(|path: PathBuf| Base::make(&path).ok());
    let places = [(base, MEMORY)].into_iter().chain(pids.map(|base| (base, PIDS))).collect();
    Ok(Groups { places, kills: KILLS })
}

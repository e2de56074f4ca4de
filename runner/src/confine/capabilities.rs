//! The capabilities of commands, for a runner that is root.
//!
//! With `CAP_PERFMON` a command reads the environment of the runner in `/proc`, which Landlock is not asked about (`mm_access` of Linux
//! 6.15); others load modules, or write to disks. Those that are kept are about files of other users and about ports.
//!
//! # References
//! `capabilities(7)`.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all others, for ever: `execve(2)` gives root what is in the bounding set.
///
/// # Errors
/// A capability that this process has cannot be dropped.
pub(super) fn enforce() -> Result<(), Errno> {
    let has = capabilities(None)?;
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        // Higher numbers than the kernel knows are `EINVAL`.
        let is_bounded = capability_is_in_bounding_set(capability).unwrap_or(false);
        if !is_bounded || KEPT.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // A user who is not root has none, and gets none either (`PR_SET_NO_NEW_PRIVS`).
            Err(Errno::PERM) if has.permitted.is_empty() => return Ok(()),
            dropped => dropped?,
        }
    }
    let kept = CapabilitySets {
        effective: has.effective & KEPT,
        permitted: has.permitted & KEPT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept)
}

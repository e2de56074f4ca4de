//! [`walled`]: acting behind the walls of a run.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::sys;

/// Size of the stack of the thread that acts, in bytes.
const STACK_BYTES: usize = 64 * 1024;

/// Acts in a thread that may do what the run may do, with its ids for files, behind its `walls` and without capabilities: with
/// some the kernel overlooks quotas.
///
/// # Errors
/// Those of `act`; `ENOMEM` without a thread.
pub(super) fn walled<T: Send>(
    walls: BorrowedFd<'_>,
    act: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || {
            rustix::thread::set_no_new_privs(true)?;
            let none = CapabilitySet::empty();
            rustix::thread::set_capabilities(
                None,
                CapabilitySets { effective: none, permitted: none, inheritable: none },
            )?;
            sys::landlock_restrict(walls)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
            act()
        });
        thread.map_err(|_| Errno::NOMEM)?.join().unwrap_or(Err(Errno::NOMEM))
    })
}

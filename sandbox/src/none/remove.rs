//! Removing a tree, also while others change it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use dirfd::Dir;
use rustix::io::Errno;

/// How often a removal begins again when others change the tree meanwhile.
const ROUNDS_MAX: usize = 20;

/// Removes the entry `name` of `directory` with all below it; links are removed and not followed.
///
/// A directory that denies access stays closed, and the removal fails: it is the user's own to open it.
pub(super) fn remove_all(directory: OwnedFd, name: &str) -> Result<(), Errno> {
    let (directory, name) = (Dir::from(directory), OsStr::new(name));
    for _ in 0..ROUNDS_MAX {
        match directory.remove_open_tree(name).map_err(|error| error.errno()) {
            // Filled again, moved, or removed by another call: what is left now is another tree.
            Err(Errno::NOTEMPTY | Errno::BUSY | Errno::NOENT | Errno::NOTDIR) => {}
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

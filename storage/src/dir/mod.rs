//! [`Dir`]: a directory of the store, the only way to anything stored.
//!
//! * `own`: the service's own directories, and the permissions that it gives itself back.
//! * `entries`: opening, listing and looking. `changes`: making, renaming, removing.
//!
//! What each operation does, and that no path leads out, is the crate [`dirfd`]'s.

mod changes;
mod entries;
mod own;

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use dirfd::Entry;
pub(crate) use dirfd::PassingName;
#[cfg(test)]
pub(crate) use dirfd::{ATTRIBUTE_BYTES_MAX, trace};

use self::own::Own;
use crate::error::{Error, Result};

/// Levels that a walk goes down before it refuses.
///
/// A walk holds up to three descriptors and, unoptimised, up to 10 KB of stack a level: this many levels stay
/// below the usual limits of 1024 descriptors and 2 MB. The deepest of 29 818 published skills has 8.
pub(crate) const DEPTH_MAX: usize = 128;

/// An open directory of the store: a [`dirfd::Dir`], and what the store adds to it.
///
/// * Its failures are those of the store, which tell an agent what to do.
/// * A directory of the service's own is opened again when a command has closed it ([`Dir::own_root`]). Only storage has
///   such directories, so `dirfd` knows nothing of them and changes a mode only when it is told to.
///
/// Each method does what the method of the same name does in [`dirfd::Dir`].
#[derive(Debug)]
pub struct Dir {
    dir: dirfd::Dir,
    own: Own,
    /// Whether the files in it and below never change: [`Dir::frozen`].
    is_frozen: bool,
}

impl From<dirfd::Dir> for Dir {
    fn from(dir: dirfd::Dir) -> Self {
        Self { dir, own: Own::Nothing, is_frozen: false }
    }
}

impl From<OwnedFd> for Dir {
    /// Takes a descriptor that was opened as a directory.
    fn from(fd: OwnedFd) -> Self {
        dirfd::Dir::from(fd).into()
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The directory `name` in `dir`; `None` where there is none.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn subdirectory(dir: Option<&Dir>, name: &OsStr) -> Result<Option<Dir>> {
    match dir.map(|dir| dir.open_dir_entry(name)) {
        None | Some(Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_))) => Ok(None),
        Some(opened) => opened.map(Some),
    }
}

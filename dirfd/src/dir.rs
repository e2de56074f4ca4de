//! [`Dir`]: an open directory, the only way to what is in it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::error::{Error, Result};

/// An open directory.
///
/// * What a `RelPath` names is resolved by the kernel beneath it (`openat2(2)`, `RESOLVE_BENEATH |
///   RESOLVE_NO_MAGICLINKS`): a symbolic link that stays inside is followed, one that leaves is refused.
/// * What a single name (`&OsStr`) names is an entry of this directory and is never followed.
/// * Files are opened without blocking and only when they are regular: a planted pipe cannot hang a reader.
#[derive(Debug)]
pub struct Dir {
    pub(crate) fd: OwnedFd,
}

impl From<OwnedFd> for Dir {
    /// Takes a descriptor that was opened as a directory.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The one segment that calls without `RESOLVE_BENEATH` may be given.
pub(crate) fn segment(name: &OsStr) -> Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(Error::Escape(name.to_string_lossy().into_owned()));
    }
    Ok(name)
}

/// A name as a failure tells it.
pub(crate) fn shown(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

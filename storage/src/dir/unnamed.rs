//! Files without a name, and giving them one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::make::make_exact;
use super::{Dir, segment, shown};
use crate::error::{Error, Result};

/// The name that a file has until it gets its own. The name goes when this is dropped.
pub(crate) struct PassingName {
    dir: Dir,
    name: OsString,
}

impl Drop for PassingName {
    fn drop(&mut self) {
        match self.dir.remove_file(&self.name) {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => tracing::warn!(%error, "a temporary name stays until the next start"),
        }
    }
}

/// Tells whether [`Dir::create_unnamed`] failed because the file system has no such files, as overlayfs before Linux 6.10.
pub(crate) fn is_without_unnamed(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()))
}

impl Dir {
    /// As [`Dir::create_unnamed`]. Where the file system has no such files, the file has the name `name` for the time being.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Io`].
    pub(crate) fn create_to_link(&self, mode: u32, name: OsString) -> Result<(File, Option<PassingName>)> {
        match self.create_unnamed(mode) {
            Err(error) if is_without_unnamed(&error) => {
                let file = self.create_file(&name, mode)?;
                Ok((file, Some(PassingName { dir: self.duplicate()?.into(), name })))
            }
            made => Ok((made?, None)),
        }
    }

    /// Makes a regular file without a name in this directory's file system (open(2), `O_TMPFILE`) and opens it for
    /// reading and writing. It goes when it is closed, unless [`Dir::link`] names it. `mode` is given exactly.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Io`] where the file system has no such files.
    pub(crate) fn create_unnamed(&self, mode: u32) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, ".", flags, Mode::from_raw_mode(mode))
            .map_err(|errno| Error::from_errno("create", ".", errno))?;
        make_exact(&fd, mode, || ".".to_owned())?;
        Ok(fd.into())
    }

    /// Gives a file of [`Dir::create_unnamed`], or of [`Dir::create_to_link`], the name `name` here.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NotFound`] when this directory has gone, [`Error::NoSpace`].
    pub(crate) fn link(&self, file: &File, name: &OsStr) -> Result<()> {
        // `AT_EMPTY_PATH` would need a privilege; this way does not (linkat(2), open(2)).
        let through = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, through, &self.fd, segment(name)?, AtFlags::SYMLINK_FOLLOW)
            .map_err(|errno| Error::from_errno("link", shown(name), errno))
    }

    /// Gives the entry `name`, which is not followed, to the user and group `owner`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`] without the privilege.
    pub(crate) fn set_entry_owner(&self, name: &OsStr, owner: u32) -> Result<()> {
        let (user, group) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)));
        rustix::fs::chownat(&self.fd, segment(name)?, user, group, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Error::from_errno("chown", shown(name), errno))
    }

    /// Another descriptor of this directory, for code that outlives it.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd> {
        self.fd.try_clone().map_err(|error| Error::from_io("dup", ".", error))
    }
}

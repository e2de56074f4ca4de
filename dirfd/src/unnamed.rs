//! Files without a name, and giving them one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::make::make_exact;

/// The name that a file has until it gets its own. The name goes when this is dropped.
#[derive(Debug)]
pub struct PassingName {
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

/// Opens a regular file without a name in the file system of the directory `dir`, for reading and writing. It goes when it
/// is closed, unless [`name_unnamed`] names it. Of `mode`, the umask takes its bits.
///
/// # Errors
/// As open(2); `EOPNOTSUPP` where the file system has no such files, and from some also `EISDIR`, `EINVAL` or `ENOENT`.
///
/// # References
/// open(2), `O_TMPFILE`.
pub fn open_unnamed(dir: impl AsFd, mode: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::from_raw_mode(mode))
}

/// Gives a file of [`open_unnamed`] the name `name` in the directory `dir`, which has no such entry.
///
/// `name` is one segment: the caller has looked at it.
///
/// # Errors
/// As linkat(2), `EEXIST` among them.
///
/// # References
/// linkat(2), open(2).
pub fn name_unnamed(file: impl AsFd, dir: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
    // `AT_EMPTY_PATH` would need a privilege; this way does not (linkat(2), open(2)).
    let through = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::linkat(CWD, through, dir, name, AtFlags::SYMLINK_FOLLOW)
}

impl Dir {
    /// As [`Dir::create_unnamed`]. Where the file system has no such files, the file has the name `name` for the time being.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Io`].
    pub fn create_to_link(&self, mode: u32, name: OsString) -> Result<(File, Option<PassingName>)> {
        if let Some(file) = self.create_unnamed(mode)? {
            return Ok((file, None));
        }
        let file = self.create_file(&name, mode)?;
        Ok((file, Some(PassingName { dir: self.duplicate()?.into(), name })))
    }

    /// Makes a regular file without a name in this directory's file system (open(2), `O_TMPFILE`) and opens it for
    /// reading and writing. It goes when it is closed, unless [`Dir::link`] names it. `mode` is given exactly.
    ///
    /// `None` where the file system has no such files, as overlayfs before Linux 6.10.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Io`].
    pub fn create_unnamed(&self, mode: u32) -> Result<Option<File>> {
        let fd = match open_unnamed(&self.fd, mode) {
            Err(Errno::OPNOTSUPP) => return Ok(None),
            opened => opened.map_err(|errno| Error::from_errno("create", ".", errno))?,
        };
        make_exact(&fd, mode, || ".".to_owned())?;
        Ok(Some(fd.into()))
    }

    /// Gives a file of [`Dir::create_unnamed`], or of [`Dir::create_to_link`], the name `name` here.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NotFound`] when this directory has gone, [`Error::NoSpace`].
    pub fn link(&self, file: &File, name: &OsStr) -> Result<()> {
        name_unnamed(file, &self.fd, segment(name)?)
            .map_err(|errno| Error::from_errno("link", shown(name), errno))
    }
}

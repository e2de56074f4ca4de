//! What is known of a directory and its entries, and changing that.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Gid, Mode, Uid};
use rustix::io::Errno;

use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::stat::Stat;

/// The longest extended attribute that is read, in bytes.
pub const ATTRIBUTE_BYTES_MAX: usize = 2048;

impl Dir {
    /// Reads the target of the symbolic link `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`] when it is no link.
    pub fn read_link(&self, name: &OsStr) -> Result<OsString> {
        rustix::fs::readlinkat(&self.fd, segment(name)?, Vec::new())
            .map(|target| OsStr::from_bytes(target.as_bytes()).to_owned())
            .map_err(|errno| Error::from_errno("readlink", shown(name), errno))
    }

    /// Tells what the entry `name` is, without following it; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat_entry(&self, name: &OsStr) -> Result<Option<Stat>> {
        let name = segment(name)?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::from_errno("stat", shown(name), errno)),
        }
    }

    /// Tells what this directory itself is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.fd).map(Stat::from).map_err(|errno| Error::from_errno("stat", ".", errno))
    }

    /// Sets the permission bits of this directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|errno| Error::from_errno("chmod", ".", errno))
    }

    /// Gives this directory to the user and group `owner`.
    ///
    /// # Errors
    /// [`Error::Io`] without the privilege.
    pub fn set_owner(&self, owner: u32) -> Result<()> {
        rustix::fs::fchown(&self.fd, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|errno| Error::from_errno("chown", ".", errno))
    }

    /// Gives the entry `name`, which is not followed, to the user and group `owner`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`] without the privilege.
    pub fn set_entry_owner(&self, name: &OsStr, owner: u32) -> Result<()> {
        let (user, group) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)));
        rustix::fs::chownat(&self.fd, segment(name)?, user, group, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Error::from_errno("chown", shown(name), errno))
    }

    /// Reads the extended attribute `name` of this directory, at most [`ATTRIBUTE_BYTES_MAX`] bytes; `None` when it has none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut value = [0; ATTRIBUTE_BYTES_MAX];
        match rustix::fs::fgetxattr(&self.fd, name, &mut value) {
            Ok(length) => Ok(value.get(..length).map(<[u8]>::to_vec)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(Error::from_errno("getxattr", name, errno)),
        }
    }

    /// Sets the extended attribute `name` of this directory.
    ///
    /// # Errors
    /// [`Error::Io`], also where the file system keeps no user attributes.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        rustix::fs::fsetxattr(&self.fd, name, value, rustix::fs::XattrFlags::empty())
            .map_err(|errno| Error::from_errno("setxattr", name, errno))
    }

    /// Bytes that its file system has left for processes without privileges.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_bytes(&self) -> Result<u64> {
        rustix::fs::fstatvfs(&self.fd)
            .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
            .map_err(|errno| Error::from_errno("statvfs", ".", errno))
    }
}

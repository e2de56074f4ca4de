//! Entries that a process of the same user id closed by their permission bits, and opening them up.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags};

use crate::dir::{Dir, shown};
use crate::error::{Error, Result};
use crate::stat::{Kind, Stat};

impl Dir {
    /// Opens the entry `name` as a directory, giving its owner access first when a process had closed it.
    ///
    /// No process may be changing this directory meanwhile.
    ///
    /// # Errors
    /// As [`Dir::open_dir_entry`].
    pub fn open_closed_dir(&self, name: &OsStr) -> Result<Self> {
        self.open_up(name, Kind::Directory, 0o700)?;
        self.open_dir_entry(name)
    }

    /// Gives the owner access to the file `name`, if there is one, when a process had closed it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open_up_file(&self, name: &OsStr) -> Result<()> {
        self.open_up(name, Kind::File, 0o600)
    }

    fn open_up(&self, name: &OsStr, kind: Kind, bits: u32) -> Result<()> {
        let closed = |stat: &Stat| stat.kind == kind && stat.mode & bits != bits;
        if !self.stat_entry(name)?.as_ref().is_some_and(closed) {
            return Ok(());
        }
        let failed = |errno| Error::from_errno("chmod", shown(name), errno);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(failed)?;
        let stat: Stat = rustix::fs::fstat(&fd).map_err(failed)?.into();
        if !closed(&stat) {
            return Ok(());
        }
        // chmod(2) follows links and fchmod(2) takes no `O_PATH` descriptor. This way leads to the entry that was
        // looked at, even when a process has put another under the name since (open(2), "O_PATH").
        let through = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::chmod(through, Mode::from_raw_mode(stat.mode | bits)).map_err(failed)
    }
}

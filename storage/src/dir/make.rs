//! Making files, directories, links and whiteouts.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;

use policy::RelPath;
use rustix::fs::{FileType, Mode, ResolveFlags};

use super::{BENEATH, Dir, NEW_FILE, Own, segment, shown};
use crate::error::{Error, Result};

impl Dir {
    /// Makes the regular file `name`, which must not exist, and opens it for reading and writing.
    ///
    /// `mode` is given exactly, under any umask of the process.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`].
    pub fn create_file(&self, name: &OsStr, mode: u32) -> Result<File> {
        let name = segment(name)?;
        let fd = self
            .with_access(|| rustix::fs::openat(&self.fd, name, NEW_FILE, Mode::from_raw_mode(mode)))
            .map_err(|errno| Error::from_errno("create", shown(name), errno))?;
        make_exact(&fd, mode, || shown(name))?;
        Ok(fd.into())
    }

    /// Makes the regular file `path` as [`Dir::create_file`] does, in a directory that is there.
    ///
    /// No link on the way is followed.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NotFound`] without the directory, [`Error::Escape`] for a link,
    /// [`Error::NoSpace`].
    pub(crate) fn create_file_beneath(&self, path: &RelPath, mode: u32) -> Result<File> {
        let resolve = BENEATH.union(ResolveFlags::NO_SYMLINKS);
        let fd = rustix::fs::openat2(&self.fd, path.as_str(), NEW_FILE, Mode::from_raw_mode(mode), resolve)
            .map_err(|errno| Error::from_errno("create", path, errno))?;
        make_exact(&fd, mode, || path.to_string())?;
        Ok(fd.into())
    }

    /// Makes the directory `name`, which must not exist, and opens it. `mode` is given exactly.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`].
    pub fn create_dir(&self, name: &OsStr, mode: u32) -> Result<Self> {
        let name = segment(name)?;
        self.with_access(|| rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode | 0o700)))
            .map_err(|errno| Error::from_errno("mkdir", shown(name), errno))?;
        let dir = self.open_dir_entry(name)?;
        make_exact(&dir.fd, mode, || shown(name))?;
        Ok(dir)
    }

    /// Opens the directory `name`, making it (mode 0755) when it is not there.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NoSpace`].
    pub fn ensure_dir(&self, name: &OsStr) -> Result<Self> {
        match self.open_dir_entry(name) {
            Err(Error::NotFound(_)) => match self.create_dir(name, 0o755) {
                Err(Error::AlreadyExists(_)) => self.open_dir_entry(name),
                made => made,
            },
            opened => opened,
        }
    }

    /// Opens the directory `path`, making each missing level (mode 0755).
    ///
    /// # Errors
    /// As [`Dir::ensure_dir`].
    pub fn ensure_path(&self, path: &RelPath) -> Result<Self> {
        match self.ensure_each(path) {
            Err(Error::Closed(_)) if self.own == Own::Below => {
                self.open_up_path(path)?;
                self.ensure_each(path)
            }
            ensured => ensured,
        }
        .map(|dir| self.below(dir.fd))
    }

    fn ensure_each(&self, path: &RelPath) -> Result<Self> {
        let mut dir = self.reopen()?;
        for name in path.segments() {
            dir = dir.ensure_dir(OsStr::new(name))?;
        }
        Ok(dir)
    }

    /// Makes the kernel's whiteout under `name`: a character device 0:0, which needs no privilege (Linux 5.8).
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`].
    pub fn create_whiteout(&self, name: &OsStr) -> Result<()> {
        rustix::fs::mknodat(&self.fd, segment(name)?, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|errno| Error::from_errno("mknod", shown(name), errno))
    }

    /// Makes the symbolic link `name` to `target`, which may be any text.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`].
    pub fn create_symlink(&self, target: &OsStr, name: &OsStr) -> Result<()> {
        rustix::fs::symlinkat(target, &self.fd, segment(name)?)
            .map_err(|errno| Error::from_errno("symlink", shown(name), errno))
    }
}

/// Gives what was just made with `mode` the bits that the umask or a default access list kept from it (open(2)).
///
/// Mostly there are none, and looking is cheaper than changing.
pub(super) fn make_exact(fd: &OwnedFd, mode: u32, path: impl Fn() -> String) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| Error::from_errno("stat", path(), errno))?;
    if stat.st_mode & 0o7777 == mode {
        return Ok(());
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
        .map_err(|errno| Error::from_errno("chmod", path(), errno))
}

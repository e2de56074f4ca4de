//! Making files, directories, links and whiteouts.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;

use policy::RelPath;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::beneath::BENEATH;
use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};

/// How a file that must not exist is opened.
const NEW_FILE: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Dir {
    /// Makes the regular file `name`, which must not exist, and opens it for reading and writing.
    ///
    /// `mode` is given exactly, under any umask of the process.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NoSpace`].
    pub fn create_file(&self, name: &OsStr, mode: u32) -> Result<File> {
        let name = segment(name)?;
        let fd = rustix::fs::openat(&self.fd, name, NEW_FILE, Mode::from_raw_mode(mode))
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
    pub fn create_file_beneath(&self, path: &RelPath, mode: u32) -> Result<File> {
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
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode | 0o700))
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
pub(crate) fn make_exact(fd: &OwnedFd, mode: u32, path: impl Fn() -> String) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| Error::from_errno("stat", path(), errno))?;
    if stat.st_mode & 0o7777 == mode {
        return Ok(());
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
        .map_err(|errno| Error::from_errno("chmod", path(), errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{fixture, path};

    #[test]
    fn modes_are_exact_whatever_the_umask() {
        let (_temp, dir) = fixture();
        dir.create_dir(OsStr::new("dir"), 0o777).unwrap();
        dir.create_dir(OsStr::new("closed"), 0o500).unwrap();
        dir.create_file(OsStr::new("file"), 0o666).unwrap();
        dir.create_file(OsStr::new("read-only"), 0o400).unwrap();
        dir.create_file_beneath(&path("dir/file"), 0o666).unwrap();
        let mode = |name: &str| dir.stat_entry(OsStr::new(name)).unwrap().unwrap().mode;
        assert_eq!(["dir", "closed", "file", "read-only"].map(mode), [0o777, 0o500, 0o666, 0o400]);
        assert_eq!(dir.open_file(&path("dir/file")).unwrap().1.mode, 0o666);
    }

    #[test]
    fn a_file_is_made_beneath_neither_over_another_nor_through_a_link() {
        let (_temp, dir) = fixture();
        dir.create_dir(OsStr::new("dir"), 0o755).unwrap();
        dir.create_symlink(OsStr::new("dir"), OsStr::new("link")).unwrap();
        dir.create_file_beneath(&path("dir/x"), 0o644).unwrap();
        let made = |at: &str| dir.create_file_beneath(&path(at), 0o644).map(drop);
        assert!(matches!(made("dir/x"), Err(Error::AlreadyExists(_))));
        assert!(matches!(made("link/y"), Err(Error::Escape(_))));
        assert!(matches!(made("none/y"), Err(Error::NotFound(_))));
    }
}

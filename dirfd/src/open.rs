//! Opening directories and regular files.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use policy::RelPath;
use rustix::fs::{Mode, OFlags};

use crate::beneath::{DIRECTORY, Links, READING, open_beneath, regular};
use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::stat::Stat;

impl Dir {
    /// Opens a directory by its host path, outside every other `Dir`: a root, at start.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], or [`Error::Io`].
    pub fn ambient_open(path: &Path) -> Result<Self> {
        rustix::fs::open(path, DIRECTORY, Mode::empty())
            .map(Self::from)
            .map_err(|errno| Error::from_errno("open", path.display(), errno))
    }

    /// Opens the directory `path`, following links that stay beneath this directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Escape`].
    pub fn open_dir(&self, path: &RelPath) -> Result<Self> {
        if path.is_root() {
            return self.reopen();
        }
        open_beneath(&self.fd, path.as_str(), DIRECTORY, Links::Follow)
            .map(Self::from)
            .map_err(|errno| Error::from_errno("open", path, errno))
    }

    /// Opens the entry `name` as a directory; a link is refused.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`] (also for a link).
    pub fn open_dir_entry(&self, name: &OsStr) -> Result<Self> {
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let name = segment(name)?;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map(Self::from)
            .map_err(|errno| Error::from_errno("open", shown(name), errno))
    }

    /// Opens this directory again, with a position of its own.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub fn reopen(&self) -> Result<Self> {
        rustix::fs::openat(&self.fd, ".", DIRECTORY, Mode::empty())
            .map(Self::from)
            .map_err(|errno| Error::from_errno("open", ".", errno))
    }

    /// Another descriptor of this directory, for code that outlives it.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        self.fd.try_clone().map_err(|source| Error::Io { operation: "dup", path: ".".to_owned(), source })
    }

    /// Opens the regular file `path` for reading, following links that stay beneath this directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotAFile`], [`Error::Escape`].
    pub fn open_file(&self, path: &RelPath) -> Result<(File, Stat)> {
        if path.is_root() {
            return Err(Error::IsDirectory(path.to_string()));
        }
        open_beneath(&self.fd, path.as_str(), READING, Links::Follow)
            .map_err(|errno| Error::from_errno("open", path, errno))
            .and_then(|fd| regular(fd).map_err(|errno| Error::from_errno("stat", path, errno)))
    }

    /// Opens the entry `name` as a regular file for reading; a link is refused.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotAFile`], [`Error::Escape`] for a link.
    pub fn open_file_entry(&self, name: &OsStr) -> Result<(File, Stat)> {
        let (name, flags) = (segment(name)?, READING | OFlags::NOFOLLOW);
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|errno| Error::from_errno("open", shown(name), errno))
            .and_then(|fd| regular(fd).map_err(|errno| Error::from_errno("stat", shown(name), errno)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::fs::FileType;

    use super::*;
    use crate::fixture::{fixture, path};

    #[test]
    fn a_link_that_stays_inside_is_followed_and_one_that_leaves_is_refused() {
        let (_temp, dir) = fixture();
        dir.create_file(OsStr::new("a"), 0o644).unwrap().write_all(b"hi").unwrap();
        dir.create_symlink(OsStr::new("a"), OsStr::new("inside")).unwrap();
        dir.create_symlink(OsStr::new("/etc/passwd"), OsStr::new("absolute")).unwrap();
        dir.create_symlink(OsStr::new("../../etc/passwd"), OsStr::new("upward")).unwrap();
        dir.create_symlink(OsStr::new("loop"), OsStr::new("loop")).unwrap();
        let mut text = String::new();
        dir.open_file(&path("inside")).unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");
        for name in ["absolute", "upward", "loop"] {
            assert!(matches!(dir.open_file(&path(name)), Err(Error::Escape(_))), "{name}");
        }
    }

    #[test]
    fn a_planted_pipe_or_socket_neither_blocks_nor_opens() {
        let (temp, dir) = fixture();
        rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();
        for name in ["pipe", "socket"] {
            assert!(matches!(dir.open_file(&path(name)), Err(Error::NotAFile(_))), "{name}");
        }
    }

    #[test]
    fn a_single_name_cannot_climb() {
        let (_temp, dir) = fixture();
        for name in ["..", ".", "", "a/b", "/etc"] {
            assert!(matches!(dir.remove_file(OsStr::new(name)), Err(Error::Escape(_))), "{name}");
            assert!(matches!(dir.stat_entry(OsStr::new(name)), Err(Error::Escape(_))), "{name}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "other programs do this, beside this one")]
    fn renames_elsewhere_disturb_no_link_with_dots() {
        let (temp, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("../../file", temp.path().join("a/b/link")).unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        let (one, other) = (elsewhere.path().join("one"), elsewhere.path().join("other"));
        std::fs::write(&one, "").unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let path = RelPath::parse("a/b/link").unwrap();
            let opened = (0..20_000).try_for_each(|_| dir.open_file(&path).map(drop));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            opened.unwrap();
        });
    }
}

//! Directories of the service's own: the service gives itself back the permissions that a command took from it.
//!
//! Where commands have the service's user id, one may take away the permissions of a directory whose path it knows.

use std::ffi::OsStr;
use std::path::Path;

use dirfd::Error as E;
use policy::RelPath;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::Dir;
use crate::error::{Error, Result};
use crate::stat::Stat;

/// The part of a directory that is the service's own, so that the service gives itself back the permissions that
/// something took from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// Nothing.
    Nothing,
    /// The directory itself, but not what is in it.
    Itself,
    /// The directory, and each that is opened below it by [`Dir::open_dir`] and [`Dir::ensure_path`].
    Below,
}

impl Dir {
    /// Opens a directory by its host path, outside every other `Dir`: the store's root, at start.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], or [`Error::Io`].
    pub fn ambient_open(path: &Path) -> Result<Self> {
        Ok(dirfd::Dir::ambient_open(path)?.into())
    }

    /// Opens the store's root by its host path. What [`Dir::open_dir`] and [`Dir::ensure_path`] open below it are the
    /// service's own directories.
    ///
    /// The service gives itself permissions back when it meets that they were taken: on the root now, on others when they
    /// are opened.
    ///
    /// # Errors
    /// As [`Dir::ambient_open`]; [`Error::Io`] when the root is another user's and closed.
    pub fn own_root(path: &Path) -> Result<Self> {
        let dir = match dirfd::Dir::ambient_open(path) {
            Err(E::Closed(_)) => {
                let failed = |errno| shut(path.display(), errno);
                let mode = rustix::fs::stat(path).map_err(failed)?.st_mode & 0o7777;
                rustix::fs::chmod(path, Mode::from_raw_mode(mode | 0o700)).map_err(failed)?;
                dirfd::Dir::ambient_open(path)?
            }
            opened => opened?,
        };
        Ok(Self { dir, own: Own::Below, is_frozen: false })
    }

    /// Opens the directory `path`, following links that stay beneath this directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Escape`].
    pub fn open_dir(&self, path: &RelPath) -> Result<Self> {
        if path.is_root() {
            return self.reopen();
        }
        let dir = match self.dir.open_dir(path) {
            Err(E::Closed(_)) if self.own == Own::Below => {
                self.open_up_path(path)?;
                match self.dir.open_dir(path) {
                    Err(E::Closed(_)) => return Err(shut(path, Errno::ACCESS)),
                    opened => opened?,
                }
            }
            opened => opened?,
        };
        Ok(self.below(dir))
    }

    /// Opens the directory `path`, making each missing level (mode 0755).
    ///
    /// # Errors
    /// As [`Dir::ensure_dir`].
    pub fn ensure_path(&self, path: &RelPath) -> Result<Self> {
        let dir = match self.retried(|| self.dir.ensure_path(path)) {
            Err(E::Closed(_)) if self.own == Own::Below => {
                self.open_up_path(path)?;
                self.dir.ensure_path(path)?
            }
            ensured => ensured?,
        };
        Ok(self.below(dir))
    }

    /// Opens this directory again, with a position of its own. It is the service's own, and frozen, as far as this one is.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub fn reopen(&self) -> Result<Self> {
        Ok(Self { dir: self.retried(|| self.dir.reopen())?, own: self.own, is_frozen: self.is_frozen })
    }

    /// A directory that was opened by a path below this one.
    fn below(&self, dir: dirfd::Dir) -> Self {
        let own = if self.own == Own::Below { Own::Itself } else { Own::Nothing };
        Self { dir, own, is_frozen: self.is_frozen }
    }

    /// Does `act`, once more when something had closed this directory of the service's own.
    pub(super) fn with_access<T>(&self, act: impl Fn() -> dirfd::Result<T>) -> Result<T> {
        Ok(self.retried(act)?)
    }

    /// As [`Dir::with_access`], with a failure that another directory may answer.
    pub(super) fn retried<T>(&self, act: impl Fn() -> dirfd::Result<T>) -> dirfd::Result<T> {
        match act() {
            Err(E::Closed(_)) if self.open_up_itself() => act(),
            done => done,
        }
    }

    /// Gives the service access again to a directory of its own. Tells whether something had closed it.
    fn open_up_itself(&self) -> bool {
        if self.own == Own::Nothing {
            return false;
        }
        let is_closed = |stat: &Stat| stat.mode & 0o700 != 0o700;
        let closed = self.dir.stat().ok().filter(is_closed);
        closed.is_some_and(|stat| self.dir.set_mode(stat.mode | 0o700).is_ok())
    }

    /// Gives the service access again to this directory and each on the way to `path`, as far as they are there.
    fn open_up_path(&self, path: &RelPath) -> Result<()> {
        tracing::warn!(%path, "a process closed a directory of the service: opening it again");
        self.open_up_itself();
        let mut dir = self.dir.reopen()?;
        for name in path.segments() {
            dir = match dir.open_closed_dir(OsStr::new(name)) {
                Err(E::NotFound(_) | E::NotADirectory(_) | E::Escape(_)) => return Ok(()),
                // The directory of another user id: an agent can do nothing about it.
                Err(E::Closed(_)) => return Err(shut(path, Errno::ACCESS)),
                opened => opened?,
            };
        }
        Ok(())
    }
}

/// Names that the service is kept out of a directory of its own, which is a failure of the service.
fn shut(path: impl ToString, errno: Errno) -> Error {
    Error::Io { operation: "open a directory of the service", path: path.to_string(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        (temp, dir)
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn a_directory_of_the_services_own_that_was_closed_is_opened_again() {
        let (temp, dir) = fixture();
        drop(dir.ensure_path(&path("a/b/c")).unwrap());
        let own = Dir::own_root(temp.path()).unwrap();
        let mode = |at: &str| dir.open_dir(&path(at)).unwrap().stat().unwrap().mode;
        for closed in ["a", "a/b", "a/b/c"] {
            dir.open_dir(&path(closed)).unwrap().set_mode(0).unwrap();
        }
        own.open_up_path(&path("a/b/c/none")).unwrap();
        assert_eq!(["a", "a/b", "a/b/c"].map(mode), [0o700; 3]);
        // The held directory is opened itself, and no entry of it.
        let held = own.open_dir(&path("a")).unwrap();
        for closed in ["a/b", "a"] {
            dir.open_dir(&path(closed)).unwrap().set_mode(0).unwrap();
        }
        assert!(held.open_up_itself() && !held.open_up_itself());
        assert_eq!([mode("a"), mode("a/b")], [0o700, 0]);
        assert!(!held.open_dir_entry(OsStr::new("b")).unwrap().open_up_itself());
    }
}

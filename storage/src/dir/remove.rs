//! Removing entries of a directory, whole trees of any depth among them.

use std::ffi::{OsStr, OsString};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::stat::Kind;

/// Names that a removal holds of one directory.
const REMOVED_AT_ONCE: usize = 10_000;

impl Dir {
    /// Removes the entry `name`, which is not a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`].
    pub fn remove_file(&self, name: &OsStr) -> Result<()> {
        rustix::fs::unlinkat(&self.fd, segment(name)?, AtFlags::empty())
            .map_err(|errno| Error::from_errno("unlink", shown(name), errno))
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotEmpty`], [`Error::NotADirectory`].
    pub fn remove_dir(&self, name: &OsStr) -> Result<()> {
        rustix::fs::unlinkat(&self.fd, segment(name)?, AtFlags::REMOVEDIR)
            .map_err(|errno| Error::from_errno("rmdir", shown(name), errno))
    }

    /// Removes the entry `name` with everything below it, following nothing; succeeds when there is none.
    ///
    /// Directories that deny access are opened up first: a run may have closed them. However deep the tree is,
    /// few descriptors and no stack are used, because commands can nest directories without end. However wide it
    /// is, few names are held at once.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a directory is moved meanwhile, [`Error::NotEmpty`] when it is filled again,
    /// [`Error::Io`].
    pub fn remove_tree(&self, name: &OsStr) -> Result<()> {
        if self.remove_leaf(name)? {
            return Ok(());
        }
        let mut dir = self.open_closed_dir(name)?;
        let mut levels =
            vec![Emptied { above: self.stat()?.inode, name: name.to_owned(), left: dir.remove_leaves()? }];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.left.pop() {
                let below = dir.open_closed_dir(&name)?;
                levels.push(Emptied { above: dir.stat()?.inode, name, left: below.remove_leaves()? });
                dir = below;
                continue;
            }
            level.left = dir.remove_leaves()?;
            if !level.left.is_empty() {
                continue;
            }
            let Emptied { above, name, .. } = levels.pop().unwrap_or_default();
            dir = if levels.is_empty() { self.reopen()? } else { dir.parent(above)? };
            match dir.remove_dir(&name) {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Removes `name` unless it is a directory. Tells whether it is gone.
    fn remove_leaf(&self, name: &OsStr) -> Result<bool> {
        match self.remove_file(name) {
            Ok(()) | Err(Error::NotFound(_)) => Ok(true),
            Err(Error::IsDirectory(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Removes what is here until it meets directories that are not empty: the names of some of them, of none when
    /// nothing is left.
    fn remove_leaves(&self) -> Result<Vec<OsString>> {
        loop {
            let entries = self.first_entries(REMOVED_AT_ONCE)?;
            let is_all = entries.len() < REMOVED_AT_ONCE;
            let mut directories = Vec::new();
            for entry in entries {
                if entry.kind == Kind::Directory || !self.remove_leaf(&entry.name)? {
                    directories.push(entry.name);
                }
            }
            if is_all || !directories.is_empty() {
                return Ok(directories);
            }
        }
    }

    /// Opens the directory above, which must be the one with inode number `inode`.
    fn parent(&self, inode: u64) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, "..", flags, Mode::empty());
        let parent = Self { fd: fd.map_err(|errno| Error::from_errno("open", "..", errno))? };
        // Whoever moves a directory meanwhile must not lead the removal out of the tree.
        if parent.stat()?.inode != inode {
            return Err(Error::Conflict(
                "a directory was moved while it was being removed: try again".to_owned(),
            ));
        }
        Ok(parent)
    }
}

/// A directory on the way down of [`Dir::remove_tree`], with no leaves any more.
#[derive(Default)]
struct Emptied {
    /// Inode number of the directory above.
    above: u64,
    /// Its name there.
    name: OsString,
    /// Some of the directories in it that are not removed yet.
    left: Vec<OsString>,
}

//! Removing entries of a directory, whole trees of any depth among them.

use std::ffi::{OsStr, OsString};

use rustix::fs::{AtFlags, Mode};

use crate::beneath::DIRECTORY;
use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::stat::Kind;

/// Names that a removal holds of one directory.
const REMOVED_AT_ONCE: usize = 10_000;
/// Entries that [`Dir::remove_tree`] removes before it gives up: a process that goes on making files must not keep it
/// for ever.
const REMOVED_MAX: u64 = 10_000_000;

impl Dir {
    /// Removes the entry `name`, which is not a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`].
    pub fn remove_file(&self, name: &OsStr) -> Result<()> {
        let name = segment(name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|errno| Error::from_errno("unlink", shown(name), errno))
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotEmpty`], [`Error::NotADirectory`].
    pub fn remove_dir(&self, name: &OsStr) -> Result<()> {
        let name = segment(name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(|errno| Error::from_errno("rmdir", shown(name), errno))
    }

    /// Removes the entry `name` with everything below it, following nothing; succeeds when there is none.
    ///
    /// Directories that deny access are opened up first: another process may have closed them. However deep the tree is,
    /// few descriptors and no stack are used, because anyone can nest directories without end. However wide it
    /// is, few names are held at once.
    ///
    /// # Errors
    /// [`Error::Moved`] when a directory is moved meanwhile, [`Error::NotEmpty`] when it is filled again or has
    /// more than ten million entries, [`Error::Io`].
    pub fn remove_tree(&self, name: &OsStr) -> Result<()> {
        self.remove_whole(name, Closed::OpenedUp)
    }

    /// Removes the entry `name` as [`Dir::remove_tree`] does, and leaves every mode as it is.
    ///
    /// # Errors
    /// As [`Dir::remove_tree`]; [`Error::Closed`] at a directory that denies access.
    pub fn remove_open_tree(&self, name: &OsStr) -> Result<()> {
        self.remove_whole(name, Closed::Refused)
    }

    fn remove_whole(&self, name: &OsStr, closed: Closed) -> Result<()> {
        match self.remove_with(name, Removal { left: REMOVED_MAX, closed })? {
            true => Ok(()),
            false => Err(Error::NotEmpty(shown(name))),
        }
    }

    /// Removes what it can of `name` with at most `most` entries, as [`Dir::remove_tree`] does. Tells whether nothing
    /// is left.
    ///
    /// Directories of other users become this process's own before they are emptied: another process that holds a descriptor
    /// of one can make nothing in it any more, as long as it has another user id.
    ///
    /// # Errors
    /// As [`Dir::remove_tree`].
    pub fn remove_some(&self, name: &OsStr, most: u64) -> Result<bool> {
        self.remove_with(name, Removal { left: most, closed: Closed::Taken })
    }

    fn remove_with(&self, name: &OsStr, mut removal: Removal) -> Result<bool> {
        if self.remove_leaf(name)? {
            return Ok(true);
        }
        let mut dir = removal.enter(self, name)?;
        let Some(left) = dir.remove_leaves(&mut removal)? else { return Ok(false) };
        let mut levels = vec![Emptied { above: self.stat()?.inode, name: name.to_owned(), left }];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.left.pop() {
                let below = removal.enter(&dir, &name)?;
                let Some(left) = below.remove_leaves(&mut removal)? else { return Ok(false) };
                levels.push(Emptied { above: dir.stat()?.inode, name, left });
                dir = below;
                continue;
            }
            let Some(left) = dir.remove_leaves(&mut removal)? else { return Ok(false) };
            if !left.is_empty() {
                level.left = left;
                continue;
            }
            let Emptied { above, name, .. } = levels.pop().unwrap_or_default();
            dir = if levels.is_empty() { self.reopen()? } else { dir.parent(above)? };
            match dir.remove_dir(&name) {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
            removal.left = removal.left.saturating_sub(1);
        }
        Ok(true)
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
    /// nothing is left. `None` when the removal has done as much as it may.
    fn remove_leaves(&self, removal: &mut Removal) -> Result<Option<Vec<OsString>>> {
        loop {
            if removal.left == 0 {
                return Ok(None);
            }
            let most = REMOVED_AT_ONCE.min(usize::try_from(removal.left).unwrap_or(usize::MAX));
            let entries = self.first_entries(most)?;
            let is_all = entries.len() < most;
            let mut directories = Vec::new();
            for entry in entries {
                if entry.kind == Kind::Directory || !self.remove_leaf(&entry.name)? {
                    directories.push(entry.name);
                } else {
                    removal.left = removal.left.saturating_sub(1);
                }
            }
            if is_all || !directories.is_empty() {
                return Ok(Some(directories));
            }
        }
    }

    /// Opens the directory above, which must be the one with inode number `inode`.
    fn parent(&self, inode: u64) -> Result<Self> {
        let fd = rustix::fs::openat(&self.fd, "..", DIRECTORY, Mode::empty());
        let parent = Self::from(fd.map_err(|errno| Error::from_errno("open", "..", errno))?);
        // A process that moves a directory meanwhile must not lead the removal out of the tree.
        if parent.stat()?.inode != inode {
            return Err(Error::Moved);
        }
        Ok(parent)
    }
}

/// How far a removal goes.
struct Removal {
    /// Entries that it may yet remove.
    left: u64,
    closed: Closed,
}

/// What a removal does about directories that deny it access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// It fails.
    Refused,
    /// It gives itself access: a process of the same user id may have closed them.
    OpenedUp,
    /// It gives itself access, and directories become this process's own before they are emptied.
    Taken,
}

impl Removal {
    /// Opens the directory `name` of `above`, to be emptied.
    fn enter(&self, above: &Dir, name: &OsStr) -> Result<Dir> {
        if self.closed == Closed::Refused {
            return above.open_dir_entry(name);
        }
        let dir = above.open_closed_dir(name)?;
        let own = rustix::process::geteuid().as_raw();
        if self.closed == Closed::Taken && dir.stat()?.owner != own {
            // The owner first: a former owner cannot change the mode back.
            match dir.set_owner(own).and_then(|()| dir.set_mode(0o700)) {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(%error, "a directory that is being removed stays another user's")
                }
            }
        }
        Ok(dir)
    }
}

/// A directory on the way down of a removal, with no leaves any more.
#[derive(Default)]
struct Emptied {
    /// Inode number of the directory above.
    above: u64,
    /// Its name there.
    name: OsString,
    /// Some of the directories in it that are not removed yet.
    left: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::fixture;

    #[test]
    fn a_removal_in_parts_ends_with_nothing_left() {
        let (_temp, dir) = fixture();
        let tree = dir.create_dir(OsStr::new("tree"), 0o755).unwrap();
        for below in ["a", "b"] {
            let below = tree.create_dir(OsStr::new(below), 0o755).unwrap();
            for number in 0..25 {
                below.create_file(OsStr::new(&number.to_string()), 0o644).unwrap();
            }
        }
        let mut parts = 1;
        while !dir.remove_some(OsStr::new("tree"), 10).unwrap() {
            parts += 1;
        }
        assert_eq!(dir.entries().unwrap(), []);
        assert!((5..=8).contains(&parts), "{parts} parts");
    }

    #[test]
    fn removing_a_tree_follows_no_link_and_opens_closed_directories() {
        let (temp, dir) = fixture();
        let outside = tempfile::tempdir().unwrap();
        let kept = Dir::ambient_open(outside.path()).unwrap();
        kept.create_file(OsStr::new("kept"), 0o644).unwrap();
        let tree = dir.create_dir(OsStr::new("tree"), 0o755).unwrap();
        let closed = tree.create_dir(OsStr::new("closed"), 0o755).unwrap();
        closed.create_file(OsStr::new("x"), 0).unwrap();
        closed.set_mode(0).unwrap();
        tree.create_symlink(outside.path().as_os_str(), OsStr::new("link")).unwrap();
        dir.remove_tree(OsStr::new("tree")).unwrap();
        assert_eq!(dir.entries().unwrap(), []);
        assert!(kept.stat_entry(OsStr::new("kept")).unwrap().is_some());
        drop(temp);
    }
}

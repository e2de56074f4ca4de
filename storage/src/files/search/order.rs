//! [`Ordered`]: a walk in the order of paths, one batch of entries at a time.
//!
//! Paths are ordered by their bytes, so a directory stands where its name with a `/` would: `a-b`, `a.txt`, `a/x`, `a0`.
//! The open directories are those on the way down, and those that batches under way still use.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use policy::RelPath;

use super::Patience;
use super::pattern::Patterns;
use crate::dir::DEPTH_MAX;
use crate::error::{Error, Result};
use crate::layers::room::Room;
use crate::layers::stack::{Found, Layers};
use crate::layers::tree::Child;
use crate::stat::Kind;

/// Files in one batch.
const BATCH_FILES: usize = 32;

/// Which entries a walk meets.
#[derive(Clone, Debug)]
pub(super) struct Selection<'a> {
    /// Where patterns are relative to.
    pub(super) base: &'a RelPath,
    /// Files that match; all, when there are no patterns.
    pub(super) include: &'a Patterns,
    /// Files and directories that are left out.
    pub(super) exclude: &'a Patterns,
    /// Whether names that begin with a dot are met.
    pub(super) hidden: bool,
    /// Paths below this one are passed over.
    pub(super) from: Option<&'a str>,
    /// Whether [`Selection::from`] itself is passed over, too.
    pub(super) after: bool,
    /// Whether directories that match are met, too, each in a batch of its own before what is in it.
    pub(super) directories: bool,
}

/// A walk under way.
pub(super) struct Ordered<'a> {
    selection: Selection<'a>,
    patience: &'a Patience,
    room: Room,
    way: Vec<Level>,
    batches: usize,
    /// Where the walk was when the deadline passed.
    cut_at: Option<RelPath>,
}

struct Level {
    dirs: Arc<Layers>,
    path: RelPath,
    /// In order, the next one first.
    children: std::iter::Peekable<std::vec::IntoIter<Child>>,
}

/// Some files of one directory, next to each other in the order, or a directory in it.
pub(super) struct Batch {
    /// Counted from 0.
    pub(super) number: usize,
    pub(super) dirs: Arc<Layers>,
    pub(super) files: Vec<(RelPath, Child)>,
}

impl Selection<'_> {
    /// The part of a path that patterns are matched against.
    fn relative<'p>(&self, path: &'p RelPath) -> &'p str {
        let rest = path.as_str().get(self.base.as_str().len()..).unwrap_or_default();
        rest.strip_prefix('/').unwrap_or(rest)
    }

    fn has_file(&self, path: &RelPath) -> bool {
        let passed = self.from.is_some_and(|from| match path.as_str().cmp(from) {
            Ordering::Less => true,
            Ordering::Equal => self.after,
            Ordering::Greater => false,
        });
        let relative = self.relative(path);
        !passed
            && (self.include.is_empty() || self.include.matches(relative))
            && (self.exclude.is_empty() || !self.exclude.matches(relative))
    }

    fn has_dir(&self, path: &RelPath) -> bool {
        let text = path.as_str();
        let passed = self.from.is_some_and(|from| {
            let is_on_the_way = from.strip_prefix(text).is_some_and(|rest| rest.starts_with('/'));
            !is_on_the_way && text.bytes().chain([b'/']).lt(from.bytes())
        });
        !passed && (self.exclude.is_empty() || !self.exclude.matches(self.relative(path)))
    }

    /// Tells whether a directory, which stands where its path with a `/` does, is itself one to be met.
    fn has_dir_itself(&self, path: &RelPath) -> bool {
        let is_passed = self.from.is_some_and(|from| path.as_str().bytes().chain([b'/']).le(from.bytes()));
        let relative = self.relative(path);
        self.directories
            && !is_passed
            && self.has_dir(path)
            && (self.include.is_empty() || self.include.matches(relative))
    }

    fn shows(&self, child: &Child) -> bool {
        self.hidden || !child.name.as_bytes().starts_with(b".")
    }
}

/// The order of two entries of one directory by the paths below them.
fn by_path(a: &Child, b: &Child) -> Ordering {
    fn bytes(child: &Child) -> impl Iterator<Item = &u8> {
        let slash: &[u8] = if child.kind == Kind::Directory { b"/" } else { b"" };
        child.name.as_bytes().iter().chain(slash)
    }
    bytes(a).cmp(bytes(b))
}

impl<'a> Ordered<'a> {
    /// Begins below the directory `dirs`, which lies at the base of `selection`, to meet at most `entries` entries.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub(super) fn new(
        dirs: Layers,
        selection: Selection<'a>,
        patience: &'a Patience,
        entries: usize,
    ) -> Result<Self> {
        let base = selection.base.clone();
        let room = Room::of_entries(entries);
        let mut walk = Self { selection, patience, room, way: Vec::new(), batches: 0, cut_at: None };
        walk.enter(dirs, base)?;
        Ok(walk)
    }

    /// The directory in which the walk was cut short; `None` when it was not.
    pub(super) fn cut_at(&self) -> Option<&RelPath> {
        self.cut_at.as_ref()
    }

    fn enter(&mut self, dirs: Layers, path: RelPath) -> Result<()> {
        if self.way.len() >= DEPTH_MAX {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        }
        let mut children = dirs.children()?;
        self.room.take_entries(children.len())?;
        children.retain(|child| self.selection.shows(child));
        if children.iter().any(|child| child.kind == Kind::Directory) {
            children.sort_unstable_by(by_path);
        }
        let level = Level { dirs: Arc::new(dirs), path, children: children.into_iter().peekable() };
        self.way.push(level);
        Ok(())
    }

    /// The next files in order; `None` at the end, and when the deadline has passed.
    ///
    /// # Errors
    /// As [`Ordered::new`]; [`Error::TooLarge`] for more bytes of paths than a walk holds.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            let Some(level) = self.way.last_mut() else { return Ok(None) };
            if self.patience.is_over() {
                self.cut_at = Some(level.path.clone());
                return Ok(None);
            }
            let mut files = Vec::new();
            while files.len() < BATCH_FILES
                && let Some(child) = level.children.next_if(|child| child.kind != Kind::Directory)
            {
                // Names that no path can hold, which commands can make, are passed over.
                let Some(path) = child.name.to_str().and_then(|name| level.path.join(name).ok()) else {
                    continue;
                };
                if self.selection.has_file(&path) {
                    self.room.take_path(path.as_str().len())?;
                    files.push((path, child));
                }
            }
            if !files.is_empty() {
                let number = self.batches;
                self.batches += 1;
                return Ok(Some(Batch { number, dirs: Arc::clone(&level.dirs), files }));
            }
            match level.children.next_if(|child| child.kind == Kind::Directory) {
                Some(child) => {
                    let met = Self::directory(&self.selection, level, &child);
                    self.descend(&child)?;
                    if let Some((path, dirs)) = met {
                        self.room.take_path(path.as_str().len())?;
                        let number = self.batches;
                        self.batches += 1;
                        return Ok(Some(Batch { number, dirs, files: vec![(path, child)] }));
                    }
                }
                // Nothing of the rest was wanted, or there is no rest.
                None if level.children.peek().is_some() => {}
                None => drop(self.way.pop()),
            }
        }
    }

    /// The directory `child` of a level and the directory that it lies in, if it is one to be met.
    fn directory(selection: &Selection<'_>, level: &Level, child: &Child) -> Option<(RelPath, Arc<Layers>)> {
        let path = child.name.to_str().and_then(|name| level.path.join(name).ok())?;
        selection.has_dir_itself(&path).then(|| (path, Arc::clone(&level.dirs)))
    }

    fn descend(&mut self, child: &Child) -> Result<()> {
        let Some(level) = self.way.last() else { return Ok(()) };
        let Some(path) = child.name.to_str().and_then(|name| level.path.join(name).ok()) else {
            return Ok(());
        };
        if !self.selection.has_dir(&path) {
            return Ok(());
        }
        match level.dirs.lookup(&child.name) {
            Ok(Some(Found::Directory(dirs, ..))) => self.enter(dirs, path),
            // A command removed or replaced it meanwhile, or closed it to all users.
            Ok(_)
            | Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_) | Error::Closed(_)) => {
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}

//! [`Counter`]: the walk that counts a tree.

use std::collections::HashSet;
use std::ffi::OsString;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::stat::Use;
use crate::stat::{Kind, Stat};

/// Levels that a count goes down, each with an open directory. The deepest of 29 818 published skills has 8.
const LEVELS_MAX: usize = 256;

/// The findings of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// All of it, or what was met before the count gave up.
    pub(crate) taken: Use,
    /// Whether all of it was met: false for a tree with more names or levels than a count visits.
    pub(crate) is_whole: bool,
}

/// Counts trees while commands may be changing them.
///
/// An entry that moves meanwhile may be counted twice or not at all. Directories that a command has closed to the
/// service are counted without what is in them.
pub(crate) struct Counter {
    counted: Counted,
    names_left: u64,
    /// Inode numbers of what was met and has several names.
    linked: HashSet<u64>,
}

/// A directory on the way down.
struct Level {
    dir: Dir,
    /// The directories in it that are yet to be visited.
    below: Vec<OsString>,
}

impl Counter {
    /// Counts at most `names` names.
    pub(crate) fn new(names: u64) -> Self {
        let counted = Counted { is_whole: true, ..Counted::default() };
        Self { counted, names_left: names, linked: HashSet::new() }
    }

    /// The room that all trees together take.
    pub(crate) fn end(self) -> Counted {
        self.counted
    }

    /// Adds a directory and everything in it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn tree(&mut self, dir: &Dir) -> Result<()> {
        self.add(&dir.stat()?);
        let below = self.entries(dir, &[])?;
        self.levels(dir, below)
    }

    /// Adds everything in a directory, which does not count itself, but for the entries with these inode numbers.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn contents_but(&mut self, dir: &Dir, known: &[u64]) -> Result<()> {
        let below = self.entries(dir, known)?;
        self.levels(dir, below)
    }

    fn levels(&mut self, dir: &Dir, below: Vec<OsString>) -> Result<()> {
        let mut levels = vec![Level { dir: dir.reopen()?, below }];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.below.pop() else {
                levels.pop();
                continue;
            };
            let opened = level.dir.open_dir_entry(&name);
            if levels.len() >= LEVELS_MAX {
                self.counted.is_whole = false;
            }
            if !self.counted.is_whole {
                break;
            }
            match opened {
                Ok(dir) => {
                    let below = self.entries(&dir, &[])?;
                    levels.push(Level { dir, below });
                }
                // Removed, replaced or closed by a command meanwhile.
                Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_) | Error::Closed(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Adds what lies in `dir` itself, but for what is `known`. Returns the names of the directories there.
    fn entries(&mut self, dir: &Dir, known: &[u64]) -> Result<Vec<OsString>> {
        let most = usize::try_from(self.names_left).unwrap_or(usize::MAX);
        let entries = match dir.first_entries(most.saturating_add(1)) {
            Err(Error::NotFound(_)) => Vec::new(),
            listed => listed?,
        };
        if entries.len() > most {
            self.counted.is_whole = false;
        }
        let mut directories = Vec::new();
        for entry in entries.into_iter().take(most) {
            interrupt::check()?;
            let Some(stat) = dir.stat_entry(&entry.name)? else { continue };
            if known.contains(&stat.inode) {
                continue;
            }
            self.names_left = self.names_left.saturating_sub(1);
            self.add(&stat);
            if stat.kind == Kind::Directory {
                directories.push(entry.name);
            }
        }
        Ok(directories)
    }

    fn add(&mut self, stat: &Stat) {
        let is_known = stat.kind != Kind::Directory && stat.links > 1 && !self.linked.insert(stat.inode);
        let bytes = if is_known { 0 } else { stat.allocated };
        self.counted.taken = self.counted.taken.plus(Use { bytes, files: 1 });
    }
}

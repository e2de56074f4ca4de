//! [`Chain`]: directories that are not there yet, each in the one before, and what the last of them begins with.
//!
//! A tree builds a chain aside and gives it its place with one rename, so that a reader, and a crash, finds all of it or
//! nothing.

use std::ffi::{OsStr, OsString};

use policy::RelPath;

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::durability::Durability;
use crate::layers::stage::StagedFile;
use crate::stat::Kind;

/// The permission bits of a directory that is made because something lies in it.
const PARENT_MODE: u32 = 0o755;

/// The content of a new directory, and its mode.
pub struct Chain<'a> {
    /// The directories below the first.
    below: Vec<OsString>,
    /// Permission bits of the last directory.
    mode: u32,
    content: Content<'a>,
}

/// Makes any number of files and directories in a new directory.
type Filling<'a> = Box<dyn FnOnce(&Dir) -> Result<()> + 'a>;

/// The content of the last directory.
enum Content<'a> {
    Nothing,
    File(OsString, StagedFile),
    Filling(Filling<'a>),
}

impl<'a> Chain<'a> {
    /// One empty directory with permission bits `mode`.
    pub(crate) fn of_directory(mode: u32) -> Self {
        Self { below: Vec::new(), mode, content: Content::Nothing }
    }

    /// The directories from `first` down to `last`, which lies in it or is it.
    pub(crate) fn of_directories(first: &RelPath, last: &RelPath) -> Self {
        let below = last.segments().skip(first.segments().count()).map(OsString::from).collect();
        Self { below, mode: PARENT_MODE, content: Content::Nothing }
    }

    /// The chain with permission bits `mode` for its last directory.
    pub(crate) fn ending_with(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// The chain with a file in its last directory.
    pub(crate) fn holding(self, name: &OsStr, file: StagedFile) -> Self {
        Self { content: Content::File(name.to_owned(), file), ..self }
    }

    /// The chain whose last directory `filling` fills, which makes nothing durable and gives nothing away.
    pub(crate) fn filled_by(self, filling: impl FnOnce(&Dir) -> Result<()> + 'a) -> Self {
        Self { content: Content::Filling(Box::new(filling)), ..self }
    }

    /// The chain in one more directory, in which its first has the name `first`.
    pub(crate) fn within_parent(mut self, first: &OsStr) -> Self {
        self.below.insert(0, first.to_owned());
        self
    }

    /// The chain with its file, if any, as `change` makes it.
    pub(crate) fn try_map_file(self, change: impl FnOnce(StagedFile) -> Result<StagedFile>) -> Result<Self> {
        let content = match self.content {
            Content::File(name, file) => Content::File(name, change(file)?),
            other => other,
        };
        Ok(Self { content, ..self })
    }

    /// Permission bits of the first directory.
    pub(crate) fn first_mode(&self) -> u32 {
        if self.below.is_empty() { self.mode } else { PARENT_MODE }
    }

    /// Makes what belongs into `first`, which is empty and which no reader sees, and gives all of it and `first` to `owner`.
    /// `put` gives the file its name. With strict durability all is on the disk afterwards.
    ///
    /// # Errors
    /// Those of `put` and of the filling; [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn fill(
        self,
        first: &Dir,
        owner: Option<u32>,
        durability: Durability,
        put: impl FnOnce(StagedFile, &Dir, &OsStr) -> Result<()>,
    ) -> Result<()> {
        let settle = |dir: &Dir, holds_any: bool| {
            if let Some(owner) = owner {
                dir.set_owner(owner)?;
            }
            if holds_any && durability == Durability::Strict { dir.sync() } else { Ok(()) }
        };
        let mut last = None;
        let mut left = self.below.len();
        for name in &self.below {
            left -= 1;
            let above = last.as_ref().unwrap_or(first);
            let below = above.create_dir(name, if left == 0 { self.mode } else { PARENT_MODE })?;
            settle(above, true)?;
            last = Some(below);
        }
        let last = last.as_ref().unwrap_or(first);
        match self.content {
            Content::Nothing => settle(last, false),
            Content::File(name, file) => {
                put(file, last, &name)?;
                settle(last, true)
            }
            Content::Filling(filling) => {
                filling(last)?;
                if let Some(owner) = owner {
                    give(last, owner, DEPTH_MAX)?;
                }
                settle(last, false)?;
                // One call for all that is in it.
                if durability == Durability::Strict { last.sync_file_system() } else { Ok(()) }
            }
        }
    }
}

/// Gives everything below `dir` to `owner`.
///
/// # Errors
/// [`Error::TooManyEntries`] beyond `levels`; [`Error::Io`]; those of [`interrupt::check`].
pub(crate) fn give(dir: &Dir, owner: u32, levels: usize) -> Result<()> {
    let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
    for entry in dir.entries()? {
        interrupt::check()?;
        if entry.kind == Kind::Directory {
            give(&dir.open_dir_entry(&entry.name)?, owner, levels)?;
        }
        dir.set_entry_owner(&entry.name, owner)?;
    }
    Ok(())
}

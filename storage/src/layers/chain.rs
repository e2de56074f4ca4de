//! [`Chain`]: directories that are not there yet, each in the one before, and the file that the last of them begins with.
//!
//! A tree builds a chain aside and gives it its place with one rename, so that a reader, and a crash, finds all of it or
//! nothing.

use std::ffi::{OsStr, OsString};

use policy::RelPath;

use crate::dir::Dir;
use crate::error::Result;
use crate::layers::durability::Durability;
use crate::layers::stage::StagedFile;

/// The permission bits of a directory that is made because something lies in it.
const PARENT_MODE: u32 = 0o755;

/// The content of a new directory, and its mode.
pub struct Chain {
    /// The directories below the first.
    below: Vec<OsString>,
    /// Permission bits of the last directory.
    mode: u32,
    file: Option<(OsString, StagedFile)>,
}

impl Chain {
    /// One empty directory with permission bits `mode`.
    pub(crate) fn of_directory(mode: u32) -> Self {
        Self { below: Vec::new(), mode, file: None }
    }

    /// The directories from `first` down to `last`, which lies in it or is it.
    pub(crate) fn of_directories(first: &RelPath, last: &RelPath) -> Self {
        let below = last.segments().skip(first.segments().count()).map(OsString::from).collect();
        Self { below, mode: PARENT_MODE, file: None }
    }

    /// The chain with permission bits `mode` for its last directory.
    pub(crate) fn ending_with(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// The chain with a file in its last directory.
    pub(crate) fn holding(self, name: &OsStr, file: StagedFile) -> Self {
        Self { file: Some((name.to_owned(), file)), ..self }
    }

    /// The chain in one more directory, in which its first has the name `first`.
    pub(crate) fn within_parent(mut self, first: &OsStr) -> Self {
        self.below.insert(0, first.to_owned());
        self
    }

    /// The chain with its file, if any, as `change` makes it.
    pub(crate) fn try_map_file(self, change: impl FnOnce(StagedFile) -> Result<StagedFile>) -> Result<Self> {
        let file = match self.file {
            Some((name, file)) => Some((name, change(file)?)),
            None => None,
        };
        Ok(Self { file, ..self })
    }

    /// Permission bits of the first directory.
    pub(crate) fn first_mode(&self) -> u32 {
        if self.below.is_empty() { self.mode } else { PARENT_MODE }
    }

    /// Makes what belongs into `first`, which is empty and which no reader sees, and gives all of it and `first` to `owner`.
    /// `put` gives the file its name. With strict durability all is on the disk afterwards.
    ///
    /// # Errors
    /// Those of `put`; [`Error::NoSpace`](crate::Error::NoSpace), [`Error::Io`](crate::Error::Io).
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
        let holds_any = self.file.is_some();
        if let Some((name, file)) = self.file {
            put(file, last, &name)?;
        }
        settle(last, holds_any)
    }
}

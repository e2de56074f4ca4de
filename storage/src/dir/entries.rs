//! Opening what is in a directory, listing it, and what is known of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;

use policy::RelPath;

use super::{Dir, Entry};
use crate::error::Result;
use crate::stat::Stat;

impl Dir {
    /// This directory as one of a published version: the files in it and below never change, and versions share them. What is known of a
    /// file, its entity tag too, then stays the same when other versions come and go ([`dirfd::frozen`]).
    #[must_use]
    pub(crate) fn frozen(self) -> Self {
        Self { is_frozen: true, ..self }
    }

    /// Tells whether files here can be told apart whatever other names they get.
    pub(crate) fn keeps_births(&self) -> bool {
        self.dir.keeps_births()
    }

    /// A directory that was opened by its name here.
    fn entry(&self, dir: dirfd::Dir) -> Self {
        Self { is_frozen: self.is_frozen, ..Self::from(dir) }
    }

    /// An opened file, and what is known of it.
    fn known(&self, file: File, stat: Stat) -> (File, Stat) {
        let stat = if self.is_frozen { dirfd::frozen(&file, stat) } else { stat };
        (file, stat)
    }

    /// Opens the entry `name` as a directory; a link is refused.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`NotADirectory`](crate::Error::NotADirectory) (also for a link).
    pub fn open_dir_entry(&self, name: &OsStr) -> Result<Self> {
        self.with_access(|| self.dir.open_dir_entry(name)).map(|dir| self.entry(dir))
    }

    /// Opens the entry `name` as a directory, giving the service access first when a command had closed it.
    ///
    /// No process may be changing this directory meanwhile.
    ///
    /// # Errors
    /// As [`Dir::open_dir_entry`].
    pub(crate) fn open_closed_dir(&self, name: &OsStr) -> Result<Self> {
        self.with_access(|| self.dir.open_closed_dir(name)).map(|dir| self.entry(dir))
    }

    /// Gives the service access to the file `name`, if there is one, when a command had closed it.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn open_up_file(&self, name: &OsStr) -> Result<()> {
        self.with_access(|| self.dir.open_up_file(name))
    }

    /// Opens the regular file `path` for reading, following links that stay beneath this directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`IsDirectory`](crate::Error::IsDirectory),
    /// [`NotAFile`](crate::Error::NotAFile), [`Escape`](crate::Error::Escape).
    pub fn open_file(&self, path: &RelPath) -> Result<(File, Stat)> {
        let (file, stat) = self.dir.open_file(path)?;
        Ok(self.known(file, stat))
    }

    /// Opens the entry `name` as a regular file for reading; a link is refused.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; [`Escape`](crate::Error::Escape) for a link.
    pub fn open_file_entry(&self, name: &OsStr) -> Result<(File, Stat)> {
        let (file, stat) = self.with_access(|| self.dir.open_file_entry(name))?;
        Ok(self.known(file, stat))
    }

    /// Lists the entries in the order of the directory, without `.` and `..`.
    ///
    /// A directory that commands fill takes [`Dir::entries_at_most`]: they can make more names than memory holds.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.with_access(|| self.dir.entries())
    }

    /// Lists the entries as [`Dir::entries`] does, if there are no more than `limit`.
    ///
    /// # Errors
    /// [`TooManyEntries`](crate::Error::TooManyEntries), [`Io`](crate::Error::Io).
    pub fn entries_at_most(&self, limit: usize) -> Result<Vec<Entry>> {
        self.with_access(|| self.dir.entries_at_most(limit))
    }

    /// Lists the first `most` entries that the directory gives.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub(crate) fn first_entries(&self, most: usize) -> Result<Vec<Entry>> {
        self.with_access(|| self.dir.first_entries(most))
    }

    /// Reads the target of the symbolic link `name`.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`Io`](crate::Error::Io) when it is no link.
    pub fn read_link(&self, name: &OsStr) -> Result<OsString> {
        Ok(self.dir.read_link(name)?)
    }

    /// Tells what the entry `name` is, without following it; `None` when there is none.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn stat_entry(&self, name: &OsStr) -> Result<Option<Stat>> {
        match self.is_frozen {
            true => self.with_access(|| self.dir.stat_frozen_entry(name)),
            false => self.with_access(|| self.dir.stat_entry(name)),
        }
    }

    /// Tells what this directory itself is.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn stat(&self) -> Result<Stat> {
        Ok(self.dir.stat()?)
    }

    /// Reads the extended attribute `name` of this directory, at most 2048 bytes; `None` when it has none.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.dir.attribute(name)?)
    }

    /// Bytes that its file system has left for processes without privileges.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(self.dir.free_bytes()?)
    }

    /// Another descriptor of this directory, for code that outlives it.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) when descriptors run out.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd> {
        Ok(self.dir.duplicate()?)
    }
}

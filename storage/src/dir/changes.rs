//! Changing what is in a directory: making, renaming, removing; modes and owners.

use std::ffi::{OsStr, OsString};
use std::fs::File;

use policy::RelPath;

use super::{Dir, PassingName};
use crate::error::Result;

impl Dir {
    /// Makes the regular file `name`, which must not exist, and opens it for reading and writing. `mode` is given exactly.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists), [`NoSpace`](crate::Error::NoSpace).
    pub fn create_file(&self, name: &OsStr, mode: u32) -> Result<File> {
        self.with_access(|| self.dir.create_file(name, mode))
    }

    /// Makes the regular file `path` as [`Dir::create_file`] does, in a directory that is there, through no link.
    ///
    /// # Errors
    /// As [`Dir::create_file`]; [`NotFound`](crate::Error::NotFound) without the directory,
    /// [`Escape`](crate::Error::Escape) for a link.
    pub(crate) fn create_file_beneath(&self, path: &RelPath, mode: u32) -> Result<File> {
        Ok(self.dir.create_file_beneath(path, mode)?)
    }

    /// Makes a regular file without a name, which [`Dir::link`] names; `None` where the file system has no such files.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), [`Io`](crate::Error::Io).
    pub(crate) fn create_unnamed(&self, mode: u32) -> Result<Option<File>> {
        Ok(self.dir.create_unnamed(mode)?)
    }

    /// As [`Dir::create_unnamed`]; where the file system has no such files, with the name `name` for the time being.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), [`Io`](crate::Error::Io).
    pub(crate) fn create_to_link(&self, mode: u32, name: OsString) -> Result<(File, Option<PassingName>)> {
        Ok(self.dir.create_to_link(mode, name)?)
    }

    /// Gives a file of [`Dir::create_unnamed`], or of [`Dir::create_to_link`], the name `name` here.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists), [`NotFound`](crate::Error::NotFound) when this directory has gone,
    /// [`NoSpace`](crate::Error::NoSpace).
    pub(crate) fn link(&self, file: &File, name: &OsStr) -> Result<()> {
        Ok(self.dir.link(file, name)?)
    }

    /// Makes the directory `name`, which must not exist, and opens it. `mode` is given exactly.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists), [`NoSpace`](crate::Error::NoSpace).
    pub fn create_dir(&self, name: &OsStr, mode: u32) -> Result<Self> {
        self.with_access(|| self.dir.create_dir(name, mode)).map(Self::from)
    }

    /// Opens the directory `name`, making it (mode 0755) when it is not there.
    ///
    /// # Errors
    /// [`NotADirectory`](crate::Error::NotADirectory), [`NoSpace`](crate::Error::NoSpace).
    pub fn ensure_dir(&self, name: &OsStr) -> Result<Self> {
        self.with_access(|| self.dir.ensure_dir(name)).map(Self::from)
    }

    /// Makes the kernel's whiteout under `name`: a character device 0:0.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists), [`NoSpace`](crate::Error::NoSpace).
    pub fn create_whiteout(&self, name: &OsStr) -> Result<()> {
        Ok(self.dir.create_whiteout(name)?)
    }

    /// Makes the symbolic link `name` to `target`, which may be any text.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists), [`NoSpace`](crate::Error::NoSpace).
    pub fn create_symlink(&self, target: &OsStr, name: &OsStr) -> Result<()> {
        Ok(self.dir.create_symlink(target, name)?)
    }

    /// Renames the entry `name` to `to_name` in `to`, replacing what a rename may replace (rename(2)).
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`NotEmpty`](crate::Error::NotEmpty),
    /// [`IsDirectory`](crate::Error::IsDirectory), [`NotADirectory`](crate::Error::NotADirectory).
    pub fn rename(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.between(to, || self.dir.rename(name, &to.dir, to_name))
    }

    /// Renames as [`Dir::rename`] but replaces nothing.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists), [`NotFound`](crate::Error::NotFound).
    pub fn rename_new(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.between(to, || self.dir.rename_new(name, &to.dir, to_name))
    }

    /// Lets `name` here and `to_name` in `to` change places in one step, of any kind.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) when either is missing.
    pub fn exchange(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.between(to, || self.dir.exchange(name, &to.dir, to_name))
    }

    /// Renames and leaves a whiteout under the old name, in one step.
    ///
    /// # Errors
    /// As [`Dir::rename`].
    pub fn rename_leaving_whiteout(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.between(to, || self.dir.rename_leaving_whiteout(name, &to.dir, to_name))
    }

    /// Does `act` in two directories, either of which something may have closed.
    fn between(&self, to: &Self, act: impl Fn() -> dirfd::Result<()>) -> Result<()> {
        to.with_access(|| self.retried(&act))
    }

    /// Removes the entry `name`, which is not a directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`IsDirectory`](crate::Error::IsDirectory).
    pub fn remove_file(&self, name: &OsStr) -> Result<()> {
        self.with_access(|| self.dir.remove_file(name))
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`NotEmpty`](crate::Error::NotEmpty),
    /// [`NotADirectory`](crate::Error::NotADirectory).
    pub fn remove_dir(&self, name: &OsStr) -> Result<()> {
        self.with_access(|| self.dir.remove_dir(name))
    }

    /// Removes the entry `name` with everything below it, following nothing; succeeds when there is none. Directories
    /// that a command closed are opened up first.
    ///
    /// # Errors
    /// [`Conflict`](crate::Error::Conflict) when a directory is moved meanwhile, [`NotEmpty`](crate::Error::NotEmpty) when it
    /// is filled again or has more than ten million entries, [`Io`](crate::Error::Io).
    pub fn remove_tree(&self, name: &OsStr) -> Result<()> {
        self.with_access(|| self.dir.remove_tree(name))
    }

    /// Removes what it can of `name` with at most `most` entries, as [`Dir::remove_tree`] does, taking directories of other
    /// users for the service. Tells whether nothing is left.
    ///
    /// # Errors
    /// As [`Dir::remove_tree`].
    pub(crate) fn remove_some(&self, name: &OsStr, most: u64) -> Result<bool> {
        self.with_access(|| self.dir.remove_some(name, most))
    }

    /// Sets the permission bits of this directory.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        Ok(self.dir.set_mode(mode)?)
    }

    /// Gives this directory to the user and group `owner`.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) without the privilege.
    pub fn set_owner(&self, owner: u32) -> Result<()> {
        Ok(self.dir.set_owner(owner)?)
    }

    /// Gives the entry `name`, which is not followed, to the user and group `owner`.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`Io`](crate::Error::Io) without the privilege.
    pub(crate) fn set_entry_owner(&self, name: &OsStr, owner: u32) -> Result<()> {
        Ok(self.dir.set_entry_owner(name, owner)?)
    }

    /// Sets the extended attribute `name` of this directory.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), also where the file system keeps no user attributes.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        Ok(self.dir.set_attribute(name, value)?)
    }

    /// Makes the entries of this directory durable (fsync(2) of the directory).
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn sync(&self) -> Result<()> {
        Ok(self.dir.sync()?)
    }

    /// Makes everything on this directory's file system durable (syncfs(2)): one call for a whole tree.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn sync_file_system(&self) -> Result<()> {
        Ok(self.dir.sync_file_system()?)
    }
}

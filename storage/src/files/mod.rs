//! [`Files`]: the operations on one tree, ordered against each other and conditional.

pub mod cached;
mod condition;
mod copy;
mod entries;
mod fill;
mod look;
pub mod patch;
pub mod search;
pub mod text;
mod update;
pub mod watch;
mod write;

pub use self::condition::Condition;
pub use self::look::Entry;
pub use self::update::encode;
pub use self::write::{WriteOptions, Written};

use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};

use policy::{RelPath, TreeId};

use crate::core::growth::Growth;
use crate::core::store::Store;
use crate::encoding::{self, TextEncoding};
use crate::error::{Error, Result};
use crate::layers::deferred::Deferred;
use crate::layers::tree::{Child, Opened, Tree, WalkOptions, Walked};
use crate::stat::{Layer, Stat};
use crate::version::Version;
use policy::WorkspaceId;

/// The operations on one tree.
#[derive(Clone)]
pub struct Files {
    store: Store,
    id: TreeId,
    /// A published version of the skill instead of what its user sees: it is only read.
    version: Option<Version>,
}

impl Store {
    /// The operations on the tree `id`.
    #[must_use]
    pub fn files(&self, id: TreeId) -> Files {
        Files { store: self.clone(), id, version: None }
    }
}

impl Files {
    /// The store and the tree these operations are on.
    pub(crate) fn parts(&self) -> (&Store, &TreeId) {
        (&self.store, &self.id)
    }

    /// The same on a published version of the skill instead of what its user sees. It cannot be changed.
    #[must_use]
    pub fn of_version(self, version: Option<Version>) -> Self {
        Self { version, ..self }
    }

    /// Tells whether these are the operations on a published version.
    pub(crate) fn is_of_version(&self) -> bool {
        self.version.is_some()
    }

    /// The published version that these are the operations on.
    pub(crate) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    pub(crate) fn read<T>(
        &self,
        path: &RelPath,
        operation: impl FnOnce(&dyn Tree) -> Result<T>,
    ) -> Result<T> {
        let _held = self.store.locks().read(&self.id);
        let tree = match &self.version {
            Some(version) => self.store.version_tree(&self.id, version),
            None => self.store.tree(&self.id),
        };
        match tree {
            Ok(tree) => operation(tree.as_ref()),
            // The sender asked for `path`, not for where its tree would lie.
            Err(Error::NotFound(_)) => Err(Error::NotFound(path.to_string())),
            Err(other) => Err(other),
        }
    }

    /// Runs a change alone on the tree and settles it after the lock is released.
    pub(crate) fn change<T>(&self, operation: impl FnOnce(&dyn Tree) -> Result<(T, Deferred)>) -> Result<T> {
        let changed = self.change_held(operation);
        let (value, deferred) = changed.map_err(|error| self.store.in_numbers(&self.id, error))?;
        deferred.settle(self.store.is_strict())?;
        Ok(value)
    }

    fn change_held<T>(
        &self,
        operation: impl FnOnce(&dyn Tree) -> Result<(T, Deferred)>,
    ) -> Result<(T, Deferred)> {
        if self.version.is_some() {
            return Err(Error::Conflict("a published version is never changed".to_owned()));
        }
        let _held = self.store.locks().write(&self.id);
        match self.store.tree_alone(&self.id) {
            // The first change of a workspace is tried aside, so that a refused one leaves nothing.
            Err(Error::NotFound(_)) if matches!(self.id, TreeId::Workspace(..)) => {
                let (tree, draft) = self.store.draft(&self.id)?;
                let own = Growth::of_dirs(1);
                let room = self.store.admit_user(self.id.user(), &own);
                let (value, deferred) = operation(&tree)?;
                let placed = room.and_then(|room| Ok((room, self.store.place_draft(&self.id, &draft)?)));
                // The operation has noted what is not there.
                let (room, above) = placed.inspect_err(|_| self.store.accounts().forget(&self.id))?;
                self.store.accounts().change(&self.id, &own);
                drop(room);
                self.store.uses().forget(&WorkspaceId::of(&self.id));
                Ok((value, deferred.and(Deferred::sync(above))))
            }
            Err(other) => Err(other),
            Ok(tree) => operation(tree.as_ref()),
        }
    }

    /// Notes what a change adds to the tree and takes from it.
    pub(crate) fn account(&self, growth: &Growth) {
        self.store.accounts().change(&self.id, growth);
    }

    /// A workspace that was never written to is an empty one.
    fn empty_if_unmade<T: Default>(&self, path: &RelPath, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::NotFound(_)) if path.is_root() && matches!(self.id, TreeId::Workspace(..)) => {
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Tells what `path` is; see [`Tree::stat`].
    ///
    /// # Errors
    /// As [`Tree::stat`].
    pub fn stat(&self, path: &RelPath) -> Result<(Stat, Layer)> {
        self.read(path, |tree| tree.stat(path))
    }

    /// Opens the file `path`; see [`Tree::open`].
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn open(&self, path: &RelPath) -> Result<Opened> {
        self.read(path, |tree| tree.open(path))
    }

    /// Reads where the link `path` points to; see [`Tree::read_link`].
    ///
    /// # Errors
    /// As [`Tree::read_link`].
    pub fn read_link(&self, path: &RelPath) -> Result<OsString> {
        self.read(path, |tree| tree.read_link(path))
    }

    /// Lists the directory `path`; see [`Tree::list_looking`].
    ///
    /// # Errors
    /// As [`Tree::list_looking`].
    pub fn list(&self, path: &RelPath) -> Result<Vec<(Child, Option<Stat>)>> {
        let limit = self.store.options().files.list_entries;
        let listed = self.read(path, |tree| tree.list_looking(path, limit));
        self.empty_if_unmade(path, listed)
    }

    /// Names the entries of the directory `path`, in any order, without looking at them.
    ///
    /// # Errors
    /// As [`Tree::list`].
    pub fn children(&self, path: &RelPath) -> Result<Vec<Child>> {
        let listed = self.read(path, |tree| tree.list(path));
        self.empty_if_unmade(path, listed)
    }

    /// Walks the directory `path`; see [`Tree::walk`]. Sorted by path.
    ///
    /// # Errors
    /// As [`Tree::walk`].
    pub fn walk(&self, path: &RelPath, depth: usize, look: bool) -> Result<Vec<Walked>> {
        let options = WalkOptions { depth, entries: self.store.options().files.tree_entries, look };
        let walked = self.read(path, |tree| tree.walk(path, options));
        let mut walked = self.empty_if_unmade(path, walked)?;
        walked.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(walked)
    }

    /// Reads a file of at most `limit` bytes whole.
    ///
    /// # Errors
    /// [`Error::TooLarge`], else as [`Tree::open`].
    pub fn read_whole(&self, path: &RelPath, limit: u64) -> Result<(Vec<u8>, Stat, Layer)> {
        let Opened { file, stat, layer } = self.open(path)?;
        let bytes = read_at_most(file, &stat, path, limit)?;
        Ok((bytes, stat, layer))
    }

    /// How the text `path` lies on the disk; UTF-8 when there is none, or nothing that is text.
    ///
    /// # Errors
    /// As [`Tree::open`], but for what is not there.
    pub fn encoding_of(&self, path: &RelPath, limit: u64) -> Result<TextEncoding> {
        match self.read_cached(path).map_or_else(|| self.read_whole(path, limit), Ok) {
            Ok((bytes, ..)) => Ok(encoding::decode(bytes).map(|(_, encoding)| encoding).unwrap_or_default()),
            Err(Error::NotFound(_) | Error::TooLarge { .. }) => Ok(TextEncoding::default()),
            Err(other) => Err(other),
        }
    }
}

/// Directories that a change in the directory `path` makes first: those that are missing, and those to be copied up.
pub(crate) fn dirs_to_make(tree: &dyn Tree, path: &RelPath) -> Result<u64> {
    let mut count = 0;
    let mut next = Some(path.clone());
    while let Some(path) = next {
        match tree.stat(&path) {
            Ok((_, Layer::Overlay | Layer::Workspace)) => break,
            Ok((_, Layer::Baseline)) | Err(Error::NotFound(_)) => count += 1,
            Err(other) => return Err(other),
        }
        next = path.parent();
    }
    Ok(count)
}

/// Reads an open file from its beginning, refusing more than `limit` bytes however it grows.
pub(crate) fn read_at_most(
    mut file: std::fs::File,
    stat: &Stat,
    path: &RelPath,
    limit: u64,
) -> Result<Vec<u8>> {
    let too_large = || Error::TooLarge { what: format!("`{path}`"), limit };
    if stat.size > limit {
        return Err(too_large());
    }
    file.seek(SeekFrom::Start(0)).map_err(|error| Error::from_io("seek", path, error))?;
    let mut bytes = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0));
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| Error::from_io("read", path, error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        return Err(too_large());
    }
    Ok(bytes)
}

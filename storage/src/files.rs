//! [`Files`]: the operations on one tree, ordered against each other and conditional.

pub mod cached;
mod copy;
mod fill;
mod look;
pub mod patch;
pub mod search;
pub mod text;
pub mod watch;

pub use self::look::Entry;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};

use policy::{RelPath, TreeId};

use crate::core::growth::Growth;
use crate::core::store::Store;
use crate::encoding::{self, TextEncoding};
use crate::error::{Error, Result, Unmet};
use crate::layers::chain::Chain;
use crate::layers::stage::StagedFile;
use crate::layers::tree::{Aftermath, Child, Opened, Replaced, Tree, WalkOptions, Walked};
use crate::stat::{ETag, Kind, Layer, Stat};
use policy::WorkspaceId;

/// How often a change of a file is worked out again when a command changes the file meanwhile.
const UPDATE_TRIES: usize = 8;

/// The condition for a change (RFC 9110, section 13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The path exists (`If-Match: *`).
    Exists,
    /// The path has one of these tags (`If-Match`).
    Matches(Vec<ETag>),
    /// The path does not exist (`If-None-Match: *`).
    Missing,
}

impl Condition {
    pub(crate) fn check(&self, path: &RelPath, existing: Option<&Stat>) -> Result<()> {
        let current = existing.map(Stat::etag);
        let holds = match (self, &current) {
            (Self::Always, _) => true,
            (Self::Exists, current) => current.is_some(),
            (Self::Missing, current) => current.is_none(),
            (Self::Matches(tags), Some(current)) => tags.contains(current),
            (Self::Matches(_), None) => false,
        };
        if holds {
            return Ok(());
        }
        let unmet = match (self, &current) {
            (_, None) => Unmet::Missing,
            (Self::Missing, Some(_)) => Unmet::Exists,
            (Self::Matches(tags), Some(_)) if tags.is_empty() => Unmet::Weak,
            (_, Some(_)) => Unmet::Changed,
        };
        Err(Error::Stale { path: path.to_string(), unmet, current })
    }
}

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The condition for the write.
    pub condition: Condition,
    /// Whether missing parent directories are made.
    pub parents: bool,
    /// Permission bits; `None` keeps those of the file replaced, or gives 0644.
    pub mode: Option<u32>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file as it is now.
    pub stat: Stat,
    /// Whether there was none before.
    pub created: bool,
}

/// The operations on one tree.
#[derive(Clone)]
pub struct Files {
    store: Store,
    id: TreeId,
}

impl Store {
    /// The operations on the tree `id`.
    #[must_use]
    pub fn files(&self, id: TreeId) -> Files {
        Files { store: self.clone(), id }
    }
}

/// Writes `text` as the file `path` has it in `encoding`.
///
/// # Errors
/// [`Error::Unencodable`] for a character that the encoding lacks.
pub fn encode<'t>(text: &'t str, encoding: TextEncoding, path: &str) -> Result<Cow<'t, [u8]>> {
    encoding::encode(text, encoding).map_err(|lacking| Error::unencodable(path, lacking))
}

impl Files {
    /// The store and the tree these operations are on.
    pub(crate) fn parts(&self) -> (&Store, &TreeId) {
        (&self.store, &self.id)
    }

    pub(crate) fn read<T>(
        &self,
        path: &RelPath,
        operation: impl FnOnce(&dyn Tree) -> Result<T>,
    ) -> Result<T> {
        let _held = self.store.locks().read(&self.id);
        match self.store.tree(&self.id) {
            Ok(tree) => operation(tree.as_ref()),
            // The sender asked for `path`, not for where its tree would lie.
            Err(Error::NotFound(_)) => Err(Error::NotFound(path.to_string())),
            Err(other) => Err(other),
        }
    }

    /// Runs a change alone on the tree and settles it after the lock is released.
    pub(crate) fn change<T>(&self, operation: impl FnOnce(&dyn Tree) -> Result<(T, Aftermath)>) -> Result<T> {
        let changed = self.change_held(operation);
        let (value, aftermath) = changed.map_err(|error| self.store.in_numbers(&self.id, error))?;
        aftermath.settle(self.store.is_strict())?;
        Ok(value)
    }

    fn change_held<T>(
        &self,
        operation: impl FnOnce(&dyn Tree) -> Result<(T, Aftermath)>,
    ) -> Result<(T, Aftermath)> {
        let _held = self.store.locks().write(&self.id);
        match self.store.tree_alone(&self.id) {
            // The first change of a workspace is tried aside, so that a refused one leaves nothing.
            Err(Error::NotFound(_)) if matches!(self.id, TreeId::Workspace(..)) => {
                let (tree, draft) = self.store.draft(&self.id)?;
                let own = Growth::of_dirs(1);
                let room = self.store.admit_user(self.id.user(), &own);
                let (value, aftermath) = operation(&tree)?;
                let placed = room.and_then(|room| Ok((room, self.store.place_draft(&self.id, &draft)?)));
                // The operation has noted what is not there.
                let (room, above) = placed.inspect_err(|_| self.store.accounts().forget(&self.id))?;
                self.store.accounts().change(&self.id, &own);
                drop(room);
                self.store.uses().forget(&WorkspaceId::of(&self.id));
                Ok((value, aftermath.and(Aftermath::sync(above))))
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

    /// Begins a file that [`Files::write`] will place.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn stage(&self) -> Result<StagedFile> {
        self.store.admit_space()?;
        let (stage, owner) = (self.store.stage(), self.store.owner(&self.id));
        let staged = match (&self.id, self.store.seat(&self.id)) {
            (TreeId::Workspace(..), _) => stage.file(0o644, owner)?,
            (TreeId::Skill(..), None) => stage.file(0o644, None)?,
            (TreeId::Skill(..), Some(seat)) => {
                let root = seat.root()?;
                stage.file_in_view(0o644, owner, seat, &root)?
            }
        };
        Ok(staged.counted(self.store.flight_to(&self.id)))
    }

    /// Puts a staged file at `path` in one step.
    ///
    /// # Errors
    /// [`Error::Stale`] when the condition does not hold; [`Error::Quota`], [`Error::Full`]; else as [`Tree::put`].
    pub fn write(&self, path: &RelPath, mut file: StagedFile, options: &WriteOptions) -> Result<Written> {
        if self.store.is_strict()
            && let Some(mode) = options.mode.or_else(|| self.peek(path).map(|stat| stat.mode))
        {
            // Made durable together with the bytes. `place` sets it when it changed meanwhile.
            file.set_mode(mode)?;
        }
        file.finish()?;
        let _alone = self.store.locks().file(&self.id, path);
        self.place(path, file, options)
    }

    /// Refuses what is on its way into the tree when it has no room there, so that it need not come whole to be refused.
    /// It is to take the place of `path`.
    ///
    /// # Errors
    /// [`Error::Quota`], [`Error::Countless`], [`Error::Full`].
    pub fn admit_arriving(&self, path: &RelPath) -> Result<()> {
        let replaced = self.peek(path).map_or(0, |stat| stat.allocated);
        self.store.admit_arriving(&self.id, replaced)
    }

    /// The entry at `path` at the moment, if there is one.
    fn peek(&self, path: &RelPath) -> Option<Stat> {
        match self.open_cached(path) {
            Some(opened) => Some(opened.stat),
            None => self.stat(path).ok().map(|(stat, _)| stat),
        }
    }

    /// Places a finished file. The caller holds the file's lock.
    fn place(&self, path: &RelPath, mut file: StagedFile, options: &WriteOptions) -> Result<Written> {
        self.change(|tree| {
            file = tree.suited(file)?;
            let handle = file.file().try_clone().map_err(|error| Error::from_io("dup", path, error))?;
            let mut created = false;
            let (mut growth, mut admitted) = (Growth::REMOVAL, None);
            let mut admit = |replaced: Replaced<'_>, file: &mut StagedFile| {
                let existing = replaced.existing.map(|(stat, _)| stat);
                if existing.is_some_and(|stat| stat.kind == Kind::Directory) {
                    return Err(Error::IsDirectory(path.to_string()));
                }
                options.condition.check(path, existing)?;
                if let Some(mode) = options.mode.or(existing.map(|stat| stat.mode)) {
                    file.set_mode(mode)?;
                }
                created = existing.is_none();
                growth = Growth::of_file(&replaced, file)?;
                admitted = Some(self.store.admit(&self.id, &growth)?);
                Ok(())
            };
            let parent = path.parent().filter(|parent| options.parents && !parent.is_root());
            let lacking = match parent {
                Some(parent) => tree.first_missing(&parent)?.map(|_| parent),
                None => None,
            };
            let aftermath = match lacking {
                Some(parent) => {
                    let made_dirs = dirs_to_make(tree, &parent)?;
                    admit(Replaced { made_dirs, ..Replaced::default() }, &mut file)?;
                    tree.put_with_parents(path, file)?
                }
                None => tree.put_if(path, file, &mut admit)?,
            };
            self.account(&growth);
            drop(admitted);
            // Looked at again: the rename moved the change time, which the tag holds.
            let stat = rustix::fs::fstat(&handle).map_err(|errno| Error::from_errno("stat", path, errno))?;
            Ok((Written { stat: stat.into(), created }, aftermath))
        })
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

    /// Changes the content of a text file in one step: no change by another request comes between.
    ///
    /// `change` gets the text (`None` when there is no file) and returns the new one; it is called again when a
    /// command changed the file meanwhile. The text is written in the encoding that it was in.
    ///
    /// # Errors
    /// The error of `change`; [`Error::NotText`], [`Error::TooLarge`] beyond `limit` bytes before or after;
    /// [`Error::Unencodable`]; [`Error::Stale`]; [`Error::Conflict`] when commands keep changing the file; else as [`Tree::put`].
    pub fn update(
        &self,
        path: &RelPath,
        options: &WriteOptions,
        limit: u64,
        change: &mut dyn FnMut(Option<&str>) -> Result<String>,
    ) -> Result<(Written, TextEncoding)> {
        let _alone = self.store.locks().file(&self.id, path);
        for _ in 0..UPDATE_TRIES {
            let cached = self.read_cached(path).filter(|(_, stat, _)| stat.size <= limit);
            let before = match cached.map_or_else(|| self.read_whole(path, limit), Ok) {
                Ok((bytes, stat, _)) => {
                    let decoded = encoding::decode(bytes).ok_or_else(|| Error::NotText(path.to_string()))?;
                    Some((decoded, stat))
                }
                Err(Error::NotFound(_)) => None,
                Err(other) => return Err(other),
            };
            let stat = before.as_ref().map(|(_, stat)| stat);
            options.condition.check(path, stat)?;
            let encoding = before.as_ref().map(|((_, encoding), _)| *encoding).unwrap_or_default();
            let text = change(before.as_ref().map(|((text, _), _)| text.as_str()))?;
            let bytes = encode(&text, encoding, path.as_str())?;
            if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
                return Err(Error::TooLarge { what: format!("`{path}` after the change"), limit });
            }
            let mut file = self.stage()?;
            file.write(&bytes)?;
            if let Some(mode) = options.mode.or(stat.map(|stat| stat.mode)) {
                file.set_mode(mode)?;
            }
            file.finish()?;
            let unchanged = match stat {
                Some(stat) => Condition::Matches(vec![stat.etag()]),
                None => Condition::Missing,
            };
            match self.place(path, file, &WriteOptions { condition: unchanged, ..options.clone() }) {
                Err(Error::Stale { .. }) => {}
                placed => return placed.map(|written| (written, encoding)),
            }
        }
        Err(Error::Conflict(format!(
            "`{path}` keeps changing: try again when the command that writes it is done"
        )))
    }

    /// Makes the directory `path`; see [`Tree::make_dir`]. Tells whether it was not there.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] unless `parents`; [`Error::Quota`]; else as [`Tree::make_dir`].
    pub fn make_dir(&self, path: &RelPath, mode: u32, parents: bool) -> Result<bool> {
        self.change(|tree| {
            let (mut growth, mut admitted) = (Growth::REMOVAL, None);
            if let (Some(parent), None) = (path.parent(), tree.stat_entry(path)?) {
                growth = Growth::of_dirs(dirs_to_make(tree, &parent)?.saturating_add(1));
                admitted = Some(self.store.admit(&self.id, &growth)?);
            }
            let made = match parents.then(|| tree.first_missing(path)).transpose()?.flatten() {
                Some(first) => tree.make_chain(&first, Chain::of_directories(&first, path).ending_with(mode)),
                None => tree.make_dir(path, mode),
            };
            match made {
                Ok(aftermath) => {
                    self.account(&growth);
                    drop(admitted);
                    Ok((true, aftermath))
                }
                Err(Error::AlreadyExists(_))
                    if parents && tree.stat(path).is_ok_and(|(stat, _)| stat.kind == Kind::Directory) =>
                {
                    Ok((false, Aftermath::default()))
                }
                Err(other) => Err(other),
            }
        })
    }

    /// Renames `from` to `to`; see [`Tree::rename`]. `condition` is of `from`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when `to` is there and `overwrite` is not set; [`Error::Stale`]; [`Error::Quota`] when
    /// what is renamed must be copied up; else as [`Tree::rename`].
    pub fn rename(&self, from: &RelPath, to: &RelPath, overwrite: bool, condition: &Condition) -> Result<()> {
        self.change(|tree| {
            let existing = tree.stat_entry(from)?.map(|(stat, _)| stat);
            condition.check(from, existing.as_ref())?;
            if existing.is_none() {
                return Err(Error::NotFound(from.to_string()));
            }
            if !overwrite && tree.stat_entry(to)?.is_some() {
                return Err(Error::AlreadyExists(to.to_string()));
            }
            let copied = tree.copied_by_rename(from, self.store.options().files.tree_entries)?;
            let growth = Growth { adds: copied, ..Growth::REMOVAL };
            if copied.bytes > 0 {
                self.store.admit_space_for(copied.bytes)?;
            }
            let admitted = self.store.admit(&self.id, &growth)?;
            self.account(&growth);
            drop(admitted);
            Ok(((), tree.rename(from, to)?))
        })
    }

    /// Removes `path`; see [`Tree::remove`].
    ///
    /// # Errors
    /// [`Error::NotEmpty`] for a directory with entries unless `recursive`, [`Error::Stale`], else as
    /// [`Tree::remove`].
    pub fn remove(&self, path: &RelPath, recursive: bool, condition: &Condition) -> Result<()> {
        self.change(|tree| {
            let existing = tree.stat_entry(path)?.map(|(stat, _)| stat);
            condition.check(path, existing.as_ref())?;
            match existing {
                None => return Err(Error::NotFound(path.to_string())),
                Some(stat) if stat.kind == Kind::Directory && !recursive && !is_empty(tree, path)? => {
                    return Err(Error::NotEmpty(path.to_string()));
                }
                Some(_) => {}
            }
            let removed = tree.remove(path)?;
            self.account(&Growth::REMOVAL);
            Ok(((), removed))
        })
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

/// Tells whether the directory `path` has no entries, however many it has.
fn is_empty(tree: &dyn Tree, path: &RelPath) -> Result<bool> {
    match tree.list_looking(path, 0) {
        Ok(_) => Ok(true),
        Err(Error::TooManyEntries(_)) => Ok(false),
        Err(other) => Err(other),
    }
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

//! [`Tree`]: what every tree can do, with any layers below it.
//!
//! Three implementations: [`Union`](crate::layers::union::Union), a merged view in user space;
//! [`Live`](crate::layers::live), the same while the kernel has it mounted for commands; and
//! [`Plain`](crate::layers::plain::Plain), a directory as it is (a workspace). One suite holds all to this contract, and an
//! oracle holds the first two to the kernel's own overlayfs.
//!
//! The words:
//!
//! * *leaf*: an entry that is not a directory;
//! * *follow*: paths are walked through symbolic links as long as they stay in the tree; an absolute link leads where it
//!   leads inside a run, `/workspace/a` to `a` of a workspace; a link out of the tree, and more than 40 links, are
//!   [`Error::Escape`];
//! * *no locks*: two calls on one tree are ordered by the caller (see [`crate::core::store`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;

use policy::RelPath;

use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::layers::deferred::Deferred;
use crate::layers::room::Room;
use crate::layers::stage::StagedFile;
use crate::stat::Use;
use crate::stat::{Kind, Layer, Stat};

/// Symbolic links followed for one path, as many as the kernel follows (path_resolution(7)).
pub(crate) const LINKS_MAX: usize = 40;

/// Entries of a directory that is listed without a limit of the caller's: a command can make more names than memory
/// holds.
pub(crate) const LISTED_MAX: usize = 1_000_000;

/// A file opened for reading.
#[derive(Debug)]
pub struct Opened {
    /// The open file, regular and at its beginning.
    pub file: File,
    /// Its facts.
    pub stat: Stat,
    /// Which layer it comes from.
    pub layer: Layer,
}

/// One entry of a directory of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its name; any bytes but `/` and NUL, because commands make names too.
    pub name: OsString,
    /// Its kind.
    pub kind: Kind,
    /// Which layer it comes from; of a merged directory, the upper one.
    pub layer: Layer,
}

/// One entry met on a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Path from the tree's root.
    pub path: RelPath,
    /// Its kind.
    pub kind: Kind,
    /// Which layer it comes from.
    pub layer: Layer,
    /// The facts of the entry; `None` unless the walk was to look.
    pub stat: Option<Stat>,
}

/// How a walk goes.
#[derive(Clone, Copy, Debug)]
pub struct WalkOptions {
    /// Levels below the beginning; 1 lists one directory.
    pub depth: usize,
    /// Entries before the walk is refused.
    pub entries: usize,
    /// Whether to look at each entry ([`Walked::stat`]).
    pub look: bool,
}

/// Reads the links among `children` with `read`.
pub(crate) fn targets(
    children: &[Child],
    read: impl Fn(&Child) -> Result<OsString>,
) -> Result<Vec<Option<OsString>>> {
    let mut room = Room::of_entries(children.len());
    let target = |child: &Child| {
        if child.kind != Kind::Symlink {
            return Ok(None);
        }
        match read(child) {
            Ok(target) => {
                room.take_path(target.len())?;
                Ok(Some(target))
            }
            // A command removed or replaced it meanwhile.
            Err(Error::NotFound(_) | Error::Io { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    };
    children.iter().map(target).collect()
}

/// The entries that a walk has met.
pub(crate) struct Met {
    pub(crate) entries: Vec<Walked>,
    pub(crate) room: Room,
}

impl Met {
    pub(crate) fn new(options: WalkOptions) -> Self {
        Self { entries: Vec::new(), room: Room::of_entries(options.entries) }
    }
}

/// The entry that a file is to replace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replaced<'a> {
    /// The present entry, and its layer; `None` when there is none.
    pub existing: Option<(&'a Stat, Layer)>,
    /// Directories that the change makes above it.
    pub made_dirs: u64,
    /// Whether what looks like nothing may be a whiteout.
    pub may_be_whiteout: bool,
}

/// Decides whether a file may take the place of what is there.
pub type Admit<'a> = dyn FnMut(Replaced<'_>, &mut StagedFile) -> Result<()> + 'a;

/// A tree of files.
pub trait Tree {
    /// Tells what `path` is, following links; the root is a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Escape`].
    fn stat(&self, path: &RelPath) -> Result<(Stat, Layer)>;

    /// Tells what `path` itself is, which may be a link; `None` when there is nothing.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Escape`].
    fn stat_entry(&self, path: &RelPath) -> Result<Option<(Stat, Layer)>>;

    /// Opens the regular file `path`, following links.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotAFile`], [`Error::Escape`].
    fn open(&self, path: &RelPath) -> Result<Opened>;

    /// Reads where the link `path` points to.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`] when it is no link.
    fn read_link(&self, path: &RelPath) -> Result<OsString>;

    /// Reads where the links among `children`, entries of the directory `path`, point to; `None` for other entries and
    /// for links that are gone.
    ///
    /// # Errors
    /// As [`Tree::list`]; [`Error::TooLarge`] for more bytes of targets than 256 an entry.
    fn read_links(&self, path: &RelPath, children: &[Child]) -> Result<Vec<Option<OsString>>>;

    /// Lists the directory `path`, sorted by the bytes of the names.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Escape`].
    fn list(&self, path: &RelPath) -> Result<Vec<Child>>;

    /// Lists the directory `path` as [`Tree::list`] does and looks at each of at most `entries` entries.
    ///
    /// An entry that a command removes meanwhile has no [`Stat`].
    ///
    /// # Errors
    /// As [`Tree::list`]; [`Error::TooManyEntries`].
    fn list_looking(&self, path: &RelPath, entries: usize) -> Result<Vec<(Child, Option<Stat>)>>;

    /// Walks the directory `path`, following no link, and returns what it meets in no particular order.
    ///
    /// Names that no [`RelPath`] can hold (not UTF-8, control characters) are passed over.
    ///
    /// # Errors
    /// As [`Tree::list`]; [`Error::TooManyEntries`]; [`Error::TooLarge`] for more bytes of paths than 256 an entry.
    fn walk(&self, path: &RelPath, options: WalkOptions) -> Result<Vec<Walked>>;

    /// Brings a staged file to where this tree can place it, copying it when it is elsewhere.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    fn suited(&self, file: StagedFile) -> Result<StagedFile> {
        file.into_stage()
    }

    /// Makes `file` visible as `path`, replacing a leaf. A link there is followed. The parent must exist.
    ///
    /// # Errors
    /// [`Error::NotFound`] without a parent, [`Error::IsDirectory`], [`Error::NotAFile`], [`Error::Escape`].
    fn put(&self, path: &RelPath, file: StagedFile) -> Result<Deferred> {
        self.put_if(path, file, &mut |_, _| Ok(()))
    }

    /// As [`Tree::put`], once `admit` agrees; before that, nothing is changed.
    ///
    /// `admit` gets what is at `path` now and may still change the file's mode. It may be asked twice.
    ///
    /// # Errors
    /// The error of `admit`, else as [`Tree::put`].
    fn put_if(&self, path: &RelPath, file: StagedFile, admit: &mut Admit<'_>) -> Result<Deferred>;

    /// Makes the link `path` with any `target`, replacing a leaf. The parent must exist.
    ///
    /// # Errors
    /// As [`Tree::put`].
    fn put_link(&self, path: &RelPath, target: &OsStr) -> Result<Deferred>;

    /// Makes the directory `path` with permission bits `mode`. The parent must exist.
    ///
    /// # Errors
    /// [`Error::NotFound`] without a parent, [`Error::AlreadyExists`].
    fn make_dir(&self, path: &RelPath, mode: u32) -> Result<Deferred> {
        self.make_chain(path, Chain::of_directory(mode))
    }

    /// Makes the directory `path` with what `chain` has in it, in one step. The parent must exist.
    ///
    /// # Errors
    /// As [`Tree::make_dir`].
    fn make_chain(&self, path: &RelPath, chain: Chain<'_>) -> Result<Deferred>;

    /// The uppermost directory on the way to `path`, or `path` itself, that is not there.
    ///
    /// # Errors
    /// As [`Tree::stat`], but for what is not there.
    fn first_missing(&self, path: &RelPath) -> Result<Option<RelPath>> {
        let mut missing = None;
        let mut next = Some(path.clone()).filter(|path| !path.is_root());
        while let Some(path) = next {
            match self.stat(&path) {
                Ok(_) => break,
                Err(Error::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
            next = path.parent().filter(|parent| !parent.is_root());
            missing = Some(path);
        }
        Ok(missing)
    }

    /// Sets the permission bits of the file or directory `path`; a link is not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAFile`].
    fn set_mode(&self, path: &RelPath, mode: u32) -> Result<Deferred>;

    /// Renames `from`, which may be a directory, to `to`, replacing a leaf but never a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`] when `to` is one, [`Error::NotADirectory`] when `from` is a
    /// directory and `to` a leaf, [`Error::IntoItself`].
    fn rename(&self, from: &RelPath, to: &RelPath) -> Result<Deferred>;

    /// The room of the entries that [`Tree::rename`] of `from` copies from a layer below, and so adds to the tree; of
    /// at most `entries` entries.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooManyEntries`].
    fn copied_by_rename(&self, from: &RelPath, entries: usize) -> Result<Use> {
        let _ = (from, entries);
        Ok(Use::default())
    }

    /// The room that [`Tree::copy_dir`] of `from` adds to the tree; of at most `entries` entries.
    ///
    /// # Errors
    /// As [`Tree::copy_dir`]; [`Error::Escape`] for another owner's file that a command linked in;
    /// [`Error::TooManyEntries`].
    fn taken_by_copy(&self, from: &RelPath, entries: usize) -> Result<Use>;

    /// Copies the directory `from`, following a link there, with everything in it to `to`, where nothing may be. The
    /// parent must exist. Sockets, pipes and devices are left out.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::AlreadyExists`] or its like when something is at `to`.
    fn copy_dir(&self, from: &RelPath, to: &RelPath) -> Result<Deferred>;

    /// Removes `path`, a directory with everything in it; a link is not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IsDirectory`] for the root.
    fn remove(&self, path: &RelPath) -> Result<Deferred>;

    /// Makes the directory `path` and every missing one above it, mode 0755, in one step; succeeds when it is there.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Escape`].
    fn make_dirs(&self, path: &RelPath) -> Result<Deferred> {
        match self.first_missing(path)? {
            Some(first) => self.make_chain(&first, Chain::of_directories(&first, path)),
            None if path.is_root() => Ok(Deferred::default()),
            None => match self.stat(path)?.0.kind {
                Kind::Directory => Ok(Deferred::default()),
                _ => Err(Error::NotADirectory(path.to_string())),
            },
        }
    }

    /// As [`Tree::put`], with every missing directory above `path`, mode 0755: the file is there with them or none is.
    ///
    /// # Errors
    /// As [`Tree::put`] and [`Tree::make_dirs`].
    fn put_with_parents(&self, path: &RelPath, file: StagedFile) -> Result<Deferred> {
        let Some((parent, name)) = path.parent().zip(path.file_name()) else { return self.put(path, file) };
        match self.first_missing(&parent)? {
            Some(first) => {
                let chain = Chain::of_directories(&first, &parent).holding(OsStr::new(name), file);
                self.make_chain(&first, chain)
            }
            None => self.put(path, file),
        }
    }
}

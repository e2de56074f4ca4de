//! [`Live`]: changes of a merged view through the kernel's own mount of it.
//!
//! Reads go to the layers, as those of every merged view do ([`Union`]); so do conditions, because the mount has
//! inode numbers of its own for what was copied up, and a tag must not depend on whether a command runs.
//!
//! A new entry is made aside and gets its owner before it gets its name. Aside is the root of the mount: a file without
//! a name ([`Dir::create_unnamed`]), or an entry of a temporary name for as long as it takes to fill it. A service
//! that dies between them leaves that entry; the next one removes it.

use std::ffi::{OsStr, OsString};

use policy::RelPath;

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::layers::copy_merged::copy_tree;
use crate::layers::deferred::Deferred;
use crate::layers::durability::Durability;
use crate::layers::names::TEMPORARY_PREFIX;
use crate::layers::plain::{Plain, replaceable};
use crate::layers::stack::{Found, Layers};
use crate::layers::stage::StagedFile;
use crate::layers::tree::{Admit, Child, Opened, Replaced, Tree, WalkOptions, Walked};
use crate::layers::union::Union;
use crate::layers::view::ViewLease;
use crate::layers::walk::{LastLink, Level, Resolved};
use crate::stat::Use;
use crate::stat::{Kind, Layer, Stat};

/// Tells whether `name` is one that a change through a view has for a moment.
pub(crate) fn is_temporary_name(name: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let rest = name.strip_prefix(TEMPORARY_PREFIX).and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(session, number)| session.len() == 16 && is_hex(session) && is_hex(number))
}

/// A merged view that is mounted.
pub(crate) struct Live {
    // Before the seat, which is in `union`: as long as a file in it is open a mount does not go.
    mounted: Plain,
    union: Union,
}

/// A temporary name in the root of the mount. What has it is removed when this is dropped.
struct Temporary<'a> {
    root: &'a Dir,
    name: OsString,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        match self.root.remove_tree(&self.name) {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => tracing::warn!(%error, "a temporary entry stays in an overlay"),
        }
    }
}

impl Live {
    /// The view that `union` has a seat in; `mounted` is the root of its mount.
    pub(crate) fn new(mounted: Plain, union: Union) -> Self {
        Self { mounted, union }
    }

    fn temporary(&self) -> Temporary<'_> {
        Temporary { root: &self.mounted.dir, name: self.mounted.stage.temporary_name() }
    }

    fn is_strict(&self) -> bool {
        self.mounted.stage.durability() == Durability::Strict
    }

    /// The work left after a change in the last of `levels`, as they were before it.
    ///
    /// With strict durability that is each directory that the kernel copied up on the way, and the one it lies in.
    fn settled(&self, levels: &[Level]) -> Result<Deferred> {
        let mut deferred = Deferred {
            seats: self.union.seat.iter().map(ViewLease::another).collect(),
            ..Deferred::default()
        };
        if !self.is_strict() {
            return Ok(deferred);
        }
        let mut dir = self.mounted.dir.reopen()?;
        // The first two are the levels of the agent and of the skill, which are there as long as the view is.
        for level in levels.iter().skip(2) {
            let below = dir.open_dir_entry(&level.name)?;
            if level.dirs.upper.is_none() {
                deferred.sync.push(dir);
            }
            dir = below;
        }
        deferred.sync.push(dir);
        Ok(deferred)
    }

    /// The directories on the way to `path`, as they are before a change.
    fn levels(&self, path: &RelPath) -> Result<Vec<Level>> {
        Ok(self.union.resolve(path, LastLink::Keep)?.levels)
    }

    /// Gives `name` in `parent` what has the temporary name, in one step, replacing a leaf.
    fn put_over(&self, made: &Temporary<'_>, parent: &Dir, name: &OsStr) -> Result<()> {
        made.root.rename(&made.name, parent, name)
    }

    /// Moves a directory that the baseline has a part in, which overlayfs refuses to rename (EXDEV): a whole copy
    /// under the new name, then the removal of the old one, as mv(1) does.
    ///
    /// A service that dies in between leaves both. What a command changes in it meanwhile may be lost, as with mv.
    fn move_by_copying(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let Resolved { last: Some((_, Some(Found::Directory(dirs, ..)))), .. } =
            self.union.resolve(from, LastLink::Keep)?
        else {
            return Err(Error::NotFound(from.to_string()));
        };
        let (source, name) = self.mounted.parent_of(from)?;
        let (target, to_name) = self.mounted.parent_of(to)?;
        self.copy_in(&dirs, from, &target, &to_name)?;
        source.remove_tree(&name)
    }

    /// Copies the directory `dirs`, which lies at `from`, to `name` in `target`, which must not exist: made aside, then
    /// put in its place in one step.
    fn copy_in(&self, dirs: &Layers, from: &RelPath, target: &Dir, name: &OsStr) -> Result<()> {
        let mode = dirs.stat()?.0.mode;
        let temporary = self.temporary();
        let copy = temporary.root.create_dir(&temporary.name, mode | 0o700)?;
        copy_tree(dirs, &copy, self.mounted.owner, DEPTH_MAX).map_err(|error| match error {
            Error::NotFound(_) | Error::NotADirectory(_) | Error::IsDirectory(_) | Error::NotAFile(_) => {
                Error::Conflict(format!("a command changes `{from}` while it is being copied: try again"))
            }
            other => other,
        })?;
        copy.set_mode(mode)?;
        self.give(&copy)?;
        if self.is_strict() {
            copy.sync_file_system()?;
        }
        temporary.root.rename_new(&temporary.name, target, name)
    }

    fn give(&self, dir: &Dir) -> Result<()> {
        self.mounted.owner.map_or(Ok(()), |owner| dir.set_owner(owner))
    }
}

impl Tree for Live {
    fn stat(&self, path: &RelPath) -> Result<(Stat, Layer)> {
        self.union.stat(path)
    }

    fn stat_entry(&self, path: &RelPath) -> Result<Option<(Stat, Layer)>> {
        self.union.stat_entry(path)
    }

    fn open(&self, path: &RelPath) -> Result<Opened> {
        self.union.open(path)
    }

    fn read_link(&self, path: &RelPath) -> Result<OsString> {
        self.union.read_link(path)
    }

    fn read_links(&self, path: &RelPath, children: &[Child]) -> Result<Vec<Option<OsString>>> {
        self.union.read_links(path, children)
    }

    fn list(&self, path: &RelPath) -> Result<Vec<Child>> {
        self.union.list(path)
    }

    fn list_looking(&self, path: &RelPath, entries: usize) -> Result<Vec<(Child, Option<Stat>)>> {
        self.union.list_looking(path, entries)
    }

    fn walk(&self, path: &RelPath, options: WalkOptions) -> Result<Vec<Walked>> {
        self.union.walk(path, options)
    }

    fn suited(&self, file: StagedFile) -> Result<StagedFile> {
        match &self.union.seat {
            Some(seat) => file.into_view(seat, &self.mounted.dir, self.mounted.owner),
            None => Ok(file),
        }
    }

    fn put_if(&self, path: &RelPath, file: StagedFile, admit: &mut Admit<'_>) -> Result<Deferred> {
        let mut file = self.suited(file)?;
        if path.is_root() {
            return Err(Error::IsDirectory(path.to_string()));
        }
        let resolved = match self.union.resolve(path, LastLink::Follow) {
            Err(Error::NotFound(missing)) => {
                admit(Replaced::default(), &mut file)?;
                return Err(Error::NotFound(missing));
            }
            resolved => resolved?,
        };
        let Some((_, found)) = &resolved.last else { return Err(Error::IsDirectory(path.to_string())) };
        let existing = found.as_ref().map(Found::stat_of);
        admit(resolved.replaced(), &mut file)?;
        replaceable(existing, path)?;
        let (parent, name) = self.mounted.target(path)?;
        let linked = match existing {
            None => file.link(&parent, &name),
            Some(_) => Err(Error::AlreadyExists(path.to_string())),
        };
        match linked {
            Err(Error::AlreadyExists(_)) => {
                let temporary = self.temporary();
                file.link(temporary.root, &temporary.name)?;
                self.put_over(&temporary, &parent, &name)?;
            }
            linked => linked?,
        }
        self.settled(&resolved.levels)
    }

    fn put_link(&self, path: &RelPath, target: &OsStr) -> Result<Deferred> {
        let (parent, name) = self.mounted.parent_of(path)?;
        replaceable(parent.stat_entry(&name)?.as_ref(), path)?;
        let levels = self.levels(path)?;
        let temporary = self.temporary();
        temporary.root.create_symlink(target, &temporary.name)?;
        if let Some(owner) = self.mounted.owner {
            temporary.root.set_entry_owner(&temporary.name, owner)?;
        }
        self.put_over(&temporary, &parent, &name)?;
        self.settled(&levels)
    }

    fn make_chain(&self, path: &RelPath, chain: Chain<'_>) -> Result<Deferred> {
        let chain = chain.try_map_file(|file| self.suited(file))?;
        let (parent, name) = match self.mounted.parent_of(path) {
            Err(Error::IsDirectory(_)) => return Err(Error::AlreadyExists(path.to_string())),
            parent => parent?,
        };
        let levels = self.levels(path)?;
        let temporary = self.temporary();
        let made = temporary.root.create_dir(&temporary.name, chain.first_mode())?;
        let durability = self.mounted.stage.durability();
        chain.fill(&made, self.mounted.owner, durability, |file, dir, name| file.link(dir, name))?;
        match temporary.root.rename_new(&temporary.name, &parent, &name) {
            Err(Error::AlreadyExists(_)) => Err(Error::AlreadyExists(path.to_string())),
            made => made.and_then(|()| self.settled(&levels)),
        }
    }

    fn set_mode(&self, path: &RelPath, mode: u32) -> Result<Deferred> {
        let levels = self.levels(path)?;
        let _settled = self.mounted.set_mode(path, mode)?;
        self.settled(&levels)
    }

    fn rename(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        if to.starts_with(from) {
            return Err(Error::IntoItself { from: from.to_string(), to: to.to_string() });
        }
        let is_dir = matches!(self.union.stat_entry(from)?, Some((stat, _)) if stat.kind == Kind::Directory);
        let levels = self.levels(from)?;
        let to_levels = match to.is_root() {
            true => Vec::new(),
            false => self.levels(to)?,
        };
        match self.mounted.rename(from, to) {
            // EXDEV, unless a path leads out of the tree: then the copy fails for the same reason.
            Err(Error::Escape(_)) if is_dir => self.move_by_copying(from, to)?,
            renamed => drop(renamed?),
        }
        Ok(self.settled(&levels)?.and(self.settled(&to_levels)?))
    }

    fn copied_by_rename(&self, from: &RelPath, entries: usize) -> Result<Use> {
        self.union.copied_by_rename(from, entries)
    }

    fn taken_by_copy(&self, from: &RelPath, entries: usize) -> Result<Use> {
        self.union.taken_by_copy(from, entries)
    }

    fn copy_dir(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        let levels = self.levels(to)?;
        let (target, to_name) = self.mounted.parent_of(to)?;
        let dirs = self.union.open_layers(from)?;
        self.copy_in(&dirs, from, &target, &to_name)?;
        self.settled(&levels)
    }

    fn remove(&self, path: &RelPath) -> Result<Deferred> {
        let (parent, name) = self.mounted.parent_of(path)?;
        if parent.stat_entry(&name)?.is_none() {
            return Err(Error::NotFound(path.to_string()));
        }
        let levels = self.levels(path)?;
        parent.remove_tree(&name)?;
        self.settled(&levels)
    }
}

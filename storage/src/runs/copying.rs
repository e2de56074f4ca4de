//! [`Copying`]: copying the entries of a tree that are not in its copy yet.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;

use policy::TreeId;

use crate::core::copies::{Entries, Fingerprint};
use crate::core::store::Store;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::copy::copy_file;
use crate::layers::room::Room;
use crate::layers::stack::{Found, Layers};
use crate::stat::{Kind, Stat};

/// Gives a directory to `owner`, when there is one and it is not its already.
pub(super) fn give(dir: &Dir, owner: Option<u32>) -> Result<()> {
    match owner {
        // Looking is cheaper than giving, which writes the inode.
        Some(owner) if dir.stat()?.owner != owner => dir.set_owner(owner),
        _ => Ok(()),
    }
}

/// The path of `name` in the directory `prefix`, empty for the tree itself.
pub(super) fn below(prefix: &OsStr, name: &OsStr) -> OsString {
    if prefix.is_empty() {
        return name.to_owned();
    }
    let mut path = prefix.to_owned();
    path.push("/");
    path.push(name);
    path
}

/// What is known of a copy that is brought up to date.
#[derive(Clone, Copy)]
pub(super) struct Former<'a> {
    pub(super) before: &'a Entries,
    pub(super) sources: &'a Entries,
    pub(super) is_alone: bool,
}

impl Former<'_> {
    /// Whether the entry at `path` was copied as it is now in the tree.
    fn has(&self, path: &OsStr, source: &Fingerprint) -> Option<Fingerprint> {
        (self.sources.get(path) == Some(source)).then(|| self.before.get(path).cloned()).flatten()
    }
}

/// The copying of one tree. After an error, `before`, `sources` and `cleared` say what was done until then.
pub(super) struct Copying<'a> {
    store: &'a Store,
    owner: Option<u32>,
    what: &'static str,
    /// The owner that a file with several names must have, if any: a file of another owner was linked in.
    own: Option<u32>,
    former: Option<Former<'a>>,
    /// The entries of the copy, as they are now.
    pub(super) before: Entries,
    /// The same entries, as they are in the tree.
    pub(super) sources: Entries,
    /// The entries that were removed from the copy, to be copied anew.
    pub(super) cleared: BTreeSet<OsString>,
    room: Room,
    bytes: u64,
    limits: &'a policy::FileLimits,
}

impl<'a> Copying<'a> {
    pub(super) fn new(store: &'a Store, id: &TreeId, owner: Option<u32>, former: Option<Former<'a>>) -> Self {
        let limits = &store.options().files;
        Self {
            store,
            owner,
            what: if matches!(id, TreeId::Skill(..)) { "the skill" } else { "the workspace" },
            own: matches!(id, TreeId::Workspace(..)).then(|| store.owner(id)).flatten(),
            former,
            before: Entries::new(),
            sources: Entries::new(),
            cleared: BTreeSet::new(),
            room: Room::of_entries(limits.tree_entries),
            bytes: limits.view_bytes,
            limits,
        }
    }

    /// Copies the entries of the directory `prefix`, of which at most `levels` levels.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::TooManyEntries`], [`Error::NoSpace`], [`Error::Full`]; those of [`interrupt::check`].
    pub(super) fn directory(
        &mut self,
        from: &Layers,
        into: &Dir,
        prefix: &OsStr,
        levels: usize,
    ) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        };
        let children = from.children()?;
        self.room.take_entries(children.len())?;
        for child in children {
            interrupt::check()?;
            let path = below(prefix, &child.name);
            self.room.take_path(path.len())?;
            let Some(found) = from.lookup(&child.name)? else { continue };
            let (Found::Directory(_, stat, _) | Found::Leaf(stat, _)) = &found;
            let source = Fingerprint::from(stat);
            let copied = match self.former.and_then(|former| former.has(&path, &source)) {
                Some(before) => self.keep(&found, into, &child.name, &path, before, levels)?,
                None if let Found::Directory(dirs, stat, _) = &found
                    && self.has_directory(into, &child.name)? =>
                {
                    self.refit(dirs, stat, into, &child.name, &path, levels)?
                }
                None if !self.clear(into, &child.name, &path)? => {
                    // It is a command's now, which will be told as a change.
                    if let Some(was) = self.former.and_then(|former| former.before.get(&path)) {
                        self.before.insert(path, was.clone());
                    }
                    continue;
                }
                None => self.copy(from, found, into, &child.name, &path, levels)?,
            };
            if let Some(before) = copied {
                self.before.insert(path.clone(), before);
                self.sources.insert(path, source);
            }
        }
        Ok(())
    }

    /// Leaves an entry that is copied already, and looks into a directory.
    fn keep(
        &mut self,
        found: &Found,
        into: &Dir,
        name: &OsStr,
        path: &OsStr,
        before: Fingerprint,
        levels: usize,
    ) -> Result<Option<Fingerprint>> {
        match found {
            Found::Leaf(stat, _) => self.take_bytes(stat)?,
            Found::Directory(dirs, ..) => match into.open_closed_dir(name) {
                Ok(dir) => self.directory(dirs, &dir, path, levels)?,
                // A command of another run has removed or replaced it.
                Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => {}
                Err(other) => return Err(other),
            },
        }
        Ok(Some(before))
    }

    /// Whether a copy that is brought up to date has a directory at a name.
    fn has_directory(&self, into: &Dir, name: &OsStr) -> Result<bool> {
        let is_directory = |stat: Stat| stat.kind == Kind::Directory;
        Ok(self.former.is_some() && into.stat_entry(name)?.is_some_and(is_directory))
    }

    /// Gives a directory of the copy the mode that the tree's has, and looks into it: what commands have in it stays. `None`
    /// when its mode is one that a command of another run gave it.
    fn refit(
        &mut self,
        from: &Layers,
        stat: &Stat,
        into: &Dir,
        name: &OsStr,
        path: &OsStr,
        levels: usize,
    ) -> Result<Option<Fingerprint>> {
        let was = self.former.and_then(|former| former.before.get(path).cloned());
        let is_commands = match into.stat_entry(name)? {
            Some(now) => self.former.is_some_and(|former| !former.is_alone) && was != Some((&now).into()),
            None => false,
        };
        let dir = into.open_closed_dir(name)?;
        self.directory(from, &dir, path, levels)?;
        if is_commands {
            // It will be told as a change.
            self.before.extend(was.map(|was| (path.to_owned(), was)));
            return Ok(None);
        }
        dir.set_mode(stat.mode)?;
        give(&dir, self.owner)?;
        Ok(Some(Fingerprint::from(&dir.stat()?)))
    }

    /// Removes what a copy has at a name, so that the entry can be copied anew; `false` when a command changed it.
    fn clear(&mut self, into: &Dir, name: &OsStr, path: &OsStr) -> Result<bool> {
        let Some(former) = self.former else { return Ok(true) };
        let Some(stat) = into.stat_entry(name)? else { return Ok(true) };
        let now = Fingerprint::from(&stat);
        if !former.is_alone && former.before.get(path) != Some(&now) {
            return Ok(false);
        }
        // Noted first: when it cannot be removed whole, some of it may be gone.
        self.cleared.insert(path.to_owned());
        into.remove_tree(name)?;
        Ok(true)
    }

    fn take_bytes(&mut self, stat: &Stat) -> Result<()> {
        let limit = self.limits.view_bytes;
        if stat.kind == Kind::File {
            self.bytes = self
                .bytes
                .checked_sub(stat.size)
                .ok_or_else(|| Error::TooLarge { what: self.what.to_owned(), limit })?;
        }
        Ok(())
    }

    /// Copies one entry; `None` when it has gone, or is of a kind that is not copied.
    fn copy(
        &mut self,
        from: &Layers,
        found: Found,
        into: &Dir,
        name: &OsStr,
        path: &OsStr,
        levels: usize,
    ) -> Result<Option<Fingerprint>> {
        let copied = match found {
            Found::Directory(dirs, stat, _) => {
                // The mode comes last: it may keep the service itself from filling the directory.
                let made = into.create_dir(name, stat.mode | 0o700)?;
                // Nothing below it is copied yet, also where the former copy had something.
                let former = self.former.take();
                let filled = self.directory(&dirs, &made, path, levels);
                self.former = former;
                made.set_mode(stat.mode)?;
                give(&made, self.owner)?;
                let copied = Fingerprint::from(&made.stat()?);
                if let Err(error) = filled {
                    self.before.insert(path.to_owned(), copied);
                    self.sources.insert(path.to_owned(), Fingerprint::from(&stat));
                    return Err(error);
                }
                copied
            }
            Found::Leaf(stat, layer) if stat.kind == Kind::File => {
                let (source, stat) = match from.at(layer)?.open_file_entry(name) {
                    // A command has taken it away, or put something else there.
                    Err(
                        Error::NotFound(_) | Error::IsDirectory(_) | Error::NotAFile(_) | Error::Escape(_),
                    ) => return Ok(None),
                    opened => opened?,
                };
                // Of the one that is open: a command may have put it there a moment ago.
                if self.own.is_some_and(|own| stat.links > 1 && stat.owner != own) {
                    return Ok(None);
                }
                self.take_bytes(&stat)?;
                self.store.admit_space_for(stat.allocated)?;
                let copy = into.create_file(name, stat.mode & 0o777)?;
                match self.fill(source, &copy, &stat, path) {
                    Ok(copied) => Fingerprint::from(&copied),
                    Err(error) => {
                        // Part of a file must never be taken for the file.
                        into.remove_file(name)?;
                        return Err(error);
                    }
                }
            }
            Found::Leaf(stat, layer) if stat.kind == Kind::Symlink => {
                let target = match from.at(layer)?.read_link(name) {
                    Err(Error::NotFound(_)) => return Ok(None),
                    target => target?,
                };
                into.create_symlink(&target, name)?;
                match into.stat_entry(name)? {
                    Some(stat) => Fingerprint::from(&stat),
                    None => return Ok(None),
                }
            }
            Found::Leaf(..) => return Ok(None),
        };
        Ok(Some(copied))
    }

    /// Fills the new file `copy` with the content of `source`, and gives it its owner.
    fn fill(&self, source: File, copy: &File, stat: &Stat, path: &OsStr) -> Result<Stat> {
        copy_file(source, copy, stat)?;
        if let Some(owner) = self.owner {
            let owner = (Some(rustix::fs::Uid::from_raw(owner)), Some(rustix::fs::Gid::from_raw(owner)));
            rustix::fs::fchown(copy, owner.0, owner.1)
                .map_err(|errno| Error::from_errno("chown", path.to_string_lossy(), errno))?;
        }
        let stat = rustix::fs::fstat(copy)
            .map_err(|errno| Error::from_errno("stat", path.to_string_lossy(), errno))?;
        Ok(Stat::from(stat))
    }
}

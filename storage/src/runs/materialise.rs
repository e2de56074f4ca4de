//! Copying a merged view, or a workspace, for runs, and bringing a copy up to date.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use policy::{RelPath, TreeId};

use super::Runs;
use crate::core::copies::{Copy, CopyLease, Entries, Fingerprint, WorkTrash, copy_name};
use crate::core::store::Store;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::copy::copy_file;
use crate::layers::room::Room;
use crate::layers::stack::{Found, Layers};
use crate::layout;
use crate::stat::{Kind, Stat};

impl Runs {
    /// Copies the tree `id`, a skill as merged, into `work/`, to be run in by `owner`.
    ///
    /// No request changes it meanwhile. Commands may be changing a workspace: what goes meanwhile is left out, and a file
    /// is copied as it is at the moment.
    pub(super) fn materialise(&self, id: &TreeId, run: &OsStr, owner: Option<u32>) -> Result<Copy> {
        let held = self.store.locks().read(id);
        let (layers, base) = self.copied(id)?;
        let work = self.store.root().open_dir(&RelPath::parse(layout::WORK)?)?;
        if work.stat_entry(run)?.is_some() {
            // A former copy could not be removed.
            drop(self.store.stage().discard(&work, run, Some(id))?);
        }
        let dir = work.create_dir(run, 0o700)?;
        self.store.stage().projects().begin(&dir, None);
        let stage = self.store.stage().clone();
        let trash = WorkTrash { stage, id: id.clone(), work, name: Some(run.to_owned()) };
        give(&dir, owner)?;
        let mut copying = Copying::new(&self.store, id, owner, None);
        copying.directory(&layers, &dir, OsStr::new(""), DEPTH_MAX)?;
        let Copying { before, sources, .. } = copying;
        let generation = Some(self.store.locks().generation(id, &held));
        Ok(Copy { dir, before, sources, base, generation, trash })
    }

    /// The layers of a tree that is copied, and the baseline that an overlay begins with which a run makes.
    fn copied(&self, id: &TreeId) -> Result<(Layers, String)> {
        match id {
            TreeId::Skill(user, agent, skill) => {
                let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
                let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
                let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
                    return Err(Error::NotFound(skill.to_string()));
                };
                Ok((layers, self.store.base_text(agent, skill)?))
            }
            TreeId::Workspace(..) => {
                Ok((Layers { upper: Some(self.store.plain(id, false)?.dir), lower: None }, String::new()))
            }
        }
    }

    /// Takes part in the copy of the skill `id` that its runs share: as it was left when nothing has changed since,
    /// brought up to date, or new. It belongs to `owner`.
    ///
    /// While another run is in it, it stays with the baseline that it was copied from.
    ///
    /// # Errors
    /// As [`Runs::materialise`].
    pub(super) fn enter_copy(&self, id: &TreeId, owner: Option<u32>) -> Result<CopyLease> {
        let lease = self.store.copies().enter(id);
        {
            let mut state = lease.copy().copy.lock();
            let is_alone = lease.is_alone();
            if state.is_doubtful && is_alone {
                // Out of the way first: the next one has the same name.
                state.made = None;
                state.is_doubtful = false;
            }
            match &mut state.made {
                Some(copy) => {
                    if let Err(error) = self.bring_up_to_date(id, copy, owner, is_alone) {
                        state.is_doubtful = true;
                        return Err(error);
                    }
                }
                None => {
                    let name = copy_name(id);
                    let made = match self.materialise(id, &name, owner) {
                        Err(Error::Full { .. } | Error::NoSpace(_)) => {
                            self.store.copies().forget_idle();
                            self.materialise(id, &name, owner)
                        }
                        made => made,
                    };
                    state.made = Some(made?);
                }
            }
        }
        Ok(lease)
    }

    /// Copies what has changed in a skill since it was copied, and removes what is gone from it. What a command of another
    /// run has changed in the copy meanwhile stays.
    fn bring_up_to_date(
        &self,
        id: &TreeId,
        copy: &mut Copy,
        owner: Option<u32>,
        is_alone: bool,
    ) -> Result<()> {
        let held = self.store.locks().read(id);
        let generation = Some(self.store.locks().generation(id, &held));
        if copy.generation == generation {
            return Ok(());
        }
        let (layers, base) = self.copied(id)?;
        if !is_alone && base != copy.base {
            return Ok(());
        }
        let mode = copy.dir.stat()?.mode;
        if mode & 0o700 != 0o700 {
            copy.dir.set_mode(mode | 0o700)?;
        }
        let former = Former { before: &copy.before, sources: &copy.sources, is_alone };
        let mut copying = Copying::new(&self.store, id, owner, Some(former));
        copying.directory(&layers, &copy.dir, OsStr::new(""), DEPTH_MAX)?;
        let Copying { mut before, sources, .. } = copying;
        // Entries of a directory come after it, so that they are removed before it.
        let gone = copy.before.iter().rev().filter(|(path, _)| !before.contains_key(*path));
        let mut kept = Entries::new();
        for (path, was) in gone {
            if !remove(&copy.dir, path, (!is_alone).then_some(was))? {
                kept.insert(path.clone(), was.clone());
            }
        }
        before.append(&mut kept);
        (copy.before, copy.sources, copy.base, copy.generation) = (before, sources, base, generation);
        Ok(())
    }
}

/// Removes what is at `path` of a copy, unless it is not as it `was`; tells whether it is gone.
fn remove(copy: &Dir, path: &OsStr, was: Option<&Fingerprint>) -> Result<bool> {
    let mut segments: Vec<&OsStr> =
        path.as_bytes().split(|byte| *byte == b'/').map(OsStr::from_bytes).collect();
    let Some(name) = segments.pop() else { return Ok(true) };
    let mut dir = copy.reopen()?;
    for segment in segments {
        dir = match dir.open_closed_dir(segment) {
            Ok(below) => below,
            Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => return Ok(true),
            Err(other) => return Err(other),
        };
    }
    let Some(stat) = dir.stat_entry(name)? else { return Ok(true) };
    if was.is_some_and(|was| *was != Fingerprint::from(&stat)) {
        return Ok(false);
    }
    let removed = match stat.kind {
        Kind::Directory => dir.remove_dir(name),
        _ => dir.remove_tree(name),
    };
    match removed {
        // A command has put something into it.
        Err(Error::NotEmpty(_)) => Ok(false),
        other => other.map(|()| true),
    }
}

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
struct Former<'a> {
    before: &'a Entries,
    sources: &'a Entries,
    is_alone: bool,
}

impl Former<'_> {
    /// Whether the entry at `path` was copied as it is now in the tree.
    fn has(&self, path: &OsStr, source: &Fingerprint) -> Option<Fingerprint> {
        (self.sources.get(path) == Some(source)).then(|| self.before.get(path).cloned()).flatten()
    }
}

struct Copying<'a> {
    store: &'a Store,
    owner: Option<u32>,
    what: &'static str,
    /// The owner that a file with several names must have, if any: a file of another owner was linked in.
    own: Option<u32>,
    former: Option<Former<'a>>,
    before: Entries,
    sources: Entries,
    room: Room,
    bytes: u64,
    limits: &'a policy::FileLimits,
}

impl<'a> Copying<'a> {
    fn new(store: &'a Store, id: &TreeId, owner: Option<u32>, former: Option<Former<'a>>) -> Self {
        let limits = &store.options().files;
        Self {
            store,
            owner,
            what: if matches!(id, TreeId::Skill(..)) { "the skill" } else { "the workspace" },
            own: matches!(id, TreeId::Workspace(..)).then(|| store.owner(id)).flatten(),
            former,
            before: Entries::new(),
            sources: Entries::new(),
            room: Room::of_entries(limits.tree_entries),
            bytes: limits.view_bytes,
            limits,
        }
    }

    fn directory(&mut self, from: &Layers, into: &Dir, prefix: &OsStr, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        };
        let children = from.children()?;
        self.room.take_entries(children.len())?;
        for child in children {
            let path = below(prefix, &child.name);
            self.room.take_path(path.len())?;
            let Some(found) = from.lookup(&child.name)? else { continue };
            let (Found::Directory(_, stat, _) | Found::Leaf(stat, _)) = &found;
            let source = Fingerprint::from(stat);
            let copied = match self.former.and_then(|former| former.has(&path, &source)) {
                Some(before) => self.keep(&found, into, &child.name, &path, before, levels)?,
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

    /// Removes what a copy has at a name, so that the entry can be copied anew; `false` when a command changed it.
    fn clear(&self, into: &Dir, name: &OsStr, path: &OsStr) -> Result<bool> {
        let Some(former) = self.former else { return Ok(true) };
        let Some(stat) = into.stat_entry(name)? else { return Ok(true) };
        let now = Fingerprint::from(&stat);
        if !former.is_alone && former.before.get(path) != Some(&now) {
            return Ok(false);
        }
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
                self.directory(&dirs, &made, path, levels)?;
                made.set_mode(stat.mode)?;
                give(&made, self.owner)?;
                Fingerprint::from(&made.stat()?)
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
                copy_file(source, &copy, &stat)?;
                if let Some(owner) = self.owner {
                    let owner =
                        (Some(rustix::fs::Uid::from_raw(owner)), Some(rustix::fs::Gid::from_raw(owner)));
                    rustix::fs::fchown(&copy, owner.0, owner.1)
                        .map_err(|errno| Error::from_errno("chown", path.to_string_lossy(), errno))?;
                }
                let stat = rustix::fs::fstat(&copy)
                    .map_err(|errno| Error::from_errno("stat", path.to_string_lossy(), errno))?;
                Fingerprint::from(&Stat::from(stat))
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
}

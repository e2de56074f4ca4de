//! [`Plain`]: a directory as it is. A workspace, or a view that the kernel merges.

use std::ffi::{OsStr, OsString};
use std::fs::File;

use policy::{RelPath, TreeId};

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::chain::Chain;
use crate::layers::copy_merged::{copy_tree, taken_by_copy};
use crate::layers::deferred::Deferred;
use crate::layers::durability::Durability;
use crate::layers::stack::{Found, Layers};
use crate::layers::stage::{Draft, Stage, StagedFile};
use crate::layers::tree::{
    Admit, Child, LISTED_MAX, Met, Opened, Replaced, Tree, WalkOptions, Walked, targets,
};
use crate::layers::walk::{Bounds, LastLink, Level, Resolved, renamed, walk};
use crate::stat::Use;
use crate::stat::{Kind, Layer, Stat};

/// A tree without layers.
pub struct Plain {
    pub(crate) stage: Stage,
    /// Which tree it is.
    pub(crate) id: TreeId,
    pub(crate) dir: Dir,
    /// The user and group that owns everything made here; `None` keeps the service's own.
    pub(crate) owner: Option<u32>,
}

impl Plain {
    /// Opens the directory `path`.
    pub(crate) fn open_dir(&self, path: &RelPath) -> Result<Dir> {
        match self.dir.open_dir(path) {
            Err(Error::Escape(_)) => {
                let mut resolved = self.walk_by_hand(path)?;
                match (resolved.levels.pop(), resolved.last) {
                    (_, Some((_, Some(Found::Directory(Layers { upper: Some(dir), .. }, ..))))) => Ok(dir),
                    (Some(Level { dirs: Layers { upper: Some(dir), .. }, .. }), None) => Ok(dir),
                    (_, Some((_, None))) => Err(Error::NotFound(path.to_string())),
                    _ => Err(Error::NotADirectory(path.to_string())),
                }
            }
            opened => opened,
        }
    }

    /// Opens the regular file `path`.
    fn open_file(&self, path: &RelPath) -> Result<(File, Stat)> {
        match self.dir.open_file(path) {
            Err(Error::Escape(_)) => {
                let mut resolved = self.walk_by_hand(path)?;
                match (resolved.levels.pop(), resolved.last) {
                    (
                        Some(Level { dirs: Layers { upper: Some(dir), .. }, .. }),
                        Some((name, Some(Found::Leaf(..)))),
                    ) => dir.open_file_entry(&name).map_err(|error| renamed(error, path)),
                    (_, Some((_, None))) => Err(Error::NotFound(path.to_string())),
                    _ => Err(Error::IsDirectory(path.to_string())),
                }
            }
            opened => opened,
        }
    }

    /// Walks `path` one name after the other: the kernel does not say in which directory a link ended, and refuses the
    /// absolute links of runs, which lead into the tree.
    fn walk_by_hand(&self, path: &RelPath) -> Result<Resolved> {
        let top =
            Level { name: OsString::new(), dirs: Layers { upper: Some(self.dir.reopen()?), lower: None } };
        let names = path.segments().map(OsString::from).collect();
        let bounds = Bounds { floor: 1, root: self.id.sandbox_path() };
        walk(vec![top], names, &bounds, LastLink::Follow).map_err(|error| renamed(error, path))
    }

    /// The directory that holds `path`, and its last name.
    pub(crate) fn parent_of(&self, path: &RelPath) -> Result<(Dir, OsString)> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((self.open_dir(&parent)?, name.into())),
            _ => Err(Error::IsDirectory(path.to_string())),
        }
    }

    /// As [`Plain::parent_of`], but of what `path` leads to when it is a link.
    pub(crate) fn target(&self, path: &RelPath) -> Result<(Dir, OsString)> {
        let (parent, name) = self.parent_of(path)?;
        if parent.stat_entry(&name)?.is_none_or(|stat| stat.kind != Kind::Symlink) {
            return Ok((parent, name));
        }
        let mut resolved = self.walk_by_hand(path)?;
        match (resolved.levels.pop(), resolved.last) {
            (Some(Level { dirs: Layers { upper: Some(dir), .. }, .. }), Some((name, found))) => match found {
                Some(Found::Directory(..)) => Err(Error::IsDirectory(path.to_string())),
                _ => Ok((dir, name)),
            },
            _ => Err(Error::IsDirectory(path.to_string())),
        }
    }

    /// Begins a directory that is filled aside, where what it takes counts as it will in `parent`.
    pub(crate) fn begin_dir(&self, parent: &Dir, mode: u32) -> Result<(Draft, Dir)> {
        let draft = self.stage.draft();
        let made = self.stage.dir().create_dir(&draft.name, mode | 0o700)?;
        self.stage.projects().mark_like(&made, parent)?;
        Ok((draft, made))
    }

    /// Gives a directory that [`Plain::begin_dir`] made, and that is filled, its mode, its owner and the name `to`, where nothing
    /// may be.
    pub(crate) fn place_dir(
        &self,
        (draft, made): (&Draft, &Dir),
        mode: u32,
        (parent, name): (Dir, &OsStr),
        to: &RelPath,
    ) -> Result<Deferred> {
        made.set_mode(mode)?;
        if let Some(owner) = self.owner {
            made.set_owner(owner)?;
        }
        if self.stage.durability() == Durability::Strict {
            made.sync_file_system()?;
        }
        interrupt::commit()?;
        match draft.place_new(&parent, name) {
            Err(Error::AlreadyExists(_)) => Err(Error::AlreadyExists(to.to_string())),
            placed => placed.map(|()| Deferred::sync(parent)),
        }
    }

    fn children(dir: &Dir, entries: usize) -> Result<Vec<Child>> {
        let mut children: Vec<Child> = dir
            .entries_at_most(entries)?
            .into_iter()
            .map(|entry| Child { name: entry.name, kind: entry.kind, layer: Layer::Workspace })
            .collect();
        children.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(children)
    }

    /// Refuses a file with several names whose owner is not the tree's: a command linked in another owner's file.
    fn check_links(&self, stat: &Stat, path: &RelPath) -> Result<()> {
        match self.owner {
            Some(owner) if stat.links > 1 && stat.owner != owner => Err(Error::Escape(path.to_string())),
            _ => Ok(()),
        }
    }

    fn walk_below(
        dir: &Dir,
        path: &RelPath,
        options: WalkOptions,
        levels: usize,
        walked: &mut Met,
    ) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Ok(()) };
        if options.depth - levels > DEPTH_MAX {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        }
        for entry in walked.room.list(dir)? {
            let Some(path) = entry.name.to_str().and_then(|name| path.join(name).ok()) else {
                continue;
            };
            walked.room.take_path(path.as_str().len())?;
            let stat = match options.look {
                true => dir.stat_entry(&entry.name)?,
                false => None,
            };
            walked.entries.push(Walked {
                path: path.clone(),
                kind: entry.kind,
                layer: Layer::Workspace,
                stat,
            });
            if entry.kind == Kind::Directory {
                match dir.open_dir_entry(&entry.name) {
                    Ok(below) => Self::walk_below(&below, &path, options, levels, walked)?,
                    // A command removed or replaced it meanwhile.
                    Err(Error::NotFound(_) | Error::NotADirectory(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }
}

impl Tree for Plain {
    fn stat(&self, path: &RelPath) -> Result<(Stat, Layer)> {
        if path.is_root() {
            return Ok((self.dir.stat()?, Layer::Workspace));
        }
        match self.stat_entry(path)? {
            None => Err(Error::NotFound(path.to_string())),
            Some((stat, _)) if stat.kind == Kind::Symlink => match self.open_file(path) {
                Ok((_, stat)) => Ok((stat, Layer::Workspace)),
                Err(Error::IsDirectory(_)) => Ok((self.open_dir(path)?.stat()?, Layer::Workspace)),
                Err(other) => Err(other),
            },
            Some(found) => Ok(found),
        }
    }

    fn stat_entry(&self, path: &RelPath) -> Result<Option<(Stat, Layer)>> {
        if path.is_root() {
            return self.stat(path).map(Some);
        }
        match self.parent_of(path) {
            Ok((parent, name)) => Ok(parent.stat_entry(&name)?.map(|stat| (stat, Layer::Workspace))),
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn open(&self, path: &RelPath) -> Result<Opened> {
        let (file, stat) = self.open_file(path)?;
        self.check_links(&stat, path)?;
        Ok(Opened { file, stat, layer: Layer::Workspace })
    }

    fn read_link(&self, path: &RelPath) -> Result<OsString> {
        let (parent, name) = self.parent_of(path)?;
        parent.read_link(&name)
    }

    fn read_links(&self, path: &RelPath, children: &[Child]) -> Result<Vec<Option<OsString>>> {
        let dir = self.open_dir(path)?;
        targets(children, |child| dir.read_link(&child.name))
    }

    fn list(&self, path: &RelPath) -> Result<Vec<Child>> {
        Self::children(&self.open_dir(path)?, LISTED_MAX)
    }

    fn list_looking(&self, path: &RelPath, entries: usize) -> Result<Vec<(Child, Option<Stat>)>> {
        let dir = self.open_dir(path)?;
        let children = Self::children(&dir, entries)?;
        let looked = children.into_iter().map(|child| {
            let stat = dir.stat_entry(&child.name)?;
            Ok((child, stat))
        });
        looked.collect()
    }

    fn walk(&self, path: &RelPath, options: WalkOptions) -> Result<Vec<Walked>> {
        let mut walked = Met::new(options);
        Self::walk_below(&self.open_dir(path)?, path, options, options.depth, &mut walked)?;
        Ok(walked.entries)
    }

    fn put_if(&self, path: &RelPath, mut file: StagedFile, admit: &mut Admit<'_>) -> Result<Deferred> {
        let (parent, name) = match self.target(path) {
            Err(Error::NotFound(missing)) => {
                admit(Replaced::default(), &mut file)?;
                return Err(Error::NotFound(missing));
            }
            target => target?,
        };
        let existing = parent.stat_entry(&name)?;
        let there = existing.as_ref().map(|stat| (stat, Layer::Workspace));
        admit(Replaced { existing: there, ..Replaced::default() }, &mut file)?;
        replaceable(existing.as_ref(), path)?;
        file.place(&parent, &name)?;
        Ok(Deferred::sync(parent))
    }

    fn put_link(&self, path: &RelPath, target: &OsStr) -> Result<Deferred> {
        let (parent, name) = self.parent_of(path)?;
        replaceable(parent.stat_entry(&name)?.as_ref(), path)?;
        let draft = self.stage.draft();
        self.stage.dir().create_symlink(target, &draft.name)?;
        draft.place_over(&parent, &name)?;
        Ok(Deferred::sync(parent))
    }

    fn make_chain(&self, path: &RelPath, chain: Chain<'_>) -> Result<Deferred> {
        let (parent, name) = match self.parent_of(path) {
            Err(Error::IsDirectory(_)) => return Err(Error::AlreadyExists(path.to_string())),
            parent => parent?,
        };
        // Built aside, so that no reader sees it before it has its owner.
        let draft = self.stage.draft();
        let made = self.stage.dir().create_dir(&draft.name, chain.first_mode())?;
        chain.fill(&made, self.owner, self.stage.durability(), StagedFile::place)?;
        match draft.place_new(&parent, &name) {
            Ok(()) => Ok(Deferred::sync(parent)),
            Err(Error::AlreadyExists(_)) => Err(Error::AlreadyExists(path.to_string())),
            Err(other) => Err(other),
        }
    }

    fn set_mode(&self, path: &RelPath, mode: u32) -> Result<Deferred> {
        let Some((stat, _)) = self.stat_entry(path)? else {
            return Err(Error::NotFound(path.to_string()));
        };
        match stat.kind {
            Kind::Directory => self.open_dir(path)?.set_mode(mode)?,
            Kind::File => {
                let (parent, name) = self.parent_of(path)?;
                let (file, stat) = parent.open_file_entry(&name)?;
                self.check_links(&stat, path)?;
                rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode & 0o777))
                    .map_err(|errno| Error::from_errno("chmod", path, errno))?;
            }
            Kind::Symlink | Kind::Other => return Err(Error::NotAFile(path.to_string())),
        }
        Ok(Deferred::default())
    }

    fn rename(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        if to.starts_with(from) {
            return Err(Error::IntoItself { from: from.to_string(), to: to.to_string() });
        }
        let (source, name) = self.parent_of(from)?;
        let (target, to_name) = self.parent_of(to)?;
        let Some(stat) = source.stat_entry(&name)? else {
            return Err(Error::NotFound(from.to_string()));
        };
        match target.stat_entry(&to_name)?.map(|stat| stat.kind) {
            Some(Kind::Directory) => return Err(Error::IsDirectory(to.to_string())),
            Some(_) if stat.kind == Kind::Directory => return Err(Error::NotADirectory(to.to_string())),
            _ => {}
        }
        let rename = || source.rename(&name, &target, &to_name);
        let renamed = match self.id {
            TreeId::Workspace(..) => self.stage.put_in(&source, &name, &target, rename),
            // In a live view the kernel has other reasons to refuse.
            TreeId::Skill(..) => rename(),
        };
        renamed.map_err(|error| match error {
            // Through a link, which the spelling does not show (rename(2), EINVAL).
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidInput => {
                Error::IntoItself { from: from.to_string(), to: to.to_string() }
            }
            other => other,
        })?;
        Ok(Deferred { sync: vec![source, target], ..Deferred::default() })
    }

    fn taken_by_copy(&self, from: &RelPath, entries: usize) -> Result<Use> {
        let source = Layers { upper: Some(self.open_dir(from)?), lower: None };
        Ok(taken_by_copy(&source, self.owner, entries)?.all)
    }

    fn copy_dir(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        let (parent, name) = self.parent_of(to)?;
        let source = self.open_dir(from)?;
        let mode = source.stat()?.mode;
        let (draft, copy) = self.begin_dir(&parent, mode)?;
        copy_tree(&Layers { upper: Some(source), lower: None }, &copy, self.owner, DEPTH_MAX)?;
        self.place_dir((&draft, &copy), mode, (parent, &name), to)
    }

    fn remove(&self, path: &RelPath) -> Result<Deferred> {
        let (parent, name) = self.parent_of(path)?;
        let trash = match self.stage.discard(&parent, &name, Some(&self.id)) {
            Err(Error::NotFound(_)) => return Err(Error::NotFound(path.to_string())),
            trash => trash?,
        };
        Ok(Deferred { sync: vec![parent], trash: vec![trash], ..Deferred::default() })
    }
}

/// Refuses to put anything over a directory, or over what is no file.
pub(crate) fn replaceable(existing: Option<&Stat>, path: &RelPath) -> Result<()> {
    match existing.map(|stat| stat.kind) {
        Some(Kind::Directory) => Err(Error::IsDirectory(path.to_string())),
        Some(Kind::Other) => Err(Error::NotAFile(path.to_string())),
        Some(Kind::File | Kind::Symlink) | None => Ok(()),
    }
}

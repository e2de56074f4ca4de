//! [`Union`]: the merged view in user space.
//!
//! Same format and same answers as a kernel overlay mount of the two layers with the option `userxattr`
//! (Documentation/filesystems/overlayfs.rst): a whiteout is a character device 0:0, an opaque directory has
//! `user.overlay.opaque=y`. Used where nothing can be mounted; one door at a time, see `docs/LAYERS.md`.
//!
//! This file reads; `change`, `copy` and `rename` write; `whiteouts` finds those that hide nothing.

mod change;
mod copy;
mod rename;

pub(crate) use self::change::hide;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use policy::{RelPath, SkillId, TreeId};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::layers::copy_merged::taken_by_copy;
use crate::layers::deferred::Deferred;
use crate::layers::stack::{Found, Layers};
use crate::layers::stage::{Stage, StagedFile};
use crate::layers::tree::{Admit, Child, Met, Opened, Tree, WalkOptions, Walked, targets};
use crate::layers::view::ViewLease;
use crate::layers::walk::{Bounds, LastLink, Level, Resolved, renamed, walk};
use crate::stat::Use;
use crate::stat::{Layer, Stat};

/// A merged view: a baseline skill under a user's overlay.
pub struct Union {
    pub(crate) stage: Stage,
    /// Which tree it is.
    pub(crate) id: TreeId,
    /// The store's root.
    pub(crate) root: Arc<Dir>,
    /// Where the baselines of the agent lie, from the store's root.
    pub(crate) baseline: RelPath,
    /// Where the user's overlays of the agent lie, from the store's root. Made at the first write.
    pub(crate) overlay: RelPath,
    /// The skill.
    pub(crate) skill: SkillId,
    /// Entries that one operation looks at.
    pub(crate) entries_max: usize,
    /// A seat in the live view of the skill, when it is to be seen as that: over the baseline that is mounted, which
    /// may be a former one.
    pub(crate) seat: Option<ViewLease>,
    /// The steps before the overlay directory of the skill is first made.
    pub(crate) before_first_write: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

impl Union {
    /// All skills of the agent, merged: the level above the skill, which holds whiteouts of whole skills.
    pub(crate) fn agent_level(&self) -> Result<Layers> {
        Layers::open(&self.root, &self.overlay, &self.baseline)
    }

    /// Walks `path` through both layers at once.
    pub(crate) fn resolve(&self, path: &RelPath, last_link: LastLink) -> Result<Resolved> {
        let top = Level { name: OsString::new(), dirs: self.agent_level()? };
        let mut names: VecDeque<OsString> = path.segments().map(OsString::from).collect();
        let name = OsString::from(self.skill.as_str());
        // Links may climb to the skill's root, never above it.
        let bounds = Bounds { floor: 2, root: self.id.sandbox_path() };
        let resolved = match &self.seat {
            Some(seat) => {
                let dirs = mounted_layers(&top.dirs, &name, seat)?;
                walk(vec![top, Level { name, dirs }], names, &bounds, last_link)
            }
            None => {
                names.push_front(name);
                walk(vec![top], names, &bounds, last_link)
            }
        };
        resolved.map_err(|error| renamed(error, path))
    }

    /// The directory `path` as the two layers have it.
    pub(crate) fn open_layers(&self, path: &RelPath) -> Result<Layers> {
        let mut resolved = self.resolve(path, LastLink::Follow)?;
        match resolved.last {
            None => match resolved.levels.pop() {
                Some(level) => Ok(level.dirs),
                None => Err(Error::NotFound(path.to_string())),
            },
            Some((_, Some(Found::Directory(dirs, ..)))) => Ok(dirs),
            Some((_, Some(Found::Leaf(..)))) => Err(Error::NotADirectory(path.to_string())),
            Some((_, None)) => Err(Error::NotFound(path.to_string())),
        }
    }
}

/// The layers of the skill `name` that are mounted, even when its baseline is another by now.
fn mounted_layers(agent_level: &Layers, name: &OsStr, seat: &ViewLease) -> Result<Layers> {
    let upper = agent_level.at(Layer::Overlay)?.open_dir_entry(name)?;
    Ok(Layers { upper: Some(upper), lower: seat.lower().map(Dir::reopen).transpose()? })
}

impl Tree for Union {
    fn stat(&self, path: &RelPath) -> Result<(Stat, Layer)> {
        let resolved = self.resolve(path, LastLink::Follow)?;
        match resolved.last {
            Some((_, Some(found))) => Ok(found.stat()),
            Some((_, None)) => Err(Error::NotFound(path.to_string())),
            None => match resolved.levels.last() {
                Some(level) => level.dirs.stat(),
                None => Err(Error::NotFound(path.to_string())),
            },
        }
    }

    fn stat_entry(&self, path: &RelPath) -> Result<Option<(Stat, Layer)>> {
        let resolved = match self.resolve(path, LastLink::Keep) {
            Err(Error::NotFound(_)) => return Ok(None),
            resolved => resolved?,
        };
        match resolved.last {
            Some((_, found)) => Ok(found.map(|found| found.stat())),
            None => resolved.levels.last().map(|level| level.dirs.stat()).transpose(),
        }
    }

    fn open(&self, path: &RelPath) -> Result<Opened> {
        let resolved = self.resolve(path, LastLink::Follow)?;
        match (resolved.levels.last(), resolved.last) {
            (Some(level), Some((name, Some(Found::Leaf(_, layer))))) => {
                let opened = level.dirs.at(layer)?.open_file_entry(&name);
                let (file, stat) = opened.map_err(|error| renamed(error, path))?;
                Ok(Opened { file, stat, layer })
            }
            (_, Some((_, None))) => Err(Error::NotFound(path.to_string())),
            _ => Err(Error::IsDirectory(path.to_string())),
        }
    }

    fn read_link(&self, path: &RelPath) -> Result<OsString> {
        let resolved = self.resolve(path, LastLink::Keep)?;
        match (resolved.levels.last(), resolved.last) {
            (Some(level), Some((name, Some(Found::Leaf(_, layer))))) => {
                level.dirs.at(layer)?.read_link(&name)
            }
            _ => Err(Error::NotFound(path.to_string())),
        }
    }

    fn read_links(&self, path: &RelPath, children: &[Child]) -> Result<Vec<Option<OsString>>> {
        let dirs = self.open_layers(path)?;
        targets(children, |child| dirs.at(child.layer)?.read_link(&child.name))
    }

    fn list(&self, path: &RelPath) -> Result<Vec<Child>> {
        self.open_layers(path)?.children()
    }

    fn list_looking(&self, path: &RelPath, entries: usize) -> Result<Vec<(Child, Option<Stat>)>> {
        self.open_layers(path)?.children_looking(entries)
    }

    fn walk(&self, path: &RelPath, options: WalkOptions) -> Result<Vec<Walked>> {
        let mut walked = Met::new(options);
        self.open_layers(path)?.walk(path, options, options.depth, &mut walked)?;
        Ok(walked.entries)
    }

    fn put_if(&self, path: &RelPath, file: StagedFile, admit: &mut Admit<'_>) -> Result<Deferred> {
        self.put_file(path, file, admit)
    }

    fn put_link(&self, path: &RelPath, target: &OsStr) -> Result<Deferred> {
        self.put_symlink(path, target)
    }

    fn make_chain(&self, path: &RelPath, chain: Chain<'_>) -> Result<Deferred> {
        self.make_directory(path, chain)
    }

    fn set_mode(&self, path: &RelPath, mode: u32) -> Result<Deferred> {
        self.change_mode(path, mode)
    }

    fn rename(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        self.rename_entry(from, to)
    }

    fn copied_by_rename(&self, from: &RelPath, entries: usize) -> Result<Use> {
        self.copied_by_renaming(from, entries)
    }

    fn taken_by_copy(&self, from: &RelPath, entries: usize) -> Result<Use> {
        Ok(taken_by_copy(&self.open_layers(from)?, None, entries)?.all)
    }

    fn copy_dir(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        self.copy_directory(from, to)
    }

    fn remove(&self, path: &RelPath) -> Result<Deferred> {
        self.remove_entry(path)
    }
}

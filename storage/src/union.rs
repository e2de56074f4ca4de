//! [`Union`]: the merged view in user space.
//!
//! Same format and same answers as a kernel overlay mount of the two layers with the option `userxattr`
//! (Documentation/filesystems/overlayfs.rst): a whiteout is a character device 0:0, an opaque directory has
//! `user.overlay.opaque=y`. Used where nothing can be mounted; one door at a time, see `docs/LAYERS.md`.
//!
//! This file reads; `change`, `copy` and `rename` write; `whiteouts` finds those that hide nothing.

mod change;
mod copy;
pub(crate) mod layers;
mod rename;
pub(crate) mod whiteouts;

pub(crate) use self::change::hide;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use policy::{RelPath, SkillId, TreeId};

use self::layers::{Found, Layers};
use crate::copy::taken_by_copy;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::live::Seat;
use crate::stage::{Stage, StagedFile};
use crate::stat::{Kind, Layer, Stat};
use crate::tree::{Admit, Aftermath, Child, LINKS_MAX, Met, Opened, Replaced, Tree, WalkOptions, Walked};
use crate::usage::Use;

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
    pub(crate) seat: Option<Seat>,
    /// What must be done before the overlay directory of the skill is first made.
    pub(crate) before_first_write: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

/// Where a walk along a path ended.
pub(crate) struct Resolved {
    /// The directories walked through, the agent level first; never empty.
    pub(crate) levels: Vec<Level>,
    /// The last name and what is there; `None` when the path ended in the last level itself.
    pub(crate) last: Option<(OsString, Option<Found>)>,
}

/// One directory on the way.
pub(crate) struct Level {
    /// Its name in the level above; empty for the agent level.
    pub(crate) name: OsString,
    pub(crate) dirs: Layers,
}

impl Resolved {
    /// What a file at the end of the path takes the place of.
    pub(crate) fn replaced(&self) -> Replaced<'_> {
        // The level of the agent is nobody's tree.
        let made = self.levels.iter().skip(1).filter(|level| level.dirs.upper.is_none()).count();
        let made_dirs = u64::try_from(made).unwrap_or(u64::MAX);
        let existing = match &self.last {
            Some((_, Some(Found::Directory(_, stat, layer) | Found::Leaf(stat, layer)))) => {
                Some((stat, *layer))
            }
            _ => None,
        };
        Replaced { existing, made_dirs, may_be_whiteout: existing.is_none() }
    }
}

/// What to do when a path's last name is a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
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
        let resolved = match &self.seat {
            Some(seat) => {
                let dirs = mounted_layers(&top.dirs, &name, seat)?;
                walk(vec![top, Level { name, dirs }], names, 2, last_link)
            }
            None => {
                names.push_front(name);
                walk(vec![top], names, 2, last_link)
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

/// The layers of the skill `name` that are mounted, whatever its baseline is by now.
fn mounted_layers(agent_level: &Layers, name: &OsStr, seat: &Seat) -> Result<Layers> {
    let upper = agent_level.at(Layer::Overlay)?.open_dir_entry(name)?;
    Ok(Layers { upper: Some(upper), lower: seat.lower().map(Dir::reopen).transpose()? })
}

/// Walks `names` from the last of `levels`; links never lead above the first `floor` of them.
pub(crate) fn walk(
    mut levels: Vec<Level>,
    mut names: VecDeque<OsString>,
    floor: usize,
    last_link: LastLink,
) -> Result<Resolved> {
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        if name.is_empty() || name == "." {
            continue;
        }
        if name == ".." {
            if levels.len() <= floor {
                return Err(Error::Escape(name.to_string_lossy().into_owned()));
            }
            levels.pop();
            continue;
        }
        let Some(level) = levels.last() else { break };
        let found = level.dirs.lookup(&name)?;
        let is_last = names.is_empty();
        match found {
            // One level less than a walk goes down: what can be made can be materialised.
            Some(Found::Directory(..)) if !is_last && levels.len() >= DEPTH_MAX => {
                return Err(Error::TooManyEntries(DEPTH_MAX));
            }
            Some(Found::Directory(dirs, ..)) if !is_last => levels.push(Level { name, dirs }),
            Some(Found::Leaf(stat, layer))
                if stat.kind == Kind::Symlink && !(is_last && last_link == LastLink::Keep) =>
            {
                links += 1;
                let target = level.dirs.at(layer)?.read_link(&name)?;
                if links > LINKS_MAX || target.as_bytes().starts_with(b"/") {
                    return Err(Error::Escape(name.to_string_lossy().into_owned()));
                }
                for part in target.as_bytes().split(|byte| *byte == b'/').rev() {
                    names.push_front(OsStr::from_bytes(part).to_owned());
                }
            }
            Some(Found::Leaf(..)) if !is_last => {
                return Err(Error::NotADirectory(name.to_string_lossy().into_owned()));
            }
            None if !is_last => return Err(Error::NotFound(name.to_string_lossy().into_owned())),
            found => return Ok(Resolved { levels, last: Some((name, found)) }),
        }
    }
    Ok(Resolved { levels, last: None })
}

/// Lets an error name the whole path instead of one segment of it.
fn renamed(error: Error, path: &RelPath) -> Error {
    match error {
        Error::NotFound(_) => Error::NotFound(path.to_string()),
        Error::NotADirectory(_) => Error::NotADirectory(path.to_string()),
        Error::Escape(_) => Error::Escape(path.to_string()),
        Error::NotAFile(_) => Error::NotAFile(path.to_string()),
        Error::IsDirectory(_) => Error::IsDirectory(path.to_string()),
        other => other,
    }
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

    fn put_if(&self, path: &RelPath, file: StagedFile, admit: &mut Admit<'_>) -> Result<Aftermath> {
        self.put_file(path, file, admit)
    }

    fn put_link(&self, path: &RelPath, target: &OsStr) -> Result<Aftermath> {
        self.put_symlink(path, target)
    }

    fn make_dir(&self, path: &RelPath, mode: u32) -> Result<Aftermath> {
        self.make_directory(path, mode)
    }

    fn set_mode(&self, path: &RelPath, mode: u32) -> Result<Aftermath> {
        self.change_mode(path, mode)
    }

    fn rename(&self, from: &RelPath, to: &RelPath) -> Result<Aftermath> {
        self.rename_entry(from, to)
    }

    fn copied_by_rename(&self, from: &RelPath, entries: usize) -> Result<Use> {
        self.copied_by_renaming(from, entries)
    }

    fn taken_by_copy(&self, from: &RelPath, entries: usize) -> Result<Use> {
        Ok(taken_by_copy(&self.open_layers(from)?, None, entries)?.all)
    }

    fn copy_dir(&self, from: &RelPath, to: &RelPath) -> Result<Aftermath> {
        self.copy_directory(from, to)
    }

    fn remove(&self, path: &RelPath) -> Result<Aftermath> {
        self.remove_entry(path)
    }
}

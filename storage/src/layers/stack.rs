//! [`Layers`]: one directory of a merged view.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use policy::RelPath;

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::tree::{Child, LISTED_MAX, Met, WalkOptions, Walked};
use crate::layers::whiteouts::is_opaque;
use crate::stat::{Kind, Layer, Stat};

/// One directory as the two layers have it. At least one of the two is there, except at the agent level.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) upper: Option<Dir>,
    /// Absent also when the upper directory is opaque.
    pub(crate) lower: Option<Dir>,
}

/// The entry of a name in a merged directory.
#[derive(Debug)]
pub(crate) enum Found {
    Directory(Layers, Stat, Layer),
    Leaf(Stat, Layer),
}

impl Found {
    pub(crate) fn stat_of(&self) -> &Stat {
        match self {
            Self::Directory(_, stat, _) | Self::Leaf(stat, _) => stat,
        }
    }

    pub(crate) fn stat(self) -> (Stat, Layer) {
        match self {
            Self::Directory(_, stat, layer) | Self::Leaf(stat, layer) => (stat, layer),
        }
    }
}

impl Layers {
    /// Opens the directories `upper` and `lower` below `root`, either of which may be missing.
    pub(crate) fn open(root: &Dir, upper: &RelPath, lower: &RelPath) -> Result<Self> {
        let open = |path| match root.open_dir(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        };
        Ok(Self { upper: open(upper)?, lower: open(lower)?.map(Dir::frozen) })
    }

    /// The directory of one layer.
    pub(crate) fn at(&self, layer: Layer) -> Result<&Dir> {
        let dir = match layer {
            Layer::Baseline => &self.lower,
            Layer::Overlay | Layer::Workspace => &self.upper,
        };
        dir.as_ref().ok_or_else(|| Error::NotFound(".".to_owned()))
    }

    /// The directory itself: the upper one's attributes win, as in the kernel.
    pub(crate) fn stat(&self) -> Result<(Stat, Layer)> {
        match (&self.upper, &self.lower) {
            (Some(upper), _) => Ok((upper.stat()?, Layer::Overlay)),
            (None, Some(lower)) => Ok((lower.stat()?, Layer::Baseline)),
            (None, None) => Err(Error::NotFound(".".to_owned())),
        }
    }

    /// Finds `name` in the merged directory.
    pub(crate) fn lookup(&self, name: &OsStr) -> Result<Option<Found>> {
        let upper = match &self.upper {
            Some(dir) => dir.stat_entry(name)?,
            None => None,
        };
        match (upper, &self.upper) {
            (Some(stat), _) if stat.is_whiteout() => Ok(None),
            (Some(stat), Some(dir)) if stat.kind == Kind::Directory => {
                let upper = dir.open_dir_entry(name)?;
                let lower =
                    if self.lower.is_none() || is_opaque(&upper)? { None } else { self.lower_dir(name)? };
                Ok(Some(Found::Directory(Self { upper: Some(upper), lower }, stat, Layer::Overlay)))
            }
            (Some(stat), _) => Ok(Some(Found::Leaf(stat, Layer::Overlay))),
            (None, _) => match self.lower_stat(name)? {
                Some(stat) if stat.kind == Kind::Directory => {
                    let dirs = Self { upper: None, lower: self.lower_dir(name)? };
                    Ok(Some(Found::Directory(dirs, stat, Layer::Baseline)))
                }
                Some(stat) => Ok(Some(Found::Leaf(stat, Layer::Baseline))),
                None => Ok(None),
            },
        }
    }

    /// The entry of the lower layer under `name`, hidden or not.
    pub(crate) fn lower_stat(&self, name: &OsStr) -> Result<Option<Stat>> {
        let Some(lower) = &self.lower else { return Ok(None) };
        Ok(lower.stat_entry(name)?.filter(|stat| !stat.is_whiteout()))
    }

    fn lower_dir(&self, name: &OsStr) -> Result<Option<Dir>> {
        let Some(lower) = &self.lower else { return Ok(None) };
        let opened = match lower.open_dir_entry(name) {
            // The baseline belongs to the service, even after a command has changed its permissions.
            Err(Error::Closed(_)) => lower.open_closed_dir(name),
            opened => opened,
        };
        match opened {
            Ok(dir) => Ok(Some(dir)),
            Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Lists the merged directory, sorted by the bytes of the names.
    pub(crate) fn children(&self) -> Result<Vec<Child>> {
        match (&self.upper, &self.lower) {
            (Some(upper), Some(lower)) => merged_children(upper, lower),
            (Some(upper), None) => children_of(upper, Layer::Overlay),
            (None, Some(lower)) => children_of(lower, Layer::Baseline),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Lists the merged directory and looks at each of at most `entries` entries.
    pub(crate) fn children_looking(&self, entries: usize) -> Result<Vec<(Child, Option<Stat>)>> {
        let children = self.children()?;
        if children.len() > entries {
            return Err(Error::TooManyEntries(entries));
        }
        let looked = children.into_iter().map(|child| {
            let stat = self.at(child.layer)?.stat_entry(&child.name)?;
            Ok((child, stat))
        });
        looked.collect()
    }

    /// Adds everything below this directory, which lies at `path`, to `walked`.
    pub(crate) fn walk(
        &self,
        path: &RelPath,
        options: WalkOptions,
        levels: usize,
        walked: &mut Met,
    ) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Ok(()) };
        if options.depth - levels > DEPTH_MAX {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        }
        let children = self.children()?;
        walked.room.take_entries(children.len())?;
        for child in children {
            let Some(path) = child.name.to_str().and_then(|name| path.join(name).ok()) else {
                continue;
            };
            walked.room.take_path(path.as_str().len())?;
            let stat = match options.look {
                true => self.at(child.layer)?.stat_entry(&child.name)?,
                false => None,
            };
            let is_dir = child.kind == Kind::Directory;
            walked.entries.push(Walked { path: path.clone(), kind: child.kind, layer: child.layer, stat });
            if !is_dir {
                continue;
            }
            match self.lookup(&child.name) {
                Ok(Some(Found::Directory(below, ..))) => below.walk(&path, options, levels, walked)?,
                // A command that has the view mounted removed or replaced it meanwhile.
                Ok(_) | Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

/// Lists a directory that one layer alone has.
fn children_of(dir: &Dir, layer: Layer) -> Result<Vec<Child>> {
    let mut children = Vec::new();
    for entry in dir.entries_at_most(LISTED_MAX)? {
        if !(entry.is_character_device && is_whiteout(dir, &entry.name)?) {
            children.push(Child { name: entry.name, kind: entry.kind, layer });
        }
    }
    children.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(children)
}

fn merged_children(upper: &Dir, lower: &Dir) -> Result<Vec<Child>> {
    let mut children = BTreeMap::new();
    for entry in lower.entries_at_most(LISTED_MAX)? {
        if !(entry.is_character_device && is_whiteout(lower, &entry.name)?) {
            children.insert(entry.name, (entry.kind, Layer::Baseline));
        }
    }
    for entry in upper.entries_at_most(LISTED_MAX)? {
        if entry.is_character_device && is_whiteout(upper, &entry.name)? {
            children.remove(&entry.name);
        } else {
            children.insert(entry.name, (entry.kind, Layer::Overlay));
        }
    }
    Ok(children.into_iter().map(|(name, (kind, layer))| Child { name, kind, layer }).collect())
}

fn is_whiteout(dir: &Dir, name: &OsStr) -> Result<bool> {
    Ok(dir.stat_entry(name)?.is_some_and(|stat| stat.is_whiteout()))
}

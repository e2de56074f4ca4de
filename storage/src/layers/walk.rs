//! Walking a path through the layers of a merged directory, links included.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use policy::RelPath;

use crate::dir::DEPTH_MAX;
use crate::error::{Error, Result};
use crate::layers::stack::{Found, Layers};
use crate::layers::tree::{LINKS_MAX, Replaced};
use crate::stat::Kind;

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
    /// The entry that a file at the end of the path replaces.
    pub(crate) fn replaced(&self) -> Replaced<'_> {
        // The level of the agent is no user's tree.
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

/// How a link as a path's last name is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

/// The tree that a walk stays in.
pub(crate) struct Bounds {
    /// Links never lead above the first so many levels, of which the last is the tree itself.
    pub(crate) floor: usize,
    /// The path of the tree inside a run: an absolute link below it leads into the tree, as it does there.
    pub(crate) root: String,
}

impl Bounds {
    /// The part below the tree of an absolute `target`; `None` for one that leads elsewhere.
    fn below<'t>(&self, target: &'t [u8]) -> Option<&'t [u8]> {
        let below = target.strip_prefix(self.root.as_bytes())?;
        if below.is_empty() { Some(below) } else { below.strip_prefix(b"/") }
    }
}

/// Walks `names` from the last of `levels`, within `bounds`.
pub(crate) fn walk(
    mut levels: Vec<Level>,
    mut names: VecDeque<OsString>,
    bounds: &Bounds,
    last_link: LastLink,
) -> Result<Resolved> {
    let floor = bounds.floor;
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
                let escape = || Error::Escape(name.to_string_lossy().into_owned());
                if links > LINKS_MAX {
                    return Err(escape());
                }
                let mut target = target.as_bytes();
                if target.starts_with(b"/") {
                    // What the tree itself lies in belongs to no user.
                    if levels.len() < floor {
                        return Err(escape());
                    }
                    target = bounds.below(target).ok_or_else(escape)?;
                    levels.truncate(floor);
                }
                for part in target.split(|byte| *byte == b'/').rev() {
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
pub(crate) fn renamed(error: Error, path: &RelPath) -> Error {
    match error {
        Error::NotFound(_) => Error::NotFound(path.to_string()),
        Error::NotADirectory(_) => Error::NotADirectory(path.to_string()),
        Error::Escape(_) => Error::Escape(path.to_string()),
        Error::NotAFile(_) => Error::NotAFile(path.to_string()),
        Error::IsDirectory(_) => Error::IsDirectory(path.to_string()),
        other => other,
    }
}

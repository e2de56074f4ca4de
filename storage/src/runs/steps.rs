//! The steps by which what a command did to a copy is taken into the tree that it is of.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use policy::RelPath;

use super::absorbed::Absorbed;
use crate::core::copies::{Copy, Fingerprint};
use crate::core::growth::Growth;
use crate::error::{Error, Result};
use crate::layers::deferred::Deferred;
use crate::layers::stage::StagedFile;
use crate::layers::tree::Tree;
use crate::stat::Use;
use crate::stat::{Kind, Layer};

/// An entry that a command removed, or replaced by one of another kind.
pub(super) struct Deletion {
    pub(super) path: RelPath,
    pub(super) is_replaced: bool,
}

/// An entry that a command made or changed.
pub(super) struct Changed<'a> {
    pub(super) path: RelPath,
    pub(super) now: &'a Fingerprint,
    /// Whether it was there before.
    pub(super) is_known: bool,
}

/// The entry that one step places.
pub(super) enum Ready {
    Directory(u32),
    File(StagedFile),
    Link(OsString),
    /// Nothing that a tree holds.
    Nothing,
    /// Another user's file.
    Foreign,
    /// Nothing any more: another run has removed it.
    Gone,
}

/// The entries that a command removed, each directory once.
pub(super) fn deletions(copy: &Copy, after: &BTreeMap<OsString, Fingerprint>) -> Vec<Deletion> {
    let mut deletions = Vec::new();
    let mut gone: HashSet<&[u8]> = HashSet::new();
    for (path, before) in &copy.before {
        let slash = path.as_bytes().iter().rposition(|byte| *byte == b'/');
        let parent = slash.and_then(|slash| path.as_bytes().get(..slash));
        if parent.is_some_and(|parent| gone.contains(parent)) {
            gone.insert(path.as_bytes());
            continue;
        }
        let is_replaced = match after.get(path) {
            None => false,
            Some(now) if (now.kind == Kind::Directory) != (before.kind == Kind::Directory) => true,
            Some(_) => continue,
        };
        gone.insert(path.as_bytes());
        if let Some(path) = path.to_str().and_then(|path| RelPath::parse(path).ok()) {
            deletions.push(Deletion { path, is_replaced });
        }
    }
    deletions
}

/// The entries that a command made or changed, directories before their entries.
pub(super) fn changes<'a>(
    copy: &Copy,
    after: &'a BTreeMap<OsString, Fingerprint>,
    absorbed: &mut Absorbed,
) -> Vec<Changed<'a>> {
    let mut changes = Vec::new();
    for (path, now) in after {
        let before = copy.before.get(path);
        if before == Some(now) {
            continue;
        }
        match path.to_str().and_then(|path| RelPath::parse(path).ok()) {
            Some(path) => changes.push(Changed { path, now, is_known: before.is_some() }),
            None => absorbed.skip(path, "its name cannot be spelled in a path"),
        }
    }
    changes
}

/// Takes one entry over; `None` when it is of a kind that no tree holds. `made` is the directory that was made last.
pub(super) fn place(
    tree: &dyn Tree,
    change: &Changed<'_>,
    ready: Ready,
    made: &mut Option<RelPath>,
) -> Result<Option<Deferred>> {
    let path = &change.path;
    let mut deferred = Deferred::default();
    if let Some(parent) = path.parent()
        && !matches!(ready, Ready::Nothing | Ready::Foreign | Ready::Gone)
        && made.as_ref() != Some(&parent)
    {
        deferred = tree.make_dirs(&parent)?;
        *made = Some(parent);
    }
    let placed = match ready {
        Ready::Directory(mode) => match tree.make_dir(path, mode) {
            Err(Error::AlreadyExists(_)) => match tree.stat_entry(path)? {
                Some((stat, _)) if stat.kind == Kind::Directory => tree.set_mode(path, mode)?,
                _ => return Err(Error::NotADirectory(path.to_string())),
            },
            made => made?,
        },
        Ready::File(file) => {
            if tree.stat_entry(path)?.is_some_and(|(stat, _)| stat.kind == Kind::Symlink) {
                // A put would follow the link that the command replaced, and write what it leads to.
                deferred = deferred.and(tree.remove(path)?);
            }
            tree.put(path, file)?
        }
        Ready::Link(target) => tree.put_link(path, &target)?,
        Ready::Nothing | Ready::Foreign | Ready::Gone => return Ok(None),
    };
    Ok(Some(deferred.and(placed)))
}

/// The growth and the shrinkage of the overlay when some of a command's changes are absorbed.
pub(super) fn growth_of(tree: &dyn Tree, batch: &[(&OsString, Option<&Fingerprint>)]) -> Growth {
    let mut growth = adds_of(batch);
    for (path, _) in batch {
        let spelled = path.to_str().and_then(|path| RelPath::parse(path).ok());
        let stood = spelled.map(|path| tree.stat_entry(&path)).transpose();
        // A change by another request meanwhile is found when this entry is absorbed.
        if let Ok(Some(Some((stat, Layer::Overlay | Layer::Workspace)))) = stood {
            growth.takes = growth.takes.plus(Use { bytes: stat.allocated, files: 1 });
        }
    }
    growth
}

pub(super) fn adds_of(batch: &[(&OsString, Option<&Fingerprint>)]) -> Growth {
    let adds = batch.iter().filter_map(|(_, now)| *now);
    let adds = adds.fold(Use::default(), |sum, now| sum.plus(Use { bytes: now.allocated, files: 1 }));
    Growth { adds, takes: Use::default(), is_exact: false }
}

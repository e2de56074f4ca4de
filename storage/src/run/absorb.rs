//! Taking what a command did to a copy into the overlay, or the workspace, that it is of.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use policy::{RelPath, TreeId};
use serde::{Deserialize, Serialize};

use super::PreparedRun;
use super::materialise::{Copy, Fingerprint, below};
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::stage::StagedFile;
use crate::stat::{Kind, Layer};
use crate::tree::{Aftermath, Room, Tree};
use crate::usage::{Growth, Use};

/// What a command did to a merged view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absorbed {
    /// Entries that were made.
    pub created: usize,
    /// Entries whose content, kind or mode changed.
    pub modified: usize,
    /// Entries that were removed; a directory counts once.
    pub deleted: usize,
    /// Entries that were left out, with the reason: sockets, pipes, names that cannot be spelled. At most 20.
    pub skipped: Vec<String>,
    /// Why nothing of a tree was taken over, when it would have become larger than it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Entries named in [`Absorbed::skipped`].
const SKIPPED_MAX: usize = 20;

/// Characters of a path in [`Absorbed::skipped`].
const SKIPPED_CHARACTERS: usize = 500;

impl PreparedRun {
    /// Takes what the command did into the overlay. Nothing may run in the view any more.
    ///
    /// A skill that would become larger than it may be stays as it was, which [`Absorbed::refused`] tells.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the skill was removed meanwhile; [`Error::NoSpace`], [`Error::Io`]. Each entry is
    /// then either taken over whole or as it was.
    pub fn absorb(&self) -> Result<Absorbed> {
        let mut absorbed = Absorbed::default();
        for (id, copy) in self.copies() {
            self.absorb_copy(id, copy, &mut absorbed)?;
        }
        Ok(absorbed)
    }

    fn absorb_copy(&self, id: &TreeId, copy: &Copy, absorbed: &mut Absorbed) -> Result<()> {
        let mut after = BTreeMap::new();
        let limit = self.store.options().files.tree_entries;
        let mode = copy.dir.stat()?.mode;
        if mode & 0o700 != 0o700 {
            copy.dir.set_mode(mode | 0o700)?;
        }
        let mut scan = Scan { room: Room::of_entries(limit), found: &mut after, absorbed };
        scan.directory(&copy.dir, OsStr::new(""), DEPTH_MAX)?;
        if after == copy.before {
            return Ok(());
        }
        if self.store.is_strict() {
            // One call for the bytes of all files, before the first of them takes an old one's place.
            self.store.inner.stage.dir().sync_file_system()?;
        }
        let aftermath = {
            let _alone = self.store.inner.locks.write(id);
            let tree = match id {
                TreeId::Skill(user, agent, skill) => {
                    self.store.changing(user, agent, skill, Some(self.store.base_since(id, &copy.base)))?
                }
                TreeId::Workspace(..) => self.store.tree_alone(id)?,
            };
            let tree = tree.as_ref();
            if let Err(Error::NotFound(_)) = tree.stat(&RelPath::root()) {
                let message = "the skill was removed while the command ran; what it wrote is dropped";
                return Err(Error::Conflict(message.to_owned()));
            }
            let growth = growth(tree, copy, &after)?;
            match self.store.admit(id, &growth) {
                Err(refused @ (Error::Quota { .. } | Error::Countless(_) | Error::Full { .. })) => {
                    absorbed.refused = Some(refused.to_string());
                    return Ok(());
                }
                admitted => admitted?,
            }
            self.store.inner.accounts.change(id, &growth);
            let mut aftermath = self.absorb_deletions(tree, copy, &after, absorbed)?;
            for (path, fingerprint) in &after {
                let before = copy.before.get(path);
                if before == Some(fingerprint) {
                    continue;
                }
                let Some(rel_path) = path.to_str().and_then(|path| RelPath::parse(path).ok()) else {
                    absorbed.skip(path, "its name cannot be spelled in a path");
                    continue;
                };
                match self.absorb_entry(tree, &copy.dir, &rel_path, fingerprint) {
                    // Only what is to be removed is kept: a descriptor for each entry would soon be too many.
                    Ok(Some(change)) => aftermath.trash.extend(change.trash),
                    Ok(None) => {
                        absorbed.skip(path, "it is neither a file, a directory nor a link");
                        continue;
                    }
                    Err(Error::IsDirectory(_) | Error::NotADirectory(_) | Error::Escape(_)) => {
                        absorbed.skip(path, "another request put something else there meanwhile");
                        continue;
                    }
                    Err(other) => return Err(other),
                }
                match before {
                    Some(_) => absorbed.modified += 1,
                    None => absorbed.created += 1,
                }
            }
            aftermath
        };
        if self.store.is_strict() {
            // And one for all names, instead of one for each directory.
            self.store.inner.stage.dir().sync_file_system()?;
        }
        drop(aftermath);
        Ok(())
    }

    fn absorb_deletions(
        &self,
        tree: &dyn Tree,
        copy: &Copy,
        after: &BTreeMap<OsString, Fingerprint>,
        absorbed: &mut Absorbed,
    ) -> Result<Aftermath> {
        let mut aftermath = Aftermath::default();
        let mut gone: HashSet<&[u8]> = HashSet::new();
        for (path, before) in &copy.before {
            let slash = path.as_bytes().iter().rposition(|byte| *byte == b'/');
            let parent = slash.and_then(|slash| path.as_bytes().get(..slash));
            if parent.is_some_and(|parent| gone.contains(parent)) {
                gone.insert(path.as_bytes());
                continue;
            }
            let replaced = match after.get(path) {
                None => false,
                Some(now) if (now.kind == Kind::Directory) != (before.kind == Kind::Directory) => true,
                Some(_) => continue,
            };
            gone.insert(path.as_bytes());
            if let Some(path) = path.to_str().and_then(|path| RelPath::parse(path).ok()) {
                match tree.remove(&path) {
                    Ok(removed) => aftermath.trash.extend(removed.trash),
                    Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => {}
                    Err(other) => return Err(other),
                }
                absorbed.deleted += usize::from(!replaced);
            }
        }
        Ok(aftermath)
    }

    /// Takes one entry over; `None` when it is of a kind that no tree holds.
    ///
    /// What the command closed to its owner stays open to the service, which is the owner from now on.
    fn absorb_entry(
        &self,
        tree: &dyn Tree,
        dir: &Dir,
        path: &RelPath,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Aftermath>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let parent_dir = dir.open_dir(&parent)?;
        let name = OsStr::new(name);
        let mut aftermath = tree.make_dirs(&parent)?;
        let placed = match fingerprint.kind {
            Kind::Directory => {
                let mode = fingerprint.mode & 0o777 | 0o700;
                match tree.make_dir(path, mode) {
                    Err(Error::AlreadyExists(_)) => match tree.stat_entry(path)? {
                        Some((stat, _)) if stat.kind == Kind::Directory => tree.set_mode(path, mode)?,
                        _ => return Err(Error::NotADirectory(path.to_string())),
                    },
                    made => made?,
                }
            }
            Kind::File => {
                if tree.stat_entry(path)?.is_some_and(|(stat, _)| stat.kind == Kind::Symlink) {
                    // A put would follow the link that the command replaced, and write what it leads to.
                    aftermath = aftermath.and(tree.remove(path)?);
                }
                let stage = &self.store.inner.stage;
                let file = StagedFile::adopt(stage, &parent_dir, name, fingerprint.mode & 0o777 | 0o400)?;
                match self.id {
                    TreeId::Workspace(..) => self.view.owner.map_or(Ok(()), |owner| file.set_owner(owner))?,
                    TreeId::Skill(..) => file.own()?,
                }
                tree.put(path, file)?
            }
            Kind::Symlink => tree.put_link(path, &parent_dir.read_link(name)?)?,
            Kind::Other => return Ok(None),
        };
        aftermath = aftermath.and(placed);
        Ok(Some(aftermath))
    }
}

/// What the overlay will take more, and less, when all that a command did is taken over.
fn growth(tree: &dyn Tree, copy: &Copy, after: &BTreeMap<OsString, Fingerprint>) -> Result<Growth> {
    let mut growth = Growth { adds: Use::default(), takes: Use::default(), is_exact: false };
    let touched = after.iter().filter(|(path, now)| copy.before.get(*path) != Some(now));
    let gone = copy.before.keys().filter(|path| !after.contains_key(*path));
    for (path, now) in touched.map(|(path, now)| (path, Some(now))).chain(gone.map(|path| (path, None))) {
        if let Some(now) = now {
            growth.adds = growth.adds.plus(Use { bytes: now.allocated, files: 1 });
        }
        let spelled = path.to_str().and_then(|path| RelPath::parse(path).ok());
        let stood = spelled.map(|path| tree.stat_entry(&path)).transpose();
        // What another request changed meanwhile is found out when it is taken over.
        if let Ok(Some(Some((stat, Layer::Overlay | Layer::Workspace)))) = stood {
            growth.takes = growth.takes.plus(Use { bytes: stat.allocated, files: 1 });
        }
    }
    Ok(growth)
}

impl Absorbed {
    fn skip(&mut self, path: &OsStr, reason: &str) {
        if self.skipped.len() < SKIPPED_MAX {
            let path = path.to_string_lossy();
            let shown: String = path.chars().take(SKIPPED_CHARACTERS).collect();
            let rest = if shown.len() < path.len() { "…" } else { "" };
            self.skipped.push(format!("`{shown}{rest}`: {reason}"));
        }
    }
}

/// A look at everything that a command left.
pub(super) struct Scan<'a> {
    pub(super) room: Room,
    pub(super) found: &'a mut BTreeMap<OsString, Fingerprint>,
    pub(super) absorbed: &'a mut Absorbed,
}

impl Scan<'_> {
    /// Takes the fingerprints of everything below `dir`, opening up directories that the command closed.
    ///
    /// What lies too deep, or under too long a path, is left out with its reason, so that it does not cost the
    /// command the rest of its work.
    pub(super) fn directory(&mut self, dir: &Dir, prefix: &OsStr, levels: usize) -> Result<()> {
        let levels = levels.saturating_sub(1);
        for entry in self.room.list(dir)? {
            let Some(stat) = dir.stat_entry(&entry.name)? else { continue };
            let path = below(prefix, &entry.name);
            if path.len() > policy::path::PATH_BYTES_MAX {
                self.absorbed.skip(&path, "its path is too long, and so is every path below it");
                continue;
            }
            self.room.take_path(path.len())?;
            if stat.kind == Kind::Directory {
                if levels == 0 {
                    self.absorbed.skip(&path, "it lies too deep, and so does everything below it");
                    continue;
                }
                let below = dir.open_closed_dir(&entry.name)?;
                self.directory(&below, &path, levels)?;
            }
            self.found.insert(path, Fingerprint::from(&stat));
        }
        Ok(())
    }
}

//! [`Skills::version_changes`]: the files that differ between two published versions of a skill, and both sides of each.

use std::collections::BTreeMap;
use std::io::Read;

use policy::{RelPath, TreeId};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::tree::{Tree, WalkOptions};
use crate::skills::Skills;
use crate::skills::sides::{Sides, seen, side};
use crate::skills::status::{Change, Changed};
use crate::stat::{Kind, Stat};
use crate::version::Version;

/// Bytes compared at once.
const BUFFER_BYTES: usize = 64 * 1024;

impl Skills {
    /// The files and links that `to` has otherwise than `from`, sorted by path: by content, target, kind and whether the owner may
    /// execute them.
    ///
    /// # Errors
    /// [`Error::NotFound`] when a version is not there; [`Error::TooManyEntries`], [`Error::Io`]; those of
    /// [`interrupt::check`].
    pub fn version_changes(&self, id: &TreeId, from: &Version, to: &Version) -> Result<Vec<Changed>> {
        let _held = self.store.locks().read(id);
        let (before, after) = (self.store.version_tree(id, from)?, self.store.version_tree(id, to)?);
        let mut left = self.leaves(before.as_ref())?;
        let mut changes = Vec::new();
        for (path, stat) in self.leaves(after.as_ref())? {
            interrupt::check()?;
            let change = match left.remove(&path) {
                None => Change::Created,
                Some(old) if is_same((before.as_ref(), &old), (after.as_ref(), &stat), &path)? => continue,
                Some(_) => Change::Modified,
            };
            changes.push(Changed { path: path.to_string(), change });
        }
        let deleted =
            left.into_keys().map(|path| Changed { path: path.to_string(), change: Change::Deleted });
        changes.extend(deleted);
        changes.sort_unstable();
        Ok(changes)
    }

    /// Reads the file `path` in two versions of a skill, each up to `most` bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`] when a version is not there; [`Error::Io`].
    pub fn version_sides(
        &self,
        id: &TreeId,
        [from, to]: [&Version; 2],
        path: &RelPath,
        most: u64,
    ) -> Result<Sides> {
        let _held = self.store.locks().read(id);
        let read = |version: &Version| {
            let tree = self.store.version_tree(id, version)?;
            tree.stat(&RelPath::root())?;
            let kind = seen(tree.as_ref(), path)?;
            let side = match kind {
                Some(Kind::File) => {
                    side(tree.open(path).map(|opened| (opened.file, opened.stat)), path, most)?
                }
                _ => None,
            };
            Ok::<_, Error>((side, kind))
        };
        let ((before, before_kind), (after, after_kind)) = (read(from)?, read(to)?);
        Ok(Sides { before, before_kind, after, after_kind })
    }

    /// The files and links of a version.
    fn leaves(&self, tree: &dyn Tree) -> Result<BTreeMap<RelPath, Stat>> {
        let options =
            WalkOptions { depth: usize::MAX, entries: self.store.options().files.tree_entries, look: true };
        let walked = tree.walk(&RelPath::root(), options)?.into_iter();
        let leaves = walked.filter(|entry| matches!(entry.kind, Kind::File | Kind::Symlink));
        Ok(leaves.filter_map(|entry| Some((entry.path, entry.stat?))).collect())
    }
}

/// Tells whether two versions have the same at `path`.
fn is_same(
    (before, old): (&dyn Tree, &Stat),
    (after, new): (&dyn Tree, &Stat),
    path: &RelPath,
) -> Result<bool> {
    if old.kind != new.kind {
        return Ok(false);
    }
    if old.kind == Kind::Symlink {
        return Ok(before.read_link(path)? == after.read_link(path)?);
    }
    if old.size != new.size || (old.mode ^ new.mode) & 0o100 != 0 {
        return Ok(false);
    }
    let (mut old, mut new) = (before.open(path)?.file, after.open(path)?.file);
    let (mut one, mut other) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        interrupt::check()?;
        let read = fill(&mut old, &mut one, path)?;
        let same = fill(&mut new, &mut other, path)? == read && one.get(..read) == other.get(..read);
        if !same || read == 0 {
            return Ok(same);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8], path: &RelPath) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest).map_err(|error| Error::from_io("read", path, error))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

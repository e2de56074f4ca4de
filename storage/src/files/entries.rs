//! Changes of entries, whatever is in them: directories made, entries renamed and removed.

use policy::RelPath;

use super::{Condition, Files, dirs_to_make};
use crate::core::growth::Growth;
use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::layers::deferred::Deferred;
use crate::layers::tree::Tree;
use crate::stat::Kind;

impl Files {
    /// Makes the directory `path`; see [`Tree::make_dir`]. Tells whether it was not there.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] unless `parents`; [`Error::Quota`]; else as [`Tree::make_dir`].
    pub fn make_dir(&self, path: &RelPath, mode: u32, parents: bool) -> Result<bool> {
        self.change(|tree| {
            let (mut growth, mut admitted) = (Growth::REMOVAL, None);
            if let (Some(parent), None) = (path.parent(), tree.stat_entry(path)?) {
                growth = Growth::of_dirs(dirs_to_make(tree, &parent)?.saturating_add(1));
                admitted = Some(self.store.admit(&self.id, &growth)?);
            }
            let made = match parents.then(|| tree.first_missing(path)).transpose()?.flatten() {
                Some(first) => tree.make_chain(&first, Chain::of_directories(&first, path).ending_with(mode)),
                None => tree.make_dir(path, mode),
            };
            match made {
                Ok(deferred) => {
                    self.account(&growth);
                    drop(admitted);
                    Ok((true, deferred))
                }
                Err(Error::AlreadyExists(_))
                    if parents && tree.stat(path).is_ok_and(|(stat, _)| stat.kind == Kind::Directory) =>
                {
                    Ok((false, Deferred::default()))
                }
                Err(other) => Err(other),
            }
        })
    }

    /// Renames `from` to `to`; see [`Tree::rename`]. `condition` is of `from`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when `to` is there and `overwrite` is not set; [`Error::Stale`]; [`Error::Quota`] when
    /// what is renamed must be copied up; else as [`Tree::rename`].
    pub fn rename(&self, from: &RelPath, to: &RelPath, overwrite: bool, condition: &Condition) -> Result<()> {
        self.change(|tree| {
            let existing = tree.stat_entry(from)?.map(|(stat, _)| stat);
            condition.check(from, existing.as_ref())?;
            if existing.is_none() {
                return Err(Error::NotFound(from.to_string()));
            }
            if !overwrite && tree.stat_entry(to)?.is_some() {
                return Err(Error::AlreadyExists(to.to_string()));
            }
            let copied = tree.copied_by_rename(from, self.store.options().files.tree_entries)?;
            let growth = Growth { adds: copied, ..Growth::REMOVAL };
            if copied.bytes > 0 {
                self.store.admit_space_for(copied.bytes)?;
            }
            let admitted = self.store.admit(&self.id, &growth)?;
            self.account(&growth);
            drop(admitted);
            Ok(((), tree.rename(from, to)?))
        })
    }

    /// Removes `path`; see [`Tree::remove`].
    ///
    /// # Errors
    /// [`Error::NotEmpty`] for a directory with entries unless `recursive`, [`Error::Stale`], else as
    /// [`Tree::remove`].
    pub fn remove(&self, path: &RelPath, recursive: bool, condition: &Condition) -> Result<()> {
        self.change(|tree| {
            let existing = tree.stat_entry(path)?.map(|(stat, _)| stat);
            condition.check(path, existing.as_ref())?;
            match existing {
                None => return Err(Error::NotFound(path.to_string())),
                Some(stat) if stat.kind == Kind::Directory && !recursive && !is_empty(tree, path)? => {
                    return Err(Error::NotEmpty(path.to_string()));
                }
                Some(_) => {}
            }
            let removed = tree.remove(path)?;
            self.account(&Growth::REMOVAL);
            Ok(((), removed))
        })
    }
}

/// Tells whether the directory `path` has no entries, however many it has.
fn is_empty(tree: &dyn Tree, path: &RelPath) -> Result<bool> {
    match tree.list_looking(path, 0) {
        Ok(_) => Ok(true),
        Err(Error::TooManyEntries(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

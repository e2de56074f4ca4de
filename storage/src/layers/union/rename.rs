//! Renaming in a merged view.
//!
//! An entry of the upper layer alone is renamed in one step. A directory that the lower layer has a part in takes two
//! (a whole copy at the new name, a whiteout at the old one), which a [`Transaction`] ties together.

use policy::RelPath;

use super::Union;
use super::change::{Target, join};
use crate::dir::DEPTH_MAX;
use crate::error::{Error, Result};
use crate::layers::copy_merged::{copy_tree, taken_by_copy};
use crate::layers::deferred::Deferred;
use crate::layers::destination::Destination;
use crate::layers::journal::Transaction;
use crate::layers::stack::{Found, Layers};
use crate::layers::walk::LastLink;
use crate::layers::whiteouts;
use crate::layers::whiteouts::OPAQUE;
use crate::stat::Use;
use crate::stat::{Kind, Layer};

impl Union {
    pub(super) fn rename_entry(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        if to.starts_with(from) {
            return Err(Error::IntoItself { from: from.to_string(), to: to.to_string() });
        }
        let source = self.resolve(from, LastLink::Keep)?;
        let Some((name, Some(found))) = &source.last else {
            return Err(Error::NotFound(from.to_string()));
        };
        match found {
            Found::Leaf(stat, layer) => {
                if *layer == Layer::Baseline {
                    let dir = source.levels.last().map(|level| level.dirs.at(*layer)).transpose()?;
                    let dir = dir.ok_or_else(|| Error::NotFound(from.to_string()))?;
                    match stat.kind {
                        Kind::File => {
                            let (file, stat) = dir.open_file_entry(name)?;
                            let copy = self.copy_of(file, stat.mode, &stat)?;
                            let target = self.target_of(from, source)?;
                            copy.place(&target.upper, &target.name)?;
                        }
                        Kind::Symlink => {
                            let link = dir.read_link(name)?;
                            drop(source);
                            let _placed = self.put_symlink(from, &link)?;
                        }
                        _ => return Err(Error::NotAFile(from.to_string())),
                    }
                } else {
                    drop(source);
                }
                self.rename_upper(from, to, false)
            }
            Found::Directory(Layers { lower: None, upper }, ..) => {
                // Entries that were deleted at the old place were never at the new one.
                if let Some(upper) = upper {
                    whiteouts::clear(upper, self.entries_max)?;
                }
                drop(source);
                self.rename_upper(from, to, true)
            }
            Found::Directory(..) => {
                drop(source);
                self.rename_merged_dir(from, to)
            }
        }
    }

    /// The growth by a rename of `from`: a leaf of the baseline, or the baseline's part of a directory, all of which is
    /// copied, and second names of what stays.
    pub(super) fn copied_by_renaming(&self, from: &RelPath, entries: usize) -> Result<Use> {
        let resolved = self.resolve(from, LastLink::Keep)?;
        match resolved.last {
            Some((_, Some(Found::Leaf(stat, Layer::Baseline)))) => {
                Ok(Use { bytes: stat.allocated, files: 1 })
            }
            Some((_, Some(Found::Directory(dirs, stat, layer)))) if dirs.lower.is_some() => {
                let own = Use { bytes: stat.allocated, files: 1 };
                let own = if layer == Layer::Baseline { own } else { Use::default() };
                Ok(taken_by_copy(&dirs, None, entries)?.stays.plus(own))
            }
            _ => Ok(Use::default()),
        }
    }

    /// The place that `to` names, free for a directory or for a leaf.
    pub(super) fn destination(&self, to: &RelPath, is_dir: bool) -> Result<Target> {
        let target = match self.target(to, LastLink::Keep) {
            Err(Error::IsDirectory(_)) => return Err(Error::IsDirectory(to.to_string())),
            target => target?,
        };
        match &target.found {
            Some(Found::Directory(..)) => Err(Error::IsDirectory(to.to_string())),
            Some(Found::Leaf(..)) if is_dir => Err(Error::NotADirectory(to.to_string())),
            _ => Ok(target),
        }
    }

    /// Renames what lies in the upper layer alone; one step.
    fn rename_upper(&self, from: &RelPath, to: &RelPath, is_dir: bool) -> Result<Deferred> {
        let target = self.destination(to, is_dir)?;
        let source = self.target(from, LastLink::Keep)?;
        check_outside(&source, &target, from, to)?;
        let mut deferred = Deferred::default();
        if is_dir {
            if target.in_lower {
                source.upper.open_dir_entry(&source.name)?.set_attribute(OPAQUE, b"y")?;
            }
            if target.upper.stat_entry(&target.name)?.is_some() {
                // rename(2) puts no directory over a whiteout. Changing places leaves it where the directory was,
                // which is where one belongs when the lower layer has that name too.
                source.upper.exchange(&source.name, &target.upper, &target.name)?;
                if !source.in_lower {
                    source.upper.remove_file(&source.name)?;
                }
                deferred.sync.extend([source.upper, target.upper]);
                return Ok(deferred);
            }
        }
        self.stage.put_in(&source.upper, &source.name, &target.upper, || match source.in_lower {
            true => source.upper.rename_leaving_whiteout(&source.name, &target.upper, &target.name),
            false => source.upper.rename(&source.name, &target.upper, &target.name),
        })?;
        deferred.sync.extend([source.upper, target.upper]);
        Ok(deferred)
    }

    /// Moves a directory that the lower layer has a part in: a whole copy at the new name, a whiteout at the old.
    fn rename_merged_dir(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        let target = self.destination(to, true)?;
        let source = self.target(from, LastLink::Keep)?;
        check_outside(&source, &target, from, to)?;
        let Some(Found::Directory(dirs, stat, _)) = &source.found else {
            return Err(Error::NotFound(from.to_string()));
        };
        let mut transaction = Transaction::begin(&self.stage)?;
        // An item that is made again to be given to a project has another inode than its step says.
        self.stage.projects().mark_like(transaction.dir(), &target.upper)?;
        let copy = transaction.dir().create_dir(&transaction.next_name(), stat.mode | 0o700)?;
        copy_tree(dirs, &copy, None, DEPTH_MAX)?;
        copy.set_mode(stat.mode)?;
        if target.in_lower {
            copy.set_attribute(OPAQUE, b"y")?;
        }
        transaction.place(Destination::in_overlay(&self.id, &join(&target.place, &target.name)?)?)?;
        transaction.dir().create_whiteout(&transaction.next_name())?;
        transaction.place(Destination::in_overlay(&self.id, &join(&source.place, &source.name)?)?)?;
        self.stage.projects().unmark(transaction.dir())?;
        let committed = transaction.commit(&self.root)?;
        if let Err(error) = committed.apply(&self.root, 0) {
            // Nothing is placed yet: forget it, so that the next start does not place it late.
            drop(committed.finish());
            return Err(error);
        }
        committed.apply(&self.root, 1)?;
        let trash = committed.finish();
        Ok(Deferred { sync: vec![source.upper, target.upper], trash, ..Deferred::default() })
    }
}

/// Refuses a destination inside what is moved. Through a link, the spelling of the paths does not show it.
fn check_outside(source: &Target, target: &Target, from: &RelPath, to: &RelPath) -> Result<()> {
    if target.place.starts_with(&join(&source.place, &source.name)?) {
        return Err(Error::IntoItself { from: from.to_string(), to: to.to_string() });
    }
    Ok(())
}

//! Whiteouts that hide nothing: in a directory of the overlay that has no directory of the baseline below it.
//!
//! They come about when a new version of the baseline drops a directory in which a user had deleted something. They are no
//! garbage: when that version is taken back, they hide again what the user deleted. But overlayfs shows them, as names that
//! nothing can be done with, because it filters whiteouts only where it merges.
//!
//! So a live view gets a *shadow*: a further lower layer of empty directories, one for each directory that has such
//! whiteouts, with which overlayfs has something to merge ([`cast`]). Only where nothing of any baseline can ever show, in
//! opaque directories and in one that is moved elsewhere, such whiteouts are removed ([`clear`]).

use std::ffi::{OsStr, OsString};

use crate::dir::subdirectory;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::stat::Kind;

/// The attribute that hides everything below a directory in the lower layer.
pub(crate) const OPAQUE: &str = "user.overlay.opaque";

/// Makes in the empty directory `shadow` what the upper directory of a skill needs of it over `lower`. Tells whether that is
/// anything.
///
/// At most `entries` of the upper directory are looked at; what lies beyond them, or too deep, is seen as overlayfs shows it.
/// The caller holds the tree alone, which has no view.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::Io`].
pub(crate) fn cast(upper: &Dir, lower: Option<&Dir>, shadow: &Dir, entries: usize) -> Result<bool> {
    let mut caster = Caster { shadow, way: Vec::new(), entries_left: entries, most: entries, is_cast: false };
    let looked = if is_opaque(upper)? {
        caster.clear(upper, DEPTH_MAX)
    } else {
        // The root itself is merged with something always.
        caster.below(upper, lower, true, DEPTH_MAX)
    };
    match looked {
        Err(Error::TooManyEntries(most)) => {
            tracing::warn!(most, "an overlay is too large to look for stale whiteouts")
        }
        looked => looked?,
    }
    Ok(caster.is_cast)
}

/// Removes every whiteout at and below `dir`, which no baseline shows in; at most `entries` are looked at.
///
/// # Errors
/// [`Error::TooManyEntries`], [`Error::Io`].
pub(crate) fn clear(dir: &Dir, entries: usize) -> Result<()> {
    let mut clearing =
        Caster { shadow: dir, way: Vec::new(), entries_left: entries, most: entries, is_cast: false };
    clearing.clear(dir, DEPTH_MAX)
}

struct Caster<'a> {
    shadow: &'a Dir,
    /// The names from the skill's root down to the directory that is looked at.
    way: Vec<OsString>,
    entries_left: usize,
    most: usize,
    is_cast: bool,
}

impl Caster<'_> {
    fn below(&mut self, upper: &Dir, lower: Option<&Dir>, is_merged: bool, levels: usize) -> Result<()> {
        let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
        let mut is_needed = false;
        for entry in upper.first_entries(self.entries_left.saturating_add(1))? {
            self.take()?;
            if entry.kind == Kind::Directory {
                let Some(below) = opened(upper, &entry.name)? else { continue };
                if is_opaque(&below)? {
                    self.clear(&below, levels)?;
                    continue;
                }
                let lower = subdirectory(lower, &entry.name)?;
                self.way.push(entry.name);
                self.below(&below, lower.as_ref(), lower.is_some(), levels)?;
                self.way.pop();
            } else if !is_merged && !is_needed {
                is_needed = entry.is_character_device && is_whiteout(upper, &entry.name)?;
            }
        }
        if is_needed {
            let mut dir = self.shadow.reopen()?;
            for name in &self.way {
                dir = dir.ensure_dir(name)?;
            }
            self.is_cast = true;
        }
        Ok(())
    }

    fn clear(&mut self, dir: &Dir, levels: usize) -> Result<()> {
        let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
        for entry in dir.first_entries(self.entries_left.saturating_add(1))? {
            self.take()?;
            if entry.kind == Kind::Directory {
                if let Some(below) = opened(dir, &entry.name)? {
                    self.clear(&below, levels)?;
                }
            } else if entry.is_character_device && is_whiteout(dir, &entry.name)? {
                dir.remove_file(&entry.name)?;
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        self.entries_left = self.entries_left.checked_sub(1).ok_or(Error::TooManyEntries(self.most))?;
        Ok(())
    }
}

/// Opens a directory, unless a command has closed it to the service.
fn opened(dir: &Dir, name: &OsStr) -> Result<Option<Dir>> {
    match dir.open_dir_entry(name) {
        Err(Error::Closed(_) | Error::NotFound(_)) => Ok(None),
        opened => opened.map(Some),
    }
}

fn is_whiteout(dir: &Dir, name: &OsStr) -> Result<bool> {
    Ok(dir.stat_entry(name)?.is_some_and(|stat| stat.is_whiteout()))
}

/// Tells whether a directory hides everything below it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn is_opaque(dir: &Dir) -> Result<bool> {
    Ok(dir.attribute(OPAQUE)?.as_deref() == Some(b"y"))
}

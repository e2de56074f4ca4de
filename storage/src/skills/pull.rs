//! [`Skills::pull`]: a user's changes of a skill, carried over to the application's new version.
//!
//! Three states meet: the version that the overlay began with (*base*), the overlay, and the current version.
//!
//! | The overlay has | and the application | becomes of it |
//! | --- | --- | --- |
//! | what the base has, copied up | changed it or not | goes: the current version shows |
//! | what the current version has | | goes, too; with a mode of the user's own it stays |
//! | a change | did not change it | stays |
//! | a change | changed it, too | a conflict: stays, or goes where theirs is preferred |
//!
//! A directory that hides all of the baseline's (one that was uploaded, or made anew) stays as it is.
//!
//! Every step shows one entry as one of the two sides has it, and the record of the base is written last: a crash
//! between leaves a skill that can be pulled again.

use std::ffi::OsStr;

use policy::TreeId;

use crate::core::store::Store;
use crate::dir::subdirectory;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::trash::Trash;
use crate::layers::whiteouts::is_opaque;
use crate::layout;
use crate::skills::Skills;
use crate::skills::status::{exists, same};
use crate::stat::{Kind, Stat};
use crate::version::{self, Version};

/// The side whose change stays where both changed the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// The user's.
    #[default]
    Ours,
    /// The application's.
    Theirs,
}

/// The outcome of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// The version that the user's changes now lie over; `None` when the application has none of the skill.
    pub version: Option<Version>,
    /// Whether that is another one than before.
    pub moved: bool,
    /// Entries of the overlay that went because the current version shows instead.
    pub refreshed: usize,
    /// The paths that both had changed, sorted; bytes that are not UTF-8 are shown as replacement characters.
    pub conflicts: Vec<String>,
}

impl Skills {
    /// Carries a user's changes of a skill over to the current version of the application.
    ///
    /// # Errors
    /// [`Error::NotFound`] when neither layer has the skill; [`Error::Conflict`] while a command is in the skill;
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn pull(&self, id: &TreeId, prefer: Prefer) -> Result<Pulled> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let alone = self.store.locks().write(id);
        let current = self.store.baseline_dir(agent, skill)?;
        let version = current.as_ref().map(version::of).transpose()?;
        let settled = Pulled { version: version.clone(), ..Pulled::default() };
        let upper = match self.store.root().open_dir(&layout::overlay(user, agent)?) {
            Ok(overlays) => match overlays.open_dir_entry(OsStr::new(skill.as_str())) {
                // An overlay that hides the skill has nothing to carry over.
                Err(Error::NotFound(_) | Error::NotADirectory(_)) => None,
                upper => Some(upper?),
            },
            Err(Error::NotFound(_)) => None,
            Err(other) => return Err(other),
        };
        let Some(upper) = upper else {
            return if version.is_some() { Ok(settled) } else { Err(Error::NotFound(skill.to_string())) };
        };
        let base_version = self.store.base_of(id)?;
        if base_version == version {
            return Ok(settled);
        }
        // A view that is only kept for the next command is no command. Closed after the question of whether there is
        // anything to do, which may be asked at any time.
        if self.store.close_unless_used(id)? {
            let message = format!("a command or an upload is in `{skill}`: pull when it has ended");
            return Err(Error::Conflict(message));
        }
        // Settled by that, if it was published by its user.
        let base_version = self.store.base_of(id)?;
        if base_version == version {
            return Ok(settled);
        }
        let base = match &base_version {
            Some(version) => self.store.version_dir(agent, skill, version)?,
            None => None,
        };
        // From the first entry on the pull goes on to its end: no answer tells of half a pull.
        interrupt::commit()?;
        let most = self.store.options().files.tree_entries;
        let mut pulling = Pulling { prefer, ..Pulling::new(&self.store, id, most) };
        pulling.pulled = Pulled { version, moved: true, ..Pulled::default() };
        if !is_opaque(&upper)? {
            pulling.directory(&upper, base.as_ref(), current.as_ref(), "", DEPTH_MAX)?;
        }
        let (trash, mut pulled) = pulling.end();
        self.store.accounts().forget(id);
        self.record_rebase(id)?;
        if self.store.is_strict() {
            upper.sync_file_system()?;
        }
        pulled.conflicts.sort_unstable();
        // The trash is removed after the locks are released.
        drop(alone);
        drop(trash);
        Ok(pulled)
    }

    /// Records that the overlay of `id` lies over the current baseline from now on. That it was published stays.
    fn record_rebase(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(_, agent, skill) = id else { return Ok(()) };
        let base = self.store.base_text(agent, skill)?;
        match self.published_in_base(id)? {
            Some(published) => self.store.record_base_text(id, &format!("{base}\n{}", published.line())),
            None => self.store.record_base_text(id, &base),
        }
    }
}

/// A pull under way.
pub(crate) struct Pulling<'a> {
    store: &'a Store,
    id: &'a TreeId,
    prefer: Prefer,
    entries_left: usize,
    most: usize,
    trash: Vec<Trash>,
    pulled: Pulled,
}

impl<'a> Pulling<'a> {
    /// Nothing is pulled yet; at most `most` entries will be looked at.
    pub(crate) fn new(store: &'a Store, id: &'a TreeId, most: usize) -> Self {
        let pulled = Pulled::default();
        Self { store, id, prefer: Prefer::Ours, entries_left: most, most, trash: Vec::new(), pulled }
    }

    /// The trash, to be dropped after the locks are released, and the changes that were made.
    pub(crate) fn end(self) -> (Vec<Trash>, Pulled) {
        (self.trash, self.pulled)
    }

    /// Carries what `upper` has over from `base` to `current`.
    pub(crate) fn directory(
        &mut self,
        upper: &Dir,
        base: Option<&Dir>,
        current: Option<&Dir>,
        prefix: &str,
        levels: usize,
    ) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        for entry in upper.first_entries(self.entries_left.saturating_add(1))? {
            self.entries_left = self.entries_left.checked_sub(1).ok_or(Error::TooManyEntries(self.most))?;
            let name = entry.name.as_os_str();
            let Some(stat) = upper.stat_entry(name)? else { continue };
            let path = format!("{prefix}{}", name.to_string_lossy());
            if stat.kind == Kind::Directory {
                let below = upper.open_dir_entry(name)?;
                let current_below = subdirectory(current, name)?;
                if is_opaque(&below)? || (current_below.is_none() && exists(current, name)?) {
                    // The user's own, under any change of the application.
                    if exists(current, name)? && !same(base, current, name)? {
                        self.conflict(upper, name, path)?;
                    }
                    continue;
                }
                let base_below = subdirectory(base, name)?;
                let prefix = format!("{path}/");
                self.directory(&below, base_below.as_ref(), current_below.as_ref(), &prefix, levels)?;
                let is_empty = below.first_entries(1)?.is_empty();
                let is_shown = current_below.is_some();
                if is_empty
                    && (is_shown || base_below.is_some())
                    && !(is_shown && has_own_mode(&stat, base, current, name)?)
                {
                    self.remove(upper, name)?;
                }
                continue;
            }
            let is_current = !stat.is_whiteout() && same(Some(upper), current, name)?;
            if is_current && stat.kind == Kind::File && has_own_mode(&stat, base, current, name)? {
                continue;
            }
            let is_settled = if stat.is_whiteout() {
                !exists(current, name)?
            } else {
                is_current || same(Some(upper), base, name)?
            };
            if is_settled {
                self.remove(upper, name)?;
            } else if !same(base, current, name)? {
                self.conflict(upper, name, path)?;
            }
        }
        Ok(())
    }

    fn conflict(&mut self, upper: &Dir, name: &OsStr, path: String) -> Result<()> {
        self.pulled.conflicts.push(path);
        match self.prefer {
            Prefer::Ours => Ok(()),
            Prefer::Theirs => self.remove(upper, name),
        }
    }

    fn remove(&mut self, upper: &Dir, name: &OsStr) -> Result<()> {
        self.trash.push(self.store.stage().discard(upper, name, Some(self.id))?);
        self.pulled.refreshed += 1;
        Ok(())
    }
}

/// Tells whether the user gave an entry, of which `stat` is in the overlay, a mode that neither version has.
fn has_own_mode(stat: &Stat, base: Option<&Dir>, current: Option<&Dir>, name: &OsStr) -> Result<bool> {
    for version in [base, current].into_iter().flatten() {
        if version.stat_entry(name)?.is_some_and(|theirs| theirs.mode == stat.mode) {
            return Ok(false);
        }
    }
    Ok(true)
}

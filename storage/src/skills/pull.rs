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
//! between leaves a skill that can be pulled again. [`Skills::would_pull`] goes the same way and changes nothing.

use std::collections::{BTreeMap, HashSet};
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

/// What becomes of conflicts: of each path that is named, and of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The side of the paths that are not named.
    pub prefer: Prefer,
    /// The side of each of these paths, which are to be in conflict.
    pub named: BTreeMap<String, Prefer>,
}

impl From<Prefer> for Choices {
    fn from(prefer: Prefer) -> Self {
        Self { prefer, named: BTreeMap::new() }
    }
}

impl Choices {
    fn of(&self, path: &str) -> Prefer {
        self.named.get(path).copied().unwrap_or(self.prefer)
    }

    /// Refuses choices for paths that are not among `conflicts`.
    fn check(&self, conflicts: &[String]) -> Result<()> {
        let known: HashSet<&String> = conflicts.iter().collect();
        match self.named.keys().find(|path| !known.contains(path)) {
            None => Ok(()),
            Some(path) => Err(Error::Conflict(format!(
                "`{path}` is not in conflict: choose for paths that a pull with `dry_run` names"
            ))),
        }
    }
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
    /// Carries a user's changes of a skill over to the current version of the application. What both changed becomes what `choices`
    /// say, which are checked before anything is done.
    ///
    /// # Errors
    /// [`Error::NotFound`] when neither layer has the skill; [`Error::Conflict`] while a command is in the skill, and for a choice
    /// about a path that is not in conflict; [`Error::TooManyEntries`], [`Error::Io`].
    pub fn pull(&self, id: &TreeId, choices: impl Into<Choices>) -> Result<Pulled> {
        let choices = choices.into();
        let alone = self.store.locks().write(id);
        let overlay = match self.to_pull(id)? {
            ToPull::Nothing(settled) => return choices.check(&[]).map(|()| settled),
            ToPull::Overlay(overlay) => overlay,
        };
        if !choices.named.is_empty() {
            let (_, would) = self.carry(&overlay, Pulling { is_dry: true, ..self.pulling(id) })?;
            choices.check(&would.conflicts)?;
        }
        // A view that is only kept for the next command is no command. Closed after the question of whether there is
        // anything to do, which may be asked at any time.
        if self.store.close_unless_used(id)? {
            let TreeId::Skill(_, _, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
            let message = format!("a command or an upload is in `{skill}`: pull when it has ended");
            return Err(Error::Conflict(message));
        }
        // Settled by that, if it was published by its user.
        if self.store.base_of(id)? == overlay.version {
            return Ok(Pulled { version: overlay.version, ..Pulled::default() });
        }
        // From the first entry on the pull goes on to its end: no answer tells of half a pull.
        interrupt::commit()?;
        let (trash, mut pulled) = self.carry(&overlay, Pulling { choices, ..self.pulling(id) })?;
        self.store.accounts().forget(id);
        self.record_rebase(id)?;
        if self.store.is_strict() {
            overlay.upper.sync_file_system()?;
        }
        pulled.conflicts.sort_unstable();
        // The trash is removed after the locks are released.
        drop(alone);
        drop(trash);
        Ok(pulled)
    }

    /// Tells what a pull would do, and does nothing, also while a command is in the skill. What the user, a command, or the
    /// application changes meanwhile may make the pull itself another one.
    ///
    /// # Errors
    /// As [`Skills::pull`], but for the command.
    pub fn would_pull(&self, id: &TreeId, choices: impl Into<Choices>) -> Result<Pulled> {
        let choices = choices.into();
        let _held = self.store.locks().read(id);
        match self.to_pull(id)? {
            ToPull::Nothing(settled) => choices.check(&[]).map(|()| settled),
            ToPull::Overlay(overlay) => {
                let pulling = Pulling { choices: choices.clone(), is_dry: true, ..self.pulling(id) };
                let (_, mut pulled) = self.carry(&overlay, pulling)?;
                choices.check(&pulled.conflicts)?;
                pulled.conflicts.sort_unstable();
                Ok(pulled)
            }
        }
    }

    /// The overlay that is not based on the current version, if there is one.
    fn to_pull(&self, id: &TreeId) -> Result<ToPull> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
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
        match upper {
            None if version.is_none() => Err(Error::NotFound(skill.to_string())),
            Some(upper) if self.store.base_of(id)? != version => {
                Ok(ToPull::Overlay(Overlay { upper, current, version }))
            }
            _ => Ok(ToPull::Nothing(settled)),
        }
    }

    fn pulling<'a>(&'a self, id: &'a TreeId) -> Pulling<'a> {
        Pulling::new(&self.store, id, self.store.options().files.tree_entries)
    }

    /// Carries an overlay over from its base to the current version.
    fn carry(&self, overlay: &Overlay, mut pulling: Pulling<'_>) -> Result<(Vec<Trash>, Pulled)> {
        let TreeId::Skill(_, agent, skill) = pulling.id else { return Ok(pulling.end()) };
        let Overlay { upper, current, version } = overlay;
        let base = match &self.store.base_of(pulling.id)? {
            Some(version) => self.store.version_dir(agent, skill, version)?,
            None => None,
        };
        pulling.pulled = Pulled { version: version.clone(), moved: true, ..Pulled::default() };
        if !is_opaque(upper)? {
            pulling.directory(upper, base.as_ref(), current.as_ref(), "", DEPTH_MAX)?;
        }
        Ok(pulling.end())
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

/// What there is to pull.
enum ToPull {
    /// Nothing, and what is told of that.
    Nothing(Pulled),
    /// This overlay.
    Overlay(Overlay),
}

/// An overlay that is not based on the current version.
struct Overlay {
    upper: Dir,
    /// The current version, when the application has the skill.
    current: Option<Dir>,
    version: Option<Version>,
}

/// A pull under way.
pub(crate) struct Pulling<'a> {
    store: &'a Store,
    id: &'a TreeId,
    choices: Choices,
    /// Whether it is only told what would be done.
    is_dry: bool,
    entries_left: usize,
    most: usize,
    trash: Vec<Trash>,
    pulled: Pulled,
}

impl<'a> Pulling<'a> {
    /// Nothing is pulled yet; at most `most` entries will be looked at.
    pub(crate) fn new(store: &'a Store, id: &'a TreeId, most: usize) -> Self {
        let pulled = Pulled::default();
        Self {
            store,
            id,
            choices: Choices::default(),
            is_dry: false,
            entries_left: most,
            most,
            trash: Vec::new(),
            pulled,
        }
    }

    /// The trash, to be dropped after the locks are released, and the changes that were made.
    pub(crate) fn end(self) -> (Vec<Trash>, Pulled) {
        (self.trash, self.pulled)
    }

    /// Carries what `upper` has over from `base` to `current`. Tells whether anything stays in `upper`.
    pub(crate) fn directory(
        &mut self,
        upper: &Dir,
        base: Option<&Dir>,
        current: Option<&Dir>,
        prefix: &str,
        levels: usize,
    ) -> Result<bool> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        let mut any_stays = false;
        for entry in upper.first_entries(self.entries_left.saturating_add(1))? {
            // What changes something goes on to its end.
            if self.is_dry {
                interrupt::check()?;
            }
            self.entries_left = self.entries_left.checked_sub(1).ok_or(Error::TooManyEntries(self.most))?;
            let name = entry.name.as_os_str();
            let Some(stat) = upper.stat_entry(name)? else { continue };
            let path = format!("{prefix}{}", name.to_string_lossy());
            let goes = match stat.kind {
                Kind::Directory => self.directory_goes(upper, (name, &stat), base, current, path, levels)?,
                _ => self.leaf_goes(upper, (name, &stat), base, current, path)?,
            };
            if goes {
                self.remove(upper, name)?;
            }
            any_stays |= !goes;
        }
        Ok(any_stays)
    }

    /// Carries a directory of the overlay over, and tells whether it is to go itself.
    fn directory_goes(
        &mut self,
        upper: &Dir,
        (name, stat): (&OsStr, &Stat),
        base: Option<&Dir>,
        current: Option<&Dir>,
        path: String,
        levels: usize,
    ) -> Result<bool> {
        let below = upper.open_dir_entry(name)?;
        let current_below = subdirectory(current, name)?;
        if is_opaque(&below)? || (current_below.is_none() && exists(current, name)?) {
            // The user's own, under any change of the application.
            let is_conflict = exists(current, name)? && !same(base, current, name)?;
            return Ok(is_conflict && self.conflict(path));
        }
        let base_below = subdirectory(base, name)?;
        let prefix = format!("{path}/");
        let any_stays =
            self.directory(&below, base_below.as_ref(), current_below.as_ref(), &prefix, levels)?;
        // What came there meanwhile is nobody's to remove.
        let is_left = any_stays || (!self.is_dry && !below.first_entries(1)?.is_empty());
        let is_shown = current_below.is_some();
        Ok(!is_left
            && (is_shown || base_below.is_some())
            && !(is_shown && has_own_mode(stat, base, current, name)?))
    }

    /// Tells whether a file, link or whiteout of the overlay is to go.
    fn leaf_goes(
        &mut self,
        upper: &Dir,
        (name, stat): (&OsStr, &Stat),
        base: Option<&Dir>,
        current: Option<&Dir>,
        path: String,
    ) -> Result<bool> {
        let is_current = !stat.is_whiteout() && same(Some(upper), current, name)?;
        if is_current && stat.kind == Kind::File && has_own_mode(stat, base, current, name)? {
            return Ok(false);
        }
        let is_settled = if stat.is_whiteout() {
            !exists(current, name)?
        } else {
            is_current || same(Some(upper), base, name)?
        };
        Ok(is_settled || (!same(base, current, name)? && self.conflict(path)))
    }

    /// Notes a conflict, and tells whether the user's side goes.
    fn conflict(&mut self, path: String) -> bool {
        let choice = self.choices.of(&path);
        self.pulled.conflicts.push(path);
        choice == Prefer::Theirs
    }

    fn remove(&mut self, upper: &Dir, name: &OsStr) -> Result<()> {
        self.pulled.refreshed += 1;
        if !self.is_dry {
            self.trash.push(self.store.stage().discard(upper, name, Some(self.id))?);
        }
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

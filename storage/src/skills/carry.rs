//! Settling a promotion: what a user's overlay holds, told from the version that it became.
//!
//! A user who publishes a skill ([`Skills::promote`]) has nothing of their own in it any more. While a command is in the
//! skill, the overlay must stay, over the version that the command sees. When the command has ended, the overlay comes to
//! lie over the version that it became, and no reader may see a difference by that:
//!
//! * what is as in that version goes from the overlay;
//! * what the user had added, published, and removed since shows again, because overlayfs leaves no whiteout where the
//!   mounted baseline has nothing: it gets one now;
//! * an overlay in which nothing differs is dropped as a whole.
//!
//! Whiteouts come first and the new base last: a crash between leaves copies that are no changes.

use std::collections::HashMap;
use std::ffi::OsStr;

use policy::TreeId;

use crate::core::bases::Promotion;
use crate::dir::subdirectory;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::whiteouts::is_opaque;
use crate::layout;
use crate::skills::Skills;
use crate::skills::pull::Pulling;
use crate::skills::status::{Comparison, exists, same};
use crate::stat::Kind;

/// The layers of one directory, as far as they have it.
struct Seen<'a> {
    upper: &'a Dir,
    /// The version that the command saw below it.
    mounted: Option<Dir>,
    /// The version that the user's changes were merged with when they were published.
    over: Option<Dir>,
    promoted: &'a Dir,
}

impl Skills {
    /// Lets the overlay of `id` lie over the version that it became, if it became one while a command was in it.
    ///
    /// The caller holds the tree alone, which has no view. What fails is told to the operator: the overlay then holds
    /// copies of what was published until it is pulled, reset or settled again.
    pub(crate) fn settle_promoted(&self, id: &TreeId) -> Result<()> {
        let Some(promotion) = self.store.promotion_of(id)? else { return Ok(()) };
        if let Err(error) = self.carry_over(id, &promotion) {
            let (user, tree) = (id.user(), id.sandbox_path());
            tracing::warn!(
                %error, %user, tree,
                "failed to settle a promoted skill: its overlay stays as it is"
            );
        }
        Ok(())
    }

    fn carry_over(&self, id: &TreeId, promotion: &Promotion) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let overlays = match self.store.root().open_dir(&layout::overlay(user, agent)?) {
            Err(Error::NotFound(_)) => return self.store.forget_base(id),
            overlays => overlays?,
        };
        let upper = match overlays.open_dir_entry(OsStr::new(skill.as_str())) {
            Err(Error::NotFound(_)) => return self.store.forget_base(id),
            // Hidden since.
            Err(Error::NotADirectory(_)) => return self.store.forget_promotion(id),
            upper => upper?,
        };
        let kept = |version: &Option<_>| match version {
            Some(version) => self.store.version_dir(agent, skill, version),
            None => Ok(None),
        };
        let Some(promoted) = kept(&Some(promotion.promoted.clone()))? else {
            return Err(Error::NotFound(format!("{skill} {}", promotion.promoted.as_str())));
        };
        let most = self.store.options().files.tree_entries;
        if !is_opaque(&upper)? {
            let (mounted, over) = (kept(&promotion.mounted)?, kept(&promotion.over)?);
            let mut room = Room { compared: most, hidden: most };
            let seen = Seen { upper: &upper, mounted, over, promoted: &promoted };
            seen.hide_removed(&mut room, DEPTH_MAX).map_err(|error| match error {
                Error::TooManyEntries(0) => Error::TooManyEntries(most),
                error => error,
            })?;
        }
        if Comparison::changes(&upper, Some(&promoted), Some(&promoted), most)?.is_empty() {
            drop(self.reset_held(id)?);
            return Ok(());
        }
        let mut pulling = Pulling::new(&self.store, id, most);
        if !is_opaque(&upper)? {
            pulling.directory(&upper, Some(&promoted), Some(&promoted), "", DEPTH_MAX)?;
        }
        let (trash, _) = pulling.end();
        self.store.accounts().forget(id);
        if self.store.is_strict() {
            upper.sync_file_system()?;
        }
        let published = self.published_in_base(id)?.filter(|_| is_opaque(&upper).unwrap_or(false));
        let base = promotion.promoted.as_str();
        match published {
            Some(published) => self.store.record_base_text(id, &format!("{base}\n{}", published.line()))?,
            None => self.store.record_base_text(id, base)?,
        }
        drop(trash);
        Ok(())
    }
}

impl Seen<'_> {
    /// Hides what the promoted version has of the user's, and the user has no longer.
    fn hide_removed(&self, room: &mut Room, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        for entry in self.promoted.first_entries(room.hidden.saturating_add(1))? {
            room.hidden = room.hidden.checked_sub(1).ok_or(Error::TooManyEntries(0))?;
            let name = entry.name.as_os_str();
            match self.upper.stat_entry(name)? {
                Some(stat) if stat.kind == Kind::Directory && entry.kind == Kind::Directory => {
                    let upper = self.upper.open_dir_entry(name)?;
                    if !is_opaque(&upper)? {
                        let below = Seen {
                            upper: &upper,
                            mounted: subdirectory(self.mounted.as_ref(), name)?,
                            over: subdirectory(self.over.as_ref(), name)?,
                            promoted: &self.promoted.open_dir_entry(name)?,
                        };
                        below.hide_removed(room, levels)?;
                    }
                }
                Some(_) => {}
                // Seen below, or hidden by a whiteout.
                None if exists(self.mounted.as_ref(), name)? => {}
                // The application's own: never seen by the command, so never removed.
                None if same(self.over.as_ref(), Some(self.promoted), name)? => {}
                None => match self.parts_of(name, entry.kind, room, levels)? {
                    Some((parts, over)) => self.hide_parts(name, &parts, &over, room, levels)?,
                    None => self.upper.create_whiteout(name)?,
                },
            }
        }
        Ok(())
    }

    /// The part of the promoted directory `name` that is the application's, which has it too; `None` when no part is.
    fn parts_of(
        &self,
        name: &OsStr,
        kind: Kind,
        room: &mut Room,
        levels: usize,
    ) -> Result<Option<(Parts, Dir)>> {
        let over = match kind {
            Kind::Directory => subdirectory(self.over.as_ref(), name)?,
            _ => None,
        };
        let Some(over) = over else { return Ok(None) };
        let mut parts = Parts::default();
        let part = parts.compare(&self.promoted.open_dir_entry(name)?, &over, room, levels)?;
        Ok((part != Part::None).then_some((parts, over)))
    }

    /// Hides the user's part of the promoted directory `name`, some of which is the application's.
    fn hide_parts(
        &self,
        name: &OsStr,
        parts: &Parts,
        over: &Dir,
        room: &mut Room,
        levels: usize,
    ) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        let promoted = self.promoted.open_dir_entry(name)?;
        let upper = self.upper.create_dir(name, promoted.stat()?.mode)?;
        let below = Seen { upper: &upper, mounted: None, over: None, promoted: &promoted };
        for entry in promoted.first_entries(room.hidden.saturating_add(1))? {
            room.hidden = room.hidden.checked_sub(1).ok_or(Error::TooManyEntries(0))?;
            let name = entry.name.as_os_str();
            let over_below = subdirectory(Some(over), name)?;
            match (parts.of(&promoted, name)?, over_below) {
                (Some(Part::Whole), _) => {}
                (Some(Part::Some), Some(over)) => below.hide_parts(name, parts, &over, room, levels)?,
                (None, _) if same(Some(over), Some(&promoted), name)? => {}
                _ => upper.create_whiteout(name)?,
            }
        }
        Ok(())
    }
}

/// Entries of the promoted version that may be looked at yet: each once to be compared, and once to be hidden.
struct Room {
    compared: usize,
    hidden: usize,
}

/// How much of a promoted directory is as the application has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    Some,
    Whole,
}

/// The directories of a promoted version that the application has too, by inode. They are compared once, from the bottom up:
/// a comparison of each with all below it would look at an entry once for each level that it lies under.
#[derive(Default)]
struct Parts(HashMap<u64, Part>);

impl Parts {
    /// Compares the promoted directory `promoted` with the application's `over`, at any depth.
    fn compare(&mut self, promoted: &Dir, over: &Dir, room: &mut Room, levels: usize) -> Result<Part> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        let entries = promoted.first_entries(room.compared.saturating_add(1))?;
        let mut is_whole = over.first_entries(entries.len() + 1)?.len() == entries.len();
        let mut has_some = is_whole && entries.is_empty();
        for entry in entries {
            room.compared = room.compared.checked_sub(1).ok_or(Error::TooManyEntries(0))?;
            let name = entry.name.as_os_str();
            let below = match entry.kind {
                Kind::Directory => subdirectory(Some(over), name)?,
                _ => None,
            };
            let part = match below {
                Some(over) => self.compare(&promoted.open_dir_entry(name)?, &over, room, levels)?,
                None if same(Some(over), Some(promoted), name)? => Part::Whole,
                None => Part::None,
            };
            is_whole &= part == Part::Whole;
            has_some |= part != Part::None;
        }
        let part = match (is_whole, has_some) {
            (true, _) => Part::Whole,
            (false, true) => Part::Some,
            (false, false) => Part::None,
        };
        self.0.insert(promoted.stat()?.inode, part);
        Ok(part)
    }

    /// How much of the directory `name` in `promoted` is the application's; `None` of what is no directory of both.
    fn of(&self, promoted: &Dir, name: &OsStr) -> Result<Option<Part>> {
        let stat = promoted.stat_entry(name)?.filter(|stat| stat.kind == Kind::Directory);
        Ok(stat.and_then(|stat| self.0.get(&stat.inode).copied()))
    }
}

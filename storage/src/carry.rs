//! Settling a promotion: what a user's overlay holds, told from the version that it became.
//!
//! A user who publishes a skill ([`Store::promote`]) has nothing of their own in it any more. While a command is in the
//! skill, the overlay must stay, over the version that the command sees. When the command has ended, the overlay comes to
//! lie over the version that it became, and nobody may see a difference by that:
//!
//! * what is as in that version goes from the overlay;
//! * what the user had added, published, and removed since shows again, because overlayfs leaves no whiteout where the
//!   mounted baseline has nothing: it gets one now;
//! * an overlay in which nothing differs is dropped as a whole.
//!
//! Whiteouts come first and the new base last: a crash between leaves copies that are no changes.

use std::ffi::OsStr;

use policy::TreeId;

use crate::base::Promotion;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::place;
use crate::pull::Pulling;
use crate::stat::Kind;
use crate::status::{Comparison, exists, same, subdirectory};
use crate::store::Store;
use crate::union::layers::is_opaque;

/// The layers of one directory, as far as they have it.
struct Seen<'a> {
    upper: &'a Dir,
    /// What the command saw below it.
    mounted: Option<Dir>,
    /// What the user's changes were merged with when they were published.
    over: Option<Dir>,
    promoted: &'a Dir,
}

impl Store {
    /// Lets the overlay of `id` lie over the version that it became, if it became one while a command was in it.
    ///
    /// The caller holds the tree alone, which has no view. What fails is told to the operator: the overlay then holds
    /// copies of what was published until it is pulled, reset or settled again.
    pub(crate) fn settle_promoted(&self, id: &TreeId) -> Result<()> {
        let Some(promotion) = self.promotion_of(id)? else { return Ok(()) };
        if let Err(error) = self.carry_over(id, &promotion) {
            tracing::warn!(%error, tree = %id.sandbox_path(), "failed to settle a promoted skill");
        }
        Ok(())
    }

    fn carry_over(&self, id: &TreeId, promotion: &Promotion) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let overlays = match self.inner.root.open_dir(&place::overlay(user, agent)?) {
            Err(Error::NotFound(_)) => return self.forget_base(id),
            overlays => overlays?,
        };
        let upper = match overlays.open_dir_entry(OsStr::new(skill.as_str())) {
            Err(Error::NotFound(_)) => return self.forget_base(id),
            // Hidden since.
            Err(Error::NotADirectory(_)) => return self.forget_promotion(id),
            upper => upper?,
        };
        let kept = |version: &Option<_>| match version {
            Some(version) => self.version_dir(agent, skill, version),
            None => Ok(None),
        };
        let Some(promoted) = kept(&Some(promotion.promoted.clone()))? else {
            return Err(Error::NotFound(format!("{skill} {}", promotion.promoted.as_str())));
        };
        let most = self.inner.options.files.tree_entries;
        if !is_opaque(&upper)? {
            let (mounted, over) = (kept(&promotion.mounted)?, kept(&promotion.over)?);
            let mut entries_left = most;
            let seen = Seen { upper: &upper, mounted, over, promoted: &promoted };
            seen.hide_removed(&mut entries_left, DEPTH_MAX)
                .map_err(|error| if entries_left == 0 { Error::TooManyEntries(most) } else { error })?;
        }
        if Comparison::changes(&upper, Some(&promoted), Some(&promoted), most)?.is_empty() {
            drop(self.reset_held(id)?);
            return Ok(());
        }
        let mut pulling = Pulling::new(self, id, most);
        if !is_opaque(&upper)? {
            pulling.directory(&upper, Some(&promoted), Some(&promoted), "", DEPTH_MAX)?;
        }
        let (trash, _) = pulling.end();
        self.inner.accounts.forget(id);
        if self.is_strict() {
            upper.sync_file_system()?;
        }
        let published = self.published_in_base(id)?.filter(|_| is_opaque(&upper).unwrap_or(false));
        let base = promotion.promoted.as_str();
        match published {
            Some(published) => self.record_base_text(id, &format!("{base}\n{}", published.line()))?,
            None => self.record_base_text(id, base)?,
        }
        drop(trash);
        Ok(())
    }
}

impl Seen<'_> {
    /// Hides what the promoted version has of the user's, and the user has no longer.
    fn hide_removed(&self, entries_left: &mut usize, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        for entry in self.promoted.first_entries(entries_left.saturating_add(1))? {
            *entries_left = entries_left.checked_sub(1).ok_or(Error::TooManyEntries(0))?;
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
                        below.hide_removed(entries_left, levels)?;
                    }
                }
                Some(_) => {}
                // Seen below, or hidden by a whiteout.
                None if exists(self.mounted.as_ref(), name)? => {}
                // The application's own: never seen by the command, so never removed.
                None if same(self.over.as_ref(), Some(self.promoted), name)? => {}
                None if exists(self.over.as_ref(), name)? && entry.kind == Kind::Directory => {}
                None => self.upper.create_whiteout(name)?,
            }
        }
        Ok(())
    }
}

//! What a user has in all, and whether it may be more: every tree with every agent, the snapshots, and what was thrown away.
//!
//! Requests go by the sum that is known ([`Totals`](crate::core::totals::Totals)). Only a sum that is not known, or is in
//! doubt and too large, is made again: of it, what is known to be right is not counted anew.

use std::collections::HashSet;

use policy::{SkillId, TreeId, UserId, WorkspaceId};

use crate::core::agents::LISTED_MAX;
use crate::core::count::Counter;
use crate::core::growth::{GRACE, Growth};
use crate::core::store::Store;
use crate::core::totals::{KnownTotal, Reservation};
use crate::error::{Error, Result};
use crate::layout;
use crate::stat::Use;

/// How often what a user has is counted while it is being replaced whole.
const TRIES: usize = 4;

/// What becomes of trees in doubt when all that a user has is summed up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubtful {
    /// They are counted again.
    Counted,
    /// They are taken for what they were.
    Taken,
}

/// Room that a change was promised among all that its user may have, until the change is made. Dropping it gives the room
/// back.
#[must_use]
pub(crate) struct Admitted {
    store: Store,
    user: UserId,
    reserved: Use,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if self.reserved != Use::default() {
            self.store.inner.accounts.release(&self.user, self.reserved);
        }
    }
}

impl Admitted {
    /// Room for nothing, to be added to.
    pub(crate) fn nothing(store: &Store, user: &UserId) -> Self {
        Self { store: store.clone(), user: user.clone(), reserved: Use::default() }
    }

    /// Takes more room.
    ///
    /// # Errors
    /// [`Error::Quota`]; then none is taken.
    pub(crate) fn add(&mut self, growth: &Growth) -> Result<()> {
        let mut more = self.store.admit_user(&self.user, growth)?;
        self.reserved = self.reserved.plus(std::mem::take(&mut more.reserved));
        Ok(())
    }
}

impl Store {
    /// What a user has in all, and may have.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn user_usage(&self, user: &UserId) -> Result<(Use, Use)> {
        let taken = match self.inner.accounts.total(user) {
            Some(known) if known.is_exact => known.taken,
            _ => self.count_user(user, Doubtful::Counted)?,
        };
        Ok((taken, self.user_limits()))
    }

    pub(crate) fn user_limits(&self) -> Use {
        let limits = self.disk_limits();
        Use { bytes: limits.user_bytes, files: limits.user_files }
    }

    /// Tells whether all that a user has leaves room for a change, by what is known of it, without a count.
    pub(crate) fn user_has_room(&self, user: &UserId, growth: &Growth) -> bool {
        let known = self.inner.accounts.total(user);
        known.is_some_and(|known| self.check_user(user, growth, known.taken).is_ok())
    }

    /// Keeps room for a change among all that its user may have.
    ///
    /// # Errors
    /// [`Error::Quota`]; [`Error::TooManyEntries`], [`Error::Io`] of a count.
    pub(crate) fn admit_user(&self, user: &UserId, growth: &Growth) -> Result<Admitted> {
        let accounts = &self.inner.accounts;
        let mut admitted = Admitted::nothing(self, user);
        for _ in 0..TRIES {
            match accounts.reserve(user, growth) {
                Reservation::Made(reserved) => {
                    admitted.reserved = reserved;
                    return Ok(admitted);
                }
                Reservation::Refused(KnownTotal { taken, is_exact: true, .. }) => {
                    self.check_user(user, growth, taken)?;
                }
                Reservation::Refused(_) => {
                    self.check_user(user, growth, self.count_user(user, Doubtful::Counted)?)?;
                }
                // What is too much by what is in doubt is counted in the next round.
                Reservation::Unknown => {
                    self.count_user(user, Doubtful::Taken)?;
                }
            }
        }
        // What the user has is being replaced all the time.
        self.check_user(user, growth, self.count_user(user, Doubtful::Counted)?)?;
        Ok(admitted)
    }

    fn check_user(&self, user: &UserId, growth: &Growth, taken: Use) -> Result<()> {
        let (limits, after) = (self.user_limits(), growth.after(taken));
        let (setting, unit, used, limit, needs) = if growth.adds_bytes() && after.bytes > limits.bytes {
            let needs = growth.adds.bytes - growth.takes.bytes;
            ("limits.disk.user_bytes", "bytes", taken.bytes, limits.bytes, needs)
        } else if growth.adds_files() && after.files > limits.files {
            let needs = growth.adds.files - growth.takes.files;
            ("limits.disk.user_files", "files", taken.files, limits.files, needs)
        } else {
            return Ok(());
        };
        tracing::debug!(%user, setting, used, limit, needs, "quota");
        Err(Error::Quota { tree: of_user(user), setting, unit, used, limit, needs })
    }

    /// Refuses a run of a user whose runs have gone on filling the disk above what the user may have in all.
    ///
    /// # Errors
    /// [`Error::Quota`]; [`Error::TooManyEntries`], [`Error::Io`] of a count.
    pub(crate) fn admit_run_of(&self, user: &UserId) -> Result<()> {
        let limits = self.user_limits();
        let has_gone_on = |known: &KnownTotal| {
            let bound = known.least_above.map(|least| least.plus(GRACE).at_least(limits));
            bound.is_some_and(|bound| known.taken.exceeds(bound))
        };
        let Some(mut known) = self.inner.accounts.total(user).filter(has_gone_on) else { return Ok(()) };
        if !known.is_exact {
            self.count_user(user, Doubtful::Counted)?;
            let Some(counted) = self.inner.accounts.total(user).filter(has_gone_on) else { return Ok(()) };
            known = counted;
        }
        let nothing = Growth { adds: Use { bytes: 1, files: 1 }, takes: Use::default(), is_exact: true };
        self.check_user(user, &nothing, known.taken)
    }

    /// How far a user is above what runs may make it: a run that lets a tree grow then is ended. `more` is not in any tree
    /// yet.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`] of a count, which is made where nothing is known.
    pub(crate) fn user_excess(&self, user: &UserId, more: Use) -> Result<Use> {
        let taken = match self.inner.accounts.total(user) {
            Some(known) => known.taken,
            None => self.count_user(user, Doubtful::Taken)?,
        };
        Ok(taken.plus(more).minus(self.user_limits().plus(GRACE)))
    }

    /// Counts what a user has, but for what is known.
    fn count_user(&self, user: &UserId, doubtful: Doubtful) -> Result<Use> {
        let accounts = &self.inner.accounts;
        let marks = accounts.begin_sum(user);
        let mut trees = Vec::new();
        let mut snapshots = Use::default();
        for tree in self.trees_of(user)? {
            let taken = match accounts.known(&tree) {
                Some(known) if known.is_exact || doubtful == Doubtful::Taken => known.counted.taken,
                _ => self.count(&tree)?.taken,
            };
            if let TreeId::Workspace(user, agent) = &tree {
                let id = WorkspaceId { user: user.clone(), agent: agent.clone() };
                snapshots = snapshots.plus(self.count_kept(&id)?);
            }
            trees.push((tree, taken));
        }
        Ok(accounts.sum_up(user, marks, &trees, snapshots))
    }

    /// The trees of a user, those of which there is only trash among them.
    fn trees_of(&self, user: &UserId) -> Result<HashSet<TreeId>> {
        let mut trees: HashSet<TreeId> = self.inner.stage.trash().owners(user).into_iter().collect();
        for agent in self.agents_of(user)? {
            let overlays = match self.inner.root.open_dir(&layout::overlay(user, &agent)?) {
                Ok(dir) => dir.entries_at_most(LISTED_MAX)?,
                Err(Error::NotFound(_)) => Vec::new(),
                Err(other) => return Err(other),
            };
            let skills = overlays.iter().filter_map(|entry| SkillId::parse(entry.name.to_str()?).ok());
            trees.extend(skills.map(|skill| TreeId::Skill(user.clone(), agent.clone(), skill)));
            trees.insert(TreeId::Workspace(user.clone(), agent));
        }
        Ok(trees)
    }

    /// What the service keeps about a sandbox: its snapshots.
    fn count_kept(&self, id: &WorkspaceId) -> Result<Use> {
        if let Some(taken) = self.inner.accounts.snapshots(id) {
            return Ok(taken);
        }
        let taken = match self.inner.root.open_dir(&layout::sandbox(&id.user, &id.agent)?) {
            Err(Error::NotFound(_)) => Use::default(),
            dir => {
                let limit = self.options().snapshots.files;
                let mut counter = Counter::new(limit.saturating_mul(2).saturating_add(1024));
                counter.tree(&dir?)?;
                counter.end().taken
            }
        };
        self.inner.accounts.snapshots_counted(id, taken);
        Ok(taken)
    }
}

/// All that a user has, as callers know it.
fn of_user(user: &UserId) -> String {
    format!("all that the user `{user}` has, in every workspace and skill, with snapshots,")
}

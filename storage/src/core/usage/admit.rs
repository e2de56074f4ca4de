//! Deciding: whether a change may be made, and how far a run may let its trees grow.

use policy::TreeId;

use crate::core::accounts::Known;
use crate::core::count::Counted;
use crate::core::growth::{GRACE, Growth};
use crate::core::store::Store;
use crate::core::usage::user::Admitted;
use crate::error::{Error, Result};
use crate::stat::Use;

/// How much the trees of a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    /// No more than this.
    At(Use),
    /// The present use is not known yet; see [`Ceiling::seen`].
    Unknown,
}

impl Ceiling {
    /// The ceiling of a run that begins when `taken` is there.
    fn of(taken: Use, limits: Use) -> Self {
        let raised = |taken: u64, limit: u64, grace: u64| {
            if taken > limit { taken.saturating_add(grace) } else { limit }
        };
        Self::At(Use {
            bytes: raised(taken.bytes, limits.bytes, GRACE.bytes),
            files: raised(taken.files, limits.files, GRACE.files),
        })
    }

    /// The ceiling of a run once `taken` was seen: one that began in the unknown is taken to have begun with that.
    #[must_use]
    pub fn seen(self, taken: Use, limits: Use) -> Self {
        match self {
            Self::Unknown => Self::of(taken, limits),
            Self::At(_) => self,
        }
    }
}

impl Store {
    /// Refuses a change while the file system has less room left than it is to keep. What arrives slowly is to ask
    /// again on its way.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn admit_space(&self) -> Result<()> {
        self.admit_space_for(0)
    }

    /// Refuses a change that is about to write `bytes` when the file system would then have less room left than it is to
    /// keep.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn admit_space_for(&self, bytes: u64) -> Result<()> {
        let floor = self.disk_limits().free_bytes;
        if floor == 0 {
            return Ok(());
        }
        let free = self.make_space(bytes)?;
        if free.saturating_sub(bytes) < floor { Err(Error::Full { free, floor }) } else { Ok(()) }
    }

    /// The bytes that the file system has left. When these are fewer than it is to keep beside `bytes`, the copies of skills
    /// that no run is in go first: nothing is refused, and no run ended, for copies that can be made again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn make_space(&self, bytes: u64) -> Result<u64> {
        let free = self.free_bytes()?;
        let is_enough = free.saturating_sub(bytes) >= self.disk_limits().free_bytes;
        if is_enough || !self.copies().forget_idle() { Ok(free) } else { self.free_bytes() }
    }

    /// Tells whether a change has room in the tree `id` by what is known of it, without a count.
    pub(crate) fn has_room(&self, id: &TreeId, growth: &Growth) -> bool {
        let known = self.inner.accounts.known(id);
        !growth.adds_bytes() && !growth.adds_files()
            || known.is_some_and(|known| self.check(id, growth, known.counted).is_ok())
                && self.user_has_room(id.user(), growth)
    }

    /// Refuses a change that makes a tree, or all that its user has, larger than it may be. One that makes it smaller is
    /// always admitted.
    ///
    /// The caller holds the tree alone, and what is returned until the change is made.
    ///
    /// # Errors
    /// [`Error::Quota`], [`Error::Countless`], [`Error::Full`].
    pub(crate) fn admit(&self, id: &TreeId, growth: &Growth) -> Result<Admitted> {
        if !growth.adds_bytes() && !growth.adds_files() {
            return Ok(Admitted::nothing(self, id.user()));
        }
        self.admit_space()?;
        let by_known = self.inner.accounts.known(id).map(|known| {
            let admitted = self.check(id, growth, known.counted);
            (admitted.is_ok() || known.is_exact).then_some(admitted)
        });
        match by_known.flatten() {
            Some(admitted) => admitted?,
            None => self.check(id, growth, self.count(id)?)?,
        }
        self.admit_user(id.user(), growth)
    }

    /// Refuses to replace a whole tree by one that takes `taken`, which is more than it may and more than it takes now, or
    /// for which its user has no room beside the tree that is replaced.
    ///
    /// # Errors
    /// As [`Store::admit`].
    pub(crate) fn admit_whole(&self, id: &TreeId, taken: Use) -> Result<Admitted> {
        self.admit_space()?;
        if taken.exceeds(self.limits_of(id)) {
            let counted = self.count(id)?;
            let growth = Growth { adds: taken, takes: counted.taken, is_exact: true };
            self.check(id, &growth, Counted { is_whole: true, ..counted })?;
        }
        let beside = Growth { adds: taken, takes: Use::default(), is_exact: true };
        match self.admit_user(id.user(), &beside) {
            // The replaced tree is removed right afterwards.
            Err(Error::Quota { .. }) => {
                let takes = self.count(id)?.taken;
                let instead = Growth { takes, ..beside };
                match instead.adds_bytes() || instead.adds_files() {
                    true => self.admit_user(id.user(), &instead),
                    false => Ok(Admitted::nothing(self, id.user())),
                }
            }
            admitted => admitted,
        }
    }

    fn check(&self, id: &TreeId, growth: &Growth, counted: Counted) -> Result<()> {
        if !counted.is_whole {
            return Err(Error::Countless(id.sandbox_path()));
        }
        let (limits, [of_bytes, of_files]) = (self.limits_of(id), self.settings_of(id));
        let after = growth.after(counted.taken);
        let (setting, unit, used, limit, needs) = if growth.adds_bytes() && after.bytes > limits.bytes {
            let needs = growth.adds.bytes - growth.takes.bytes;
            (of_bytes, "bytes", counted.taken.bytes, limits.bytes, needs)
        } else if growth.adds_files() && after.files > limits.files {
            let needs = growth.adds.files - growth.takes.files;
            (of_files, "files", counted.taken.files, limits.files, needs)
        } else {
            return Ok(());
        };
        tracing::debug!(tree = %id.sandbox_path(), user = %id.user(), setting, used, limit, needs, "quota");
        Err(Error::Quota { tree: id.sandbox_path(), setting, unit, used, limit, needs })
    }

    /// How far a run may let the tree `id` grow. Nothing is counted for it.
    ///
    /// # Errors
    /// [`Error::Quota`] and [`Error::Countless`] when runs have gone on filling a tree that was above its limit: then
    /// only the service itself still removes things from it.
    pub(crate) fn ceiling(&self, id: &TreeId) -> Result<Ceiling> {
        let Some(Known { counted, least_above, is_exact }) = self.inner.accounts.known(id) else {
            return Ok(Ceiling::Unknown);
        };
        let limits = self.limits_of(id);
        if counted.is_whole && !is_exact && counted.taken.exceeds(limits) && least_above.is_none() {
            // Something may have been removed since: what a first look finds decides.
            return Ok(Ceiling::Unknown);
        }
        let has_gone_on = |counted: &Counted| {
            least_above.is_some_and(|least| counted.taken.exceeds(least.plus(GRACE).at_least(limits)))
        };
        if counted.is_whole && !has_gone_on(&counted) {
            return Ok(Ceiling::of(counted.taken, limits));
        }
        let counted = if is_exact { counted } else { self.count(id)? };
        if !counted.is_whole {
            return Err(Error::Countless(id.sandbox_path()));
        }
        if has_gone_on(&counted) {
            let nothing = Growth { adds: Use { bytes: 1, files: 1 }, takes: Use::default(), is_exact: true };
            self.check(id, &nothing, counted)?;
        }
        Ok(Ceiling::of(counted.taken, limits))
    }
}

//! [`Seen`]: a tree as a run sees it, through a live view or in a copy.

use std::ffi::OsString;

use policy::TreeId;

use super::Runs;
use crate::core::copies::{Copy, CopyLease};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::layers::view::ViewLease;
use crate::stat::Use;

/// A skill, or a workspace that is copied, as a command sees it.
pub(super) struct Seen {
    pub(super) id: TreeId,
    pub(super) by: By,
}

/// How it is seen.
pub(super) enum By {
    Live(ViewLease),
    /// A copy that other runs in the skill share.
    Shared(CopyLease),
    /// A copy of the run's own.
    Copy(Copy),
}

impl Seen {
    /// The entries and bytes of the copy in which the tree is seen; none of a view.
    ///
    /// # Errors
    /// Those of [`interrupt::check`](crate::interrupt::check), while another run holds the copy.
    pub(super) fn copied(&self) -> Result<Use> {
        match &self.by {
            By::Live(_) => Ok(Use::default()),
            By::Shared(lease) => {
                Ok(lease.copy().hold()?.made.as_ref().map(Copy::content).unwrap_or_default())
            }
            By::Copy(copy) => Ok(copy.content()),
        }
    }
}

/// How a run is to see a skill.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    Live,
    Shared,
    Apart,
}

impl Runs {
    /// Lets a command see the skill `id`; `copy` names a copy of its own, if it is to have one. Copying ends with `time`.
    pub(super) fn see(
        &self,
        id: TreeId,
        sight: Sight,
        time: &Interrupt,
        copy: impl FnOnce() -> OsString,
    ) -> Result<Seen> {
        if sight == Sight::Shared {
            let lease = time.enter(|| self.enter_copy(&id, self.store.owner(&id)))?;
            return Ok(Seen { id, by: By::Shared(lease) });
        }
        if sight == Sight::Live && self.store.live().is_ok() {
            match self.store.enter(&id) {
                Ok(seat) => return Ok(Seen { id, by: By::Live(seat) }),
                // A mount that the kernel refuses this once must not cost the user the run.
                Err(Error::Io { operation, source, .. }) => {
                    let (user, tree) = (id.user(), id.sandbox_path());
                    tracing::warn!(
                        operation, error = %source, %user, tree,
                        "failed to mount a skill: the run gets a copy"
                    );
                }
                Err(other) => return Err(other),
            }
        }
        let copy = time.enter(|| self.materialise(&id, &copy(), self.store.owner(&id)))?;
        Ok(Seen { id, by: By::Copy(copy) })
    }

    /// Refuses to copy skills for one run that are more together than one may be. A single one was judged when it was
    /// copied.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::TooManyEntries`].
    pub(super) fn check_copied(&self, skills: usize, copied: Use) -> Result<()> {
        let limits = &self.store.options().files;
        if skills > 1 && copied.bytes > limits.view_bytes {
            let what = "the skills that the command is to see, together,".to_owned();
            return Err(Error::TooLarge { what, limit: limits.view_bytes });
        }
        if skills > 1 && copied.files > limits.tree_entries as u64 {
            return Err(Error::TooManyEntries(limits.tree_entries));
        }
        Ok(())
    }
}

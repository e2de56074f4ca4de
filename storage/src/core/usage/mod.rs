//! Quotas: what each tree, and all that a user has, takes on the disk, and whether it may take more.
//!
//! A *tree* is the overlay of one skill, or a workspace together with the home directory of its user and agent, in
//! which all their runs also have their temporary files. Each has a limit of its own ([`policy::DiskLimits`]), and so has
//! everything of a user together. What was thrown away of a tree counts for it until it is removed.
//!
//! The use of a tree is counted by a walk when it is first asked for, and kept in memory. Changes by the service are
//! added to it; after a run, which may do anything, it is counted again. Requests go by what is known, so that their
//! cost does not depend on the number of files; but none is refused before a doubtful number was counted anew.
//!
//! Every tree has at most one change of the service under way (see [`crate::core::lock`]), so that what is admitted cannot
//! together be too much. Runs are looked at from time to time ([`Gauge`](crate::Gauge)).
//!
//! | File | Holds |
//! | --- | --- |
//! | `count` | the walk |
//! | `accounts` | what is known of which tree |
//! | `admit` | whether a change, or a run, may begin |
//! | `limits` | how much each tree may take |
//! | `allot` | having the kernel keep the limits, where it does |
//! | `user` | the same of all that a user has |
//! | `flight` | bytes that are on their way |

mod admit;
mod allot;
mod flight;
mod limits;
mod user;

pub use self::admit::Ceiling;
pub use self::flight::Flight;
pub(crate) use self::user::Admitted;

use policy::{DiskLimits, TreeId};

use crate::core::count::{Counted, Counter};
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;
use crate::stat::Use;

impl Store {
    /// Counts what the tree `id` takes: an overlay, or a workspace and the home directory with it.
    ///
    /// A walk over the whole tree, which ends at twice the number of files that it may have.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn usage(&self, id: &TreeId) -> Result<Use> {
        Ok(self.count(id)?.taken)
    }

    /// Bytes that the file system has left for the service.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_bytes(&self) -> Result<u64> {
        self.inner.root.free_bytes()
    }

    /// Counts a tree and keeps the number.
    pub(crate) fn count(&self, id: &TreeId) -> Result<Counted> {
        let mut counter = self.counter_of(id);
        for dir in self.counted_dirs(id)? {
            counter.tree(&dir)?;
        }
        self.count_trash(id, &[], &mut counter)?;
        let counted = counter.end();
        self.inner.accounts.counted(id, counted, self.limits_of(id));
        Ok(counted)
    }

    /// Adds what was thrown away of a tree and is not removed yet, but for the directories with these inode numbers,
    /// which are counted already.
    pub(crate) fn count_trash(&self, id: &TreeId, known: &[u64], counter: &mut Counter) -> Result<()> {
        for bin in self.inner.stage.trash().of(id) {
            counter.contents_but(&bin, known)?;
        }
        Ok(())
    }

    /// A counter that gives up when the tree `id` has far more than it may.
    pub(crate) fn counter_of(&self, id: &TreeId) -> Counter {
        Counter::new(self.limits_of(id).files.saturating_mul(2).saturating_add(1))
    }

    /// The directories that count for a tree, as far as they are there.
    pub(crate) fn counted_dirs(&self, id: &TreeId) -> Result<Vec<Dir>> {
        let places = match id {
            TreeId::Skill(user, agent, skill) => vec![layout::overlay(user, agent)?.join(skill.as_str())?],
            TreeId::Workspace(user, agent) => {
                // A kept workspace is in its place again with the next use.
                let kept = layout::kept(user, agent)?;
                vec![layout::workspace(user, agent)?, layout::packages(user, agent)?, kept]
            }
        };
        let opened = places.iter().map(|place| match self.inner.root.open_dir(place) {
            Ok(dir) => Ok(Some(dir)),
            // A whiteout in the place of an overlay hides a skill and takes nothing worth counting.
            Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::NotAFile(_)) => Ok(None),
            Err(other) => Err(other),
        });
        opened.filter_map(Result::transpose).collect()
    }

    pub(crate) fn disk_limits(&self) -> &DiskLimits {
        &self.inner.options.disk
    }
}

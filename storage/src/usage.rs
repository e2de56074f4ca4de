//! Quotas: what each tree takes on the disk, and whether it may take more.
//!
//! A *tree* is the overlay of one skill, or a workspace together with the home directory of its user and agent, in
//! which all their runs also have their temporary files. Each has a limit of its own ([`policy::DiskLimits`]). What was
//! thrown away of a tree counts for it until it is removed.
//!
//! What a tree takes is counted by a walk when it is first asked for, and kept in memory. Changes by the service are
//! added to it; after a run, which may do anything, it is counted again. Requests go by what is known, so that their
//! cost does not depend on the number of files; but none is refused before a doubtful number was counted anew.
//!
//! Every tree has at most one change of the service under way (see [`crate::lock`]), so that what is admitted cannot
//! together be too much. Runs are looked at from time to time ([`Gauge`](crate::Gauge)).
//!
//! | File | Holds |
//! | --- | --- |
//! | `count` | the walk |
//! | `accounts` | what is known of which tree |
//! | `admit` | whether a change, or a run, may begin |
//! | `flight` | bytes that are on their way |

mod accounts;
mod admit;
mod count;
mod flight;

pub(crate) use self::accounts::Accounts;
pub use self::admit::Ceiling;
pub(crate) use self::admit::Growth;
pub(crate) use self::count::{Counted, Counter};
pub use self::flight::Flight;
pub(crate) use self::flight::Flights;

use policy::{DiskLimits, TreeId};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::place;
use crate::store::Store;

/// What something takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Bytes of whole blocks, each file once however many names it has.
    pub bytes: u64,
    /// Names: files, directories, links, whiteouts; the tree's own directory too.
    pub files: u64,
}

impl Use {
    /// Both added up.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    /// This without the other; nothing falls below 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), files: self.files.saturating_sub(other.files) }
    }

    pub(crate) fn at_least(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    /// Tells whether there is more than `most` of either.
    #[must_use]
    pub fn exceeds(self, most: Self) -> bool {
        self.bytes > most.bytes || self.files > most.files
    }
}

impl From<&DiskLimits> for Use {
    fn from(limits: &DiskLimits) -> Self {
        Self { bytes: limits.bytes, files: limits.files }
    }
}

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
        let mut counter = self.counter();
        for dir in self.counted_dirs(id)? {
            counter.tree(&dir)?;
        }
        self.count_trash(id, &[], &mut counter)?;
        let counted = counter.end();
        self.inner.accounts.counted(id, counted, Use::from(self.disk_limits()));
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

    /// A counter that gives up when a tree has far more than it may.
    pub(crate) fn counter(&self) -> Counter {
        Counter::new(self.disk_limits().files.saturating_mul(2).saturating_add(1))
    }

    /// The directories that count for a tree, as far as they are there.
    pub(crate) fn counted_dirs(&self, id: &TreeId) -> Result<Vec<Dir>> {
        let places = match id {
            TreeId::Skill(user, agent, skill) => vec![place::overlay(user, agent)?.join(skill.as_str())?],
            TreeId::Workspace(user, agent) => {
                vec![place::workspace(user, agent)?, place::packages(user, agent)?]
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

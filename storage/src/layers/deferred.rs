//! [`Deferred`]: the work of a change that waits until the locks are released.

use crate::dir::Dir;
use crate::error::Result;
use crate::layers::trash::Trash;
use crate::layers::view::ViewLease;

/// The work of a visible change that waits until the locks are released.
#[must_use]
#[derive(Default)]
pub struct Deferred {
    /// Directories to synchronise before the change is acknowledged.
    pub(crate) sync: Vec<Dir>,
    /// The replaced entries that are to be removed.
    pub(crate) trash: Vec<Trash>,
    /// The leases of the mounts that [`Deferred::sync`] lies in.
    pub(crate) seats: Vec<ViewLease>,
}

impl Deferred {
    pub(crate) fn sync(dir: Dir) -> Self {
        Self { sync: vec![dir], ..Self::default() }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.sync.extend(other.sync);
        self.trash.extend(other.trash);
        self.seats.extend(other.seats);
        self
    }

    /// Waits for the disk, when `strict`, and removes what was replaced.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn settle(self, strict: bool) -> Result<()> {
        if strict {
            for dir in &self.sync {
                dir.sync()?;
            }
        }
        Ok(())
    }
}

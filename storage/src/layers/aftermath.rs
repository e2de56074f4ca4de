//! [`Aftermath`]: what is left to do for a change once it is visible.

use crate::dir::Dir;
use crate::error::Result;
use crate::layers::trash::Trash;
use crate::layers::view::ViewLease;

/// The work left when a change is visible: after the locks are released.
#[must_use]
#[derive(Default)]
pub struct Aftermath {
    /// Directories to synchronise before the change is acknowledged.
    pub(crate) sync: Vec<Dir>,
    /// The replaced entries that are to be removed.
    pub(crate) trash: Vec<Trash>,
    /// The leases of the mounts that [`Aftermath::sync`] lies in.
    pub(crate) seats: Vec<ViewLease>,
}

impl Aftermath {
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

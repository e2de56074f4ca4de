//! Making directories, removing.

use policy::RelPath;
use storage::Condition;

use super::{Location, Tree};
use crate::ops::error::{Error, Result};
use crate::ops::remote::UNTAGGED;

impl Tree {
    /// Makes the directory `path`, with `parents` also those above it. Tells whether it was not there.
    ///
    /// # Errors
    /// As [`Service::make_dir`](crate::ops::Service::make_dir); [`Error::Remote`].
    pub async fn make_dir(&self, path: &RelPath, mode: u32, parents: bool) -> Result<bool> {
        match &self.location {
            Location::Local { .. } => {
                self.service.make_dir(self.id.clone(), path.clone(), mode, parents).await
            }
            Location::Remote(backend) => backend.make_dir(path, mode, parents).await,
        }
    }

    /// Removes `path`.
    ///
    /// # Errors
    /// As [`Service::remove`](crate::ops::Service::remove); [`Error::Unsupported`] for a condition where a backend holds the tree;
    /// [`Error::Remote`].
    pub async fn remove(&self, path: &RelPath, recursive: bool, condition: Condition) -> Result<()> {
        match (&self.location, condition) {
            (Location::Local { .. }, condition) => {
                self.service.remove(self.id.clone(), path.clone(), recursive, condition).await
            }
            (Location::Remote(backend), Condition::Always) => backend.remove(path, recursive).await,
            (Location::Remote(_), _) => Err(Error::Unsupported(UNTAGGED.to_owned())),
        }
    }
}

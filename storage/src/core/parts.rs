//! The parts of a [`Store`], as the floors above reach them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::core::accounts::Accounts;
use crate::core::copies::Copies;
use crate::core::listings::Listings;
use crate::core::lock::Locks;
use crate::core::mount_points::Points;
use crate::core::occupants::Occupants;
use crate::core::snapshot_locks::SnapshotLocks;
use crate::core::store::{Store, Unpacked};
use crate::core::uptime::Uptime;
use crate::core::uses::Uses;
use crate::dir::Dir;
use crate::layers::stage::Stage;

impl Store {
    /// The directory that everything lies in.
    pub(crate) fn root(&self) -> &Arc<Dir> {
        &self.inner.root
    }

    /// Where things are built aside, and thrown away.
    pub(crate) fn stage(&self) -> &Stage {
        &self.inner.stage
    }

    /// The locks of its trees.
    pub(crate) fn locks(&self) -> &Locks {
        &self.inner.locks
    }

    /// The known use of trees.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.inner.accounts
    }

    /// Held while a package is put.
    pub(crate) fn packages_lock(&self) -> &Mutex<()> {
        &self.inner.packages
    }

    /// What is known of the unpacked files of packages.
    pub(crate) fn unpacked(&self) -> &Unpacked {
        &self.inner.unpacked
    }

    /// Who is in which sandbox.
    pub(crate) fn occupancy(&self) -> &Occupants {
        &self.inner.occupants
    }

    /// By which sandboxes grow idle.
    pub(crate) fn uptime(&self) -> &Uptime {
        &self.inner.uptime
    }

    /// Which sandboxes were used a moment ago.
    pub(crate) fn uses(&self) -> &Uses {
        &self.inner.uses
    }

    /// Sandboxes whose snapshots a request works on.
    pub(crate) fn in_hand(&self) -> &SnapshotLocks {
        &self.inner.in_hand
    }

    /// The mount points that workspaces hold for runs.
    pub(crate) fn points(&self) -> &Points {
        &self.inner.points
    }

    /// The skills of users, as far as they are known.
    pub(crate) fn listings(&self) -> &Listings {
        &self.inner.listings
    }

    /// The copies of skills that runs share.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        &self.inner.copies
    }
}

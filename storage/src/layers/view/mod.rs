//! Live views: merged views that the kernel merges, held ready for commands.
//!
//! A live view is one overlayfs mount of a user's overlay of one skill over one version of its baseline. It is made
//! for the first run that wants it and kept for the next; every run gets a clone of it, so all commands and the
//! service work on one and the same mount.
//!
//! The law of this module is *one door*: what lies in an upper directory is changed either through its live view or
//! by [`Union`](crate::layers::union::Union), never both ways at a time, and no upper directory is ever mounted twice.
//! Overlayfs keeps what it knows of an upper directory in memory and takes no notice of changes behind its back
//! (overlayfs.rst, "Changes to underlying filesystems"). Reading behind its back is harmless: it changes the upper
//! directory before a call returns, and the bytes of a file lie in the page cache of the upper file itself. So the
//! service reads as it always does, layer by layer.
//!
//! | File | Holds |
//! | --- | --- |
//! | `mount` | one overlayfs mount |
//! | `workplace` | the directory and the lock of a view, and what a former service left of them |
//! | `lease` | a view and the leases of it |
//!
//! Which views there are, and which go, is the store's: `core::views`.

mod lease;
mod mount;
pub(crate) mod workplace;

use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) use self::lease::{Departure, Leases, Making, View, ViewLease};
pub use self::mount::Holding;
pub(crate) use self::mount::{clone_of, failed as mount_failed};

/// Live views unless told otherwise.
const VIEWS_MAX: usize = 256;

/// Lets commands of another user id find the store's files their own.
///
/// Everything in an overlay belongs to the service on disk. The commands of a sandbox run as a user id of their own,
/// and through the layers that this gives they are the owner.
pub trait OwnerSwap: Send + Sync + Debug {
    /// A detached clone of the mount at `directory` on which the service's own user and group id and `owner` have
    /// changed places: an idmapped mount (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
    ///
    /// # Errors
    /// Those of the kernel; also for a file system that cannot be idmapped.
    fn swapped(&self, directory: BorrowedFd<'_>, owner: u32) -> io::Result<OwnedFd>;
}

/// A keeper of clones of live views, for runs to come.
pub trait Guests: Send + Sync + Debug {
    /// Lets go of every clone of the view `generation` ([`Attachment::generation`](policy::attachment::Attachment::generation)), and waits
    /// until they are gone. No run is in the view, and none comes.
    fn let_go(&self, generation: u64);
}

/// How live views are made and how many are kept.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Needed where sandboxes have user ids of their own; without it such a store has no live views.
    pub swap: Option<Arc<dyn OwnerSwap>>,
    /// The keeper that is told before a view is unmounted; `None` when no clones are kept.
    pub guests: Option<Arc<dyn Guests>>,
    /// Views that are held, 1 or more. Beyond it, the one unused for longest goes; a view with a run in it never
    /// does, so that there are more while more are in use.
    pub views_max: usize,
    /// How mounts are held; `None` finds out.
    pub holding: Option<Holding>,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self { swap: None, guests: None, views_max: VIEWS_MAX, holding: None }
    }
}

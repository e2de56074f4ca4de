//! [`View`]: one live view. [`ViewLease`]: a part in it, as long as which it lives.

use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use policy::TreeId;

use super::mount::{self, Mount, Overlay};
use super::workplace::{self, Workplace};
use super::{Holding, OwnerSwap};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::durability::Durability;
use crate::layers::projects::Projects;
use crate::layers::trash::Trash;
use crate::layers::whiteouts::cast;

/// One live view. Four descriptors: the mount, the upper and the lower layer, the lease.
///
/// Dropping it unmounts it; see [`Mount`]. The first processes of runs may have clones of the mount still, in which no command
/// is.
pub(crate) struct View {
    // In the order in which they must go.
    mount: Mount,
    /// The directory that changes go to, on the store's own mount. Who counts it may hold it for longer than the view lives.
    upper: Arc<Dir>,
    /// The version of the baseline that is mounted; `None` when nothing of one shows.
    lower: Option<Dir>,
    workplace: Workplace,
    /// The tree of the view.
    pub(crate) id: TreeId,
    /// Inode number of [`View::lower`].
    pub(crate) lower_inode: Option<u64>,
    /// Inode number of the upper directory.
    pub(crate) upper_inode: u64,
    /// Whether the upper directory hides every baseline, so that none is ever a newer one.
    pub(crate) is_opaque: bool,
    /// Whether its upper directory has whiteouts that hide nothing.
    pub(crate) has_shadow: bool,
}

/// The parts that a view is made of.
pub(crate) struct Making<'a> {
    pub(crate) id: TreeId,
    pub(crate) root: &'a Dir,
    pub(crate) workplace: Workplace,
    /// Where the upper directory lies, from the store's root.
    pub(crate) upper: policy::RelPath,
    /// Where the lower directory lies, and that directory itself.
    pub(crate) lower: Option<(policy::RelPath, Dir)>,
    pub(crate) is_opaque: bool,
    /// Entries of the upper directory in which whiteouts that hide nothing are looked for; 0 when there are none.
    pub(crate) whiteouts_among: usize,
    pub(crate) owner: Option<(&'a dyn OwnerSwap, u32)>,
    pub(crate) holding: Holding,
    pub(crate) durability: Durability,
    pub(crate) projects: &'a Projects,
}

impl View {
    /// Mounts a view.
    ///
    /// # Errors
    /// [`Error::Io`] naming the system call.
    pub(crate) fn new(making: Making<'_>) -> Result<Self> {
        let Making {
            id,
            root,
            workplace,
            upper,
            lower,
            is_opaque,
            whiteouts_among,
            owner,
            holding,
            durability,
            projects,
        } = making;
        let shadow_place = match whiteouts_among {
            0 => None,
            most => {
                let place = workplace.make(workplace::SHADOW)?;
                let below = lower.as_ref().map(|(_, dir)| dir);
                let shadow = workplace.open(workplace::SHADOW)?;
                cast(&root.open_dir(&upper)?, below, &shadow, most)?.then_some(place)
            }
        };
        let has_shadow = shadow_place.is_some();
        let swapped =
            owner.map(|(swap, owner)| Swapped::new(root, swap, owner, holding, &workplace)).transpose()?;
        let from = swapped.as_ref().map_or(root, |swapped| &swapped.root);
        let lower_place = match &lower {
            Some((place, _)) => place.clone(),
            None => workplace.make(workplace::NONE)?,
        };
        let work_place = workplace.make(workplace::WORK)?;
        // What overlayfs makes there it puts into the upper directory.
        let upper_dir = Arc::new(root.open_dir(&upper)?);
        projects.mark_like(&root.open_dir(&work_place)?, &upper_dir)?;
        let overlay = Overlay {
            lower: from.open_dir(&lower_place)?,
            shadow: shadow_place.map(|place| from.open_dir(&place)).transpose()?,
            upper: from.open_dir(&upper)?,
            work: from.open_dir(&work_place)?,
        };
        let upper_inode = overlay.upper.stat()?.inode;
        let mut mount = Mount::new(&overlay, durability)?;
        drop((overlay, swapped));
        if holding == Holding::Attached {
            workplace.make(workplace::MOUNT)?;
            mount.attach(&workplace.dir()?, workplace::MOUNT.as_ref())?;
        }
        let lower = lower.map(|(_, dir)| dir);
        let lower_inode = lower.as_ref().map(Dir::stat).transpose()?.map(|stat| stat.inode);
        Ok(Self {
            mount,
            upper: upper_dir,
            lower,
            workplace,
            id,
            lower_inode,
            upper_inode,
            is_opaque,
            has_shadow,
        })
    }

    /// The root of the mount: a directory like any other.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub(crate) fn root(&self) -> Result<Dir> {
        let root = self.mount.root().try_clone().map_err(|error| Error::from_io("dup", ".", error))?;
        Dir::from(root).reopen()
    }

    /// The mount's own descriptor, to be cloned (open_tree(2), `OPEN_TREE_CLONE`).
    pub(crate) fn mount(&self) -> Arc<OwnedFd> {
        Arc::clone(self.mount.root())
    }

    /// The directory that changes go to, for reading behind the view's back.
    pub(crate) fn upper(&self) -> &Arc<Dir> {
        &self.upper
    }

    /// The lower layer that is mounted.
    pub(crate) fn lower(&self) -> Option<&Dir> {
        self.lower.as_ref()
    }

    /// The descriptor of the lock; a process that has a duplicate of it keeps the upper directory from the next service.
    pub(crate) fn lease(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.workplace.lease)
    }
}

impl View {
    /// Leaves the view's directory to the next start.
    pub(crate) fn leave_workplace(&mut self) {
        self.workplace.stays = true;
    }
}

/// The store's root on a mount where the service and a sandbox's owner have changed places.
struct Swapped {
    root: Dir,
    is_attached: bool,
}

impl Swapped {
    fn new(
        root: &Dir,
        swap: &dyn OwnerSwap,
        owner: u32,
        holding: Holding,
        workplace: &Workplace,
    ) -> Result<Self> {
        let mount = swap.swapped(root.as_fd(), owner).map_err(|source| Error::Io {
            operation: "idmapped mount",
            path: "overlay".to_owned(),
            source,
        })?;
        let is_attached = holding == Holding::Attached;
        if is_attached {
            workplace.make(workplace::LAYERS)?;
            // Layers on a detached mount take the same kernel as clones of one.
            mount::attach(mount.as_fd(), &workplace.dir()?, workplace::LAYERS.as_ref())?;
        }
        Ok(Self { root: mount.into(), is_attached })
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        if self.is_attached {
            // Overlayfs has made clones of its own.
            mount::detach(self.root.as_fd());
        }
    }
}

/// Who counts the leases of views.
pub(crate) trait Leases: Send + Sync {
    /// Counts another lease of the view `number`, which has one already.
    fn take(&self, number: u64);
    /// Lets `trash` stay until the view `number` has gone.
    fn keep(&self, number: u64, trash: Arc<Trash>);
    /// A lease of the view `number` was dropped. Does not wait: returns what could not be handed over at once.
    fn leave(self: Arc<Self>, number: u64) -> Option<Departure>;
}

/// A view without leases that is still to be closed. To drop this may wait.
pub(crate) type Departure = Box<dyn Send + Sync>;

/// A part in a view: of a run, of a change, of a file on its way into it. A view with a seat taken does not go.
pub(crate) struct ViewLease {
    // Released first: a view goes when only the table has it.
    view: Arc<View>,
    release: Release,
}

/// Gives a seat back when it is dropped.
struct Release {
    leases: Arc<dyn Leases>,
    number: u64,
    is_given_back: bool,
}

impl ViewLease {
    /// A seat that the table has counted.
    pub(crate) fn new(view: Arc<View>, leases: Arc<dyn Leases>, number: u64) -> Self {
        Self { view, release: Release { leases, number, is_given_back: false } }
    }

    /// Tells whether both are in one view.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.release.number == other.release.number
    }

    /// Which view it is, counted from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.release.number
    }

    /// Another seat in the same view.
    pub(crate) fn another(&self) -> Self {
        self.release.leases.take(self.release.number);
        Self::new(Arc::clone(&self.view), Arc::clone(&self.release.leases), self.release.number)
    }

    /// Lets `trash` stay until the view has gone.
    pub(crate) fn keep(&self, trash: Arc<Trash>) {
        self.release.leases.keep(self.release.number, trash);
    }

    /// Gives the seat back without waiting, which to drop it may.
    pub(crate) fn give_back(self) -> Option<Departure> {
        let Self { view, mut release } = self;
        drop(view);
        release.give_back()
    }
}

impl Release {
    fn give_back(&mut self) -> Option<Departure> {
        match std::mem::replace(&mut self.is_given_back, true) {
            false => Arc::clone(&self.leases).leave(self.number),
            true => None,
        }
    }
}

impl Deref for ViewLease {
    type Target = View;
    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

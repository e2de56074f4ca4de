//! Directories of the host that a mounted run sees besides the minimal root, cloned as mounts of the run's own.
//!
//! The service makes the clones, because a detached mount can be cloned only where it was made; the run's first
//! process attaches them in its namespace.
//!
//! # References
//! `open_tree(2)`, `mount_setattr(2)`; Documentation/filesystems/idmappings.rst of Linux.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use policy::attachment::Role;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::Error;
use crate::sys::{self, Extent, MountAttributes};
use crate::wire::MOUNTS_MAX;

/// A directory that a mounted run sees: of the host, or the root of a detached mount.
pub type Attachment = policy::attachment::Attachment<Arc<OwnedFd>>;

/// The clones for one run, in the order in which they are attached: the tree before what stands below it.
#[derive(Debug)]
pub(crate) struct Clones {
    pub(crate) at: Vec<String>,
    pub(crate) mounts: Vec<OwnedFd>,
    tree: usize,
}

impl Clones {
    /// Clones what `attachments` name; with `code`, they may hold code that is run.
    ///
    /// # Errors
    /// [`Error::Attachments`] for none, too many, or other than one tree; [`Error::Resource`] when the kernel refuses.
    pub(crate) fn of(attachments: &[Attachment], code: bool) -> Result<Self, Error> {
        let trees = attachments.iter().filter(|attachment| attachment.role == Role::Tree).count();
        if trees != 1 || attachments.len() > MOUNTS_MAX {
            return Err(Error::Attachments { most: MOUNTS_MAX });
        }
        let mut sorted: Vec<&Attachment> = attachments.iter().collect();
        sorted.sort_by_key(|attachment| attachment.at.matches('/').count());
        let mut clones = Self { at: Vec::new(), mounts: Vec::new(), tree: 0 };
        for attachment in sorted {
            if attachment.role == Role::Tree {
                clones.tree = clones.mounts.len();
            }
            let mut forbidden = MountAttributes::NO_SETUID.and(MountAttributes::NO_DEVICES);
            if !code {
                forbidden = forbidden.and(MountAttributes::NO_PROGRAMS);
            }
            let mount = clone_mount(attachment.directory.as_fd()).map_err(Error::resource("open_tree"))?;
            sys::restrict_mount(mount.as_fd(), Extent::One, forbidden)
                .map_err(Error::resource("mount_setattr"))?;
            clones.mounts.push(mount);
            clones.at.push(attachment.at.clone());
        }
        Ok(clones)
    }

    /// The clone of the tree.
    pub(crate) fn tree(&self) -> Option<BorrowedFd<'_>> {
        self.mounts.get(self.tree).map(AsFd::as_fd)
    }

    /// The clone of the tree, of all that are here.
    pub(crate) fn into_tree(self) -> Option<OwnedFd> {
        self.mounts.into_iter().nth(self.tree)
    }
}

/// A detached mount that shows what is below `directory`.
fn clone_mount(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(directory, "", flags)?)
}

/// A detached mount that shows what is below `directory` with the owners that `user_namespace` maps theirs to.
///
/// # Errors
/// As `open_tree(2)` and `mount_setattr(2)`: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` where the file system cannot.
pub(crate) fn clone_mapped(directory: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mount = clone_mount(directory)?;
    sys::map_owners(mount.as_fd(), user_namespace)?;
    Ok(mount)
}

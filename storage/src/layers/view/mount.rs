//! [`Mount`]: one overlayfs mount, held by its descriptor.
//!
//! References: Documentation/filesystems/overlayfs.rst; fsopen(2), fsconfig(2), fsmount(2), move_mount(2).

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::durability::Durability;

/// How a mount is held while no run is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Attached to no path. Cloning such a mount takes Linux 6.15.
    Detached,
    /// Attached to a directory of its own below the store. The service has a mount namespace of its own, or the
    /// mount shows in that of the host.
    Attached,
}

/// The layers of a mount: directories beneath one and the same clone of the store's root mount.
pub(crate) struct Overlay {
    pub(crate) lower: Dir,
    /// Empty directories above the lower ones; see [`crate::layers::whiteouts`].
    pub(crate) shadow: Option<Dir>,
    pub(crate) upper: Dir,
    /// An empty directory that nothing else uses.
    pub(crate) work: Dir,
}

/// One overlayfs mount. It is unmounted when this is dropped, which synchronises the file system unless it is
/// `volatile`: 5 to 12 ms on an idle disk, seconds where programs write much.
pub(crate) struct Mount {
    /// Its root, as fsmount(2) gives it: for paths only (`O_PATH`). Shared with the runs in it.
    root: Arc<OwnedFd>,
    is_attached: bool,
}

/// Names the failure of a step of mounting.
pub(crate) fn failed(operation: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Io { operation, path: "overlay".to_owned(), source: errno.into() }
}

impl Mount {
    /// Mounts `overlay`, detached.
    ///
    /// * `userxattr`: markers are `user.overlay.*`, as the store keeps them. It switches off `redirect_dir` and
    ///   `metacopy`, which would put into the upper layer what no other reader understands.
    /// * `index` and `xino` are off under any defaults of the host, for the same reason.
    /// * `volatile`, unless durability is strict: a copy-up does not wait for the disk, and neither does a command that
    ///   asks to. What such a mount leaves in its work directory forbids to use that directory again; each mount has
    ///   its own.
    ///
    /// # Errors
    /// [`Error::Io`] naming the system call; also when the kernel grants a read-only mount only, which it does
    /// without a word when it cannot use the work directory.
    pub(crate) fn new(overlay: &Overlay, durability: Durability) -> Result<Self> {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed("fsopen"))?;
        let set =
            |key: &str, value: &str| fsconfig_set_string(&context, key, value).map_err(failed("fsconfig"));
        // Values have at most 255 bytes (fsconfig(2)), paths more. And this way no path of the host shows in what
        // commands can read of their mounts (proc_pid_mountinfo(5)).
        let path = |dir: &Dir| format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        let lower = path(&overlay.lower);
        match &overlay.shadow {
            Some(shadow) => set("lowerdir", &format!("{}:{lower}", path(shadow)))?,
            None => set("lowerdir", &lower)?,
        }
        set("upperdir", &path(&overlay.upper))?;
        set("workdir", &path(&overlay.work))?;
        set("index", "off")?;
        set("xino", "off")?;
        fsconfig_set_flag(&context, "userxattr").map_err(failed("fsconfig"))?;
        if durability != Durability::Strict {
            fsconfig_set_flag(&context, "volatile").map_err(failed("fsconfig"))?;
        }
        fsconfig_create(&context).map_err(failed("fsconfig"))?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed("fsmount"))?;
        let flags = rustix::fs::fstatvfs(&root).map_err(failed("fstatvfs"))?.f_flag;
        if flags.contains(StatVfsMountFlags::RDONLY) {
            return Err(failed("read-only mount")(Errno::ROFS));
        }
        Ok(Self { root: Arc::new(root), is_attached: false })
    }

    /// Attaches the mount to the empty directory `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn attach(&mut self, dir: &Dir, name: &OsStr) -> Result<()> {
        attach(self.root.as_fd(), dir, name)?;
        self.is_attached = true;
        Ok(())
    }

    /// The root of the mount, for paths only.
    pub(crate) fn root(&self) -> &Arc<OwnedFd> {
        &self.root
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_attached {
            detach(self.root.as_fd());
        }
    }
}

/// Attaches the detached mount `mount` to the directory `name` of `dir`.
pub(crate) fn attach(mount: BorrowedFd<'_>, dir: &Dir, name: &OsStr) -> Result<()> {
    move_mount(mount, "", dir.as_fd(), name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(failed("move_mount"))
}

/// Takes the mount of which `root` is the root off its path. It goes when its last descriptor is closed.
pub(crate) fn detach(root: BorrowedFd<'_>) {
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    if let Err(errno) = unmount(path, UnmountFlags::DETACH) {
        tracing::warn!(%errno, "a mount stays until the service ends");
    }
}

/// Clones the mount of which `root` is the root, as each run does; detached.
///
/// # Errors
/// `EINVAL` for a detached mount before Linux 6.15.
pub(crate) fn clone_of(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(root, "", flags)
}

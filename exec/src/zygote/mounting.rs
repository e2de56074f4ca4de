//! Detached mounts, and where they are attached.
//!
//! # References
//! `open_tree(2)`, `fsopen(2)`, `move_mount(2)`, `mount_setattr(2)`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::sys::{self, Extent, MountAttributes};

/// A detached copy of the mount at `path` and of all below it; a link is not followed.
pub(super) fn tree_of(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    Ok(open_tree(CWD, path, flags)?)
}

/// A detached, empty file system in memory with `mode` (octal), at most `size` (tmpfs(5)), and further `attributes`.
pub(super) fn memory_files(mode: &str, size: &str, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "mode", mode)?;
    fsconfig_set_string(&context, "size", size)?;
    fsconfig_set_string(&context, "nr_inodes", "16k")?;
    fsconfig_create(&context)?;
    let closed = MountAttrFlags::MOUNT_ATTR_NOSUID | attributes;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, closed)?)
}

/// Takes from a detached mount, and from all below it, what no run may do with the host's files.
pub(super) fn close(tree: &OwnedFd) -> io::Result<()> {
    let closed = MountAttributes::READ_ONLY.and(MountAttributes::NO_SETUID).and(MountAttributes::NO_DEVICES);
    sys::restrict_mount(tree.as_fd(), Extent::All, closed)
}

/// Attaches a detached mount at `path`.
pub(super) fn attach(mount: &OwnedFd, path: impl rustix::path::Arg) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Makes the directory at `path` and those above it, which every user may read.
pub(super) fn make_dirs(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

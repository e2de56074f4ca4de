//! [`PasswdFile`]: the users that a run sees.

use std::io;
use std::os::fd::OwnedFd;

use policy::attachment::HOME;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::etc::USERS;
use super::mounting::{attach, memory_files};
use super::root::SHARED_MEMORY;

/// Where programs look for users.
const PASSWD: &str = "/etc/passwd";
/// Size of the file system that holds a run's own users, as `tmpfs(5)` takes it.
const SIZE: &str = "4k";

/// A `/etc/passwd` of a run's own, which has no line for its user yet.
pub(super) struct PasswdFile(OwnedFd);

impl PasswdFile {
    /// Puts an own file over that of the root.
    ///
    /// What holds the file is attached where shared memory is going to cover it: before Linux 6.15 nothing of a
    /// detached mount can be cloned (`__do_loopback` in fs/namespace.c), and runs begin where nothing can be unmounted.
    pub(super) fn prepare() -> io::Result<Self> {
        let files = memory_files("0755", SIZE, MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
        attach(&files, SHARED_MEMORY)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&files, "passwd", flags, Mode::from_raw_mode(0o644))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        rustix::io::write(&file, USERS.as_bytes())?;
        let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        attach(&open_tree(&files, "passwd", tree)?, PASSWD)?;
        Ok(Self(file))
    }

    /// Adds the user of the run.
    pub(super) fn add(&self, uid: u32) -> io::Result<()> {
        let line = format!("sandbox:x:{uid}:{uid}::{HOME}:/bin/bash\n");
        rustix::io::write(&self.0, line.as_bytes())?;
        Ok(())
    }
}

//! Mounts on which the service and a sandbox's owner have changed places.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, chown};

use exec::OwnerMaps;
use support::{Sandbox, has, is_root};

#[tokio::test]
async fn what_is_the_services_on_disk_is_the_owners_on_the_mount_and_the_reverse() {
    if !has("root", is_root()) {
        return;
    }
    let Some(sandbox) = Sandbox::new() else { return };
    if !has("namespaces", sandbox.launcher.mounts()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("services"), "").unwrap();
    fs::write(dir.path().join("owners"), "").unwrap();
    chown(dir.path().join("owners"), Some(77_777), Some(77_777)).unwrap();
    let maps = OwnerMaps::new(&sandbox.launcher);
    for _ in 0..3 {
        let mount = maps.swapped(fs::File::open(dir.path()).unwrap().as_fd(), 77_777).unwrap();
        let through = |name: &str| format!("/proc/self/fd/{}/{name}", mount.as_raw_fd());
        let owner = |name: &str| fs::metadata(through(name)).map(|meta| (meta.uid(), meta.gid())).unwrap();
        assert_eq!(owner("services"), (77_777, 77_777));
        assert_eq!(owner("owners"), (0, 0));
        // Made by the service and given to the owner on the mount: the service's on disk.
        fs::write(through("made"), "").unwrap();
        chown(through("made"), Some(77_777), Some(77_777)).unwrap();
        assert_eq!(fs::metadata(dir.path().join("made")).unwrap().uid(), 0);
    }
}

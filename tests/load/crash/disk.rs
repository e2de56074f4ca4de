//! Laws of the disk after every start, seen without the service.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The mark that hides what lies below a directory in the lower layer.
const OPAQUE: &str = "user.overlay.opaque";

/// Nothing that was being built, and no copy for a run, outlives a restart.
pub(crate) fn check_swept(root: &Path) {
    for name in ["stage", "work", "views", "journal"] {
        let left: Vec<PathBuf> = entries(&root.join(".filesecbox").join(name));
        assert!(left.is_empty(), "`{name}` is not empty after a start: {left:?}");
    }
}

/// Trees hold no temporary names, and overlays only what an overlayfs upper directory may hold.
pub(super) fn check_trees(root: &Path) {
    for tree in ["skill/baseline", "sandbox", ".filesecbox/versions"] {
        check_below(&root.join(tree), false);
    }
    check_below(&root.join("skill/overlay"), true);
}

/// Every snapshot has all contents that it names.
pub(crate) fn check_snapshots(root: &Path) {
    for user in entries(&root.join(".filesecbox/sandboxes")) {
        for sandbox in entries(&user) {
            let manifests = sandbox.join("manifests");
            for manifest in if manifests.exists() { entries(&manifests) } else { Vec::new() } {
                let text = std::fs::read_to_string(&manifest).unwrap();
                let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let header = lines.next().unwrap();
                let lines: Vec<Value> = lines.collect();
                assert_eq!(header["entries"], lines.len(), "{manifest:?} is half a snapshot");
                for file in lines.iter().filter_map(|line| line[2].get("file")) {
                    let digest = file["digest"].as_str().unwrap();
                    let object = sandbox.join("objects").join(&digest[..2]).join(digest);
                    let length = object.metadata().map(|metadata| metadata.len()).ok();
                    assert_eq!(length, file["size"].as_u64(), "{manifest:?} names {object:?}");
                }
            }
        }
    }
}

fn check_below(dir: &Path, is_overlay: bool) {
    for path in entries(dir) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(!is_temporary(name), "a temporary name stands in a tree: {path:?}");
        let metadata = path.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let is_whiteout = kind.is_char_device() && metadata.rdev() == 0;
        assert!(
            kind.is_file() || kind.is_dir() || (is_overlay && is_whiteout),
            "{path:?} is neither a file, a directory nor a whiteout of an overlay: {kind:?}"
        );
        check_attributes(&path, is_overlay && kind.is_dir());
        if kind.is_dir() {
            check_below(&path, is_overlay);
        }
    }
}

/// A staged name is a session number, a dash and a counter, both in hexadecimal digits.
fn is_temporary(name: &str) -> bool {
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.starts_with("journal")
        || name
            .split_once('-')
            .is_some_and(|(session, number)| session.len() == 16 && hex(session) && hex(number))
}

fn check_attributes(path: &Path, may_be_opaque: bool) {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.overlay.")) {
        let name = std::str::from_utf8(name).unwrap();
        // The kernel's own notes on what was copied up through a mount; only the kernel reads them.
        if ["user.overlay.origin", "user.overlay.impure", "user.overlay.uuid"].contains(&name) {
            continue;
        }
        assert!(may_be_opaque && name == OPAQUE, "{path:?} has the attribute `{name}`");
        let mut value = [0; 8];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        assert_eq!(&value[..length], b"y", "{path:?}");
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

//! [`Snapshot`]: everything in a data directory, to show that nothing changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Kind, mode and content of every path that belongs to a user or to all users.
///
/// Left out is what requests and runs use on their way: the lock file, stages, working copies, the temporary
/// directories of runs, which go in the background, the audit log, which has refused requests too, and the registry,
/// which follows from the rest.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Snapshot(BTreeMap<String, (u32, Vec<u8>)>);

impl Snapshot {
    pub(crate) fn of(root: &Path) -> Self {
        let mut entries = BTreeMap::new();
        collect(root, root, &mut entries);
        Self(entries)
    }

    /// Expects that nothing has changed since.
    #[track_caller]
    pub(crate) fn unchanged(&self, root: &Path, after: &str) {
        let now = Self::of(root);
        let differs: Vec<&String> = self
            .0
            .iter()
            .filter(|(path, entry)| now.0.get(*path) != Some(entry))
            .chain(now.0.iter().filter(|(path, _)| !self.0.contains_key(*path)))
            .map(|(path, _)| path)
            .collect();
        assert!(differs.is_empty(), "changed after {after}: {differs:?}");
    }
}

fn collect(root: &Path, dir: &Path, entries: &mut BTreeMap<String, (u32, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let is_temporary = name.starts_with(".filesecbox/packages/") && name.ends_with("/tmp");
        if is_temporary
            || matches!(
                name.as_str(),
                ".filesecbox/lock"
                    | ".filesecbox/stage"
                    | ".filesecbox/trash"
                    | ".filesecbox/work"
                    | ".filesecbox/views"
                    | ".filesecbox/audit"
                    | ".filesecbox/registry"
            )
        {
            continue;
        }
        let metadata = fs::symlink_metadata(&path).unwrap();
        // The directory of a sandbox tells when it was used last, which a refused request does as well.
        if metadata.is_dir() && name.starts_with(".filesecbox/sandboxes/") {
            collect(root, &path, entries);
            continue;
        }
        let content = if metadata.is_file() {
            fs::read(&path).unwrap()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else {
            Vec::new()
        };
        // The use of a workspace is noted even when the request fails; its snapshots are below.
        let is_note = name.starts_with(".filesecbox/sandboxes/") && name.matches('/').count() <= 3;
        if !is_note {
            entries.insert(name, (metadata.mode(), content));
        }
        if metadata.is_dir() {
            collect(root, &path, entries);
        }
    }
}

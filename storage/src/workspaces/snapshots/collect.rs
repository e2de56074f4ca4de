//! Removing snapshots, and the contents that no other snapshot has.

use std::collections::HashSet;
use std::ffi::OsStr;

use super::manifest::{Digest, FileNode, Manifest, Node};
use super::take::mark_unfinished;
use super::{MANIFESTS, OBJECTS, SnapshotId, Snapshots, UNFINISHED, ids};
use crate::dir::Dir;
use crate::error::{Error, Result};
use policy::WorkspaceId;

impl Snapshots {
    /// Removes a snapshot.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] while another snapshot of the workspace is worked on; [`Error::Io`].
    pub fn remove(&self, id: &WorkspaceId, snapshot: &SnapshotId) -> Result<()> {
        let _hand = self.take_in_hand(id)?;
        let missing = || Error::NotFound(format!("snapshot {snapshot}"));
        let own = self.kept(id)?.ok_or_else(missing)?;
        let manifests = match own.open_dir_entry(OsStr::new(MANIFESTS)) {
            Err(Error::NotFound(_)) => return Err(missing()),
            manifests => manifests?,
        };
        if manifests.stat_entry(OsStr::new(snapshot.as_str()))?.is_none() {
            return Err(missing());
        }
        mark_unfinished(&own)?;
        manifests.remove_file(OsStr::new(snapshot.as_str()))?;
        if self.store.is_strict() {
            // Before the objects go: a manifest without them would be half a snapshot.
            manifests.sync()?;
        }
        self.clear(&own);
        self.store.accounts().snapshots_changed(id);
        Ok(())
    }

    /// Removes the contents that no snapshot has, and the mark that there are any. What cannot be removed now, the next
    /// change of these snapshots removes.
    pub(super) fn clear(&self, own: &Dir) {
        if let Err(error) = self.collect(own).and_then(|()| own.remove_file(OsStr::new(UNFINISHED))) {
            tracing::warn!(
                %error,
                "failed to remove unused contents of snapshots: they stay until the next change of this workspace's snapshots"
            );
        }
    }

    /// Removes the contents that no snapshot in `own` has.
    ///
    /// # Errors
    /// [`Error::Io`]. When a manifest is damaged, nothing is removed, and that is no error.
    pub(super) fn collect(&self, own: &Dir) -> Result<()> {
        let objects = match own.open_dir_entry(OsStr::new(OBJECTS)) {
            Err(Error::NotFound(_)) => return Ok(()),
            objects => objects?,
        };
        let Some(named) = named(own)? else { return Ok(()) };
        for group in objects.entries()? {
            let dir = match objects.open_dir_entry(&group.name) {
                Err(Error::NotFound(_) | Error::NotADirectory(_)) => continue,
                dir => dir?,
            };
            for entry in dir.entries()? {
                let digest = entry.name.to_str().and_then(|name| Digest::try_from(name.to_owned()).ok());
                if digest.is_none_or(|digest| !named.contains(&digest)) {
                    dir.remove_file(&entry.name)?;
                }
            }
            match objects.remove_dir(&group.name) {
                Ok(()) | Err(Error::NotEmpty(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

/// Every digest that a manifest in `own` names; `None` when one of them cannot be read. There are no more than objects.
fn named(own: &Dir) -> Result<Option<HashSet<Digest>>> {
    let mut named = HashSet::new();
    for id in ids(own)? {
        let mut manifest = match Manifest::open(own, &id) {
            Err(Error::Conflict(_)) => return Ok(None),
            manifest => manifest?,
        };
        loop {
            match manifest.next() {
                Ok(Some(line)) => {
                    if let Node::File(FileNode { digest, .. }) = line.node {
                        named.insert(digest);
                    }
                }
                Ok(None) => break,
                Err(Error::Conflict(_)) => return Ok(None),
                Err(other) => return Err(other),
            }
        }
    }
    Ok(Some(named))
}

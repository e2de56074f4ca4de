//! Making a snapshot.
//!
//! In two rounds. The first keeps the contents of all files, and may take long; requests and commands go on. The
//! second, which holds the workspace as requests leave it, looks at every entry once more and reads what has changed
//! since. So a snapshot is one state as far as requests are concerned, and none waits long for it. Commands do not
//! wait: of what they write meanwhile, each file is as it was at some moment.

use std::ffi::OsStr;

use rustix::time::ClockId;

use super::manifest::{self, Header, Line, Manifest};
use super::objects::{Objects, TRIES};
use super::walk::{Known, Walk, nanoseconds};
use super::{MANIFESTS, Snapshot, SnapshotId, SnapshotNote, Snapshots, UNFINISHED, ids};
use crate::core::count::Counted;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::room::Room;
use crate::layout;
use policy::WorkspaceId;

/// How old the last change of a file is at least before it goes by the clock of the kernel that it is the last. Its tick
/// is at most 10 ms; file systems of other machines may be coarser.
const QUIET_NS: i64 = 2_000_000_000;

impl Snapshots {
    /// Keeps the state of a workspace.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no workspace; [`Error::Quota`]; [`Error::Conflict`] while another snapshot of
    /// it is worked on; [`Error::TooManyEntries`], [`Error::TooLarge`]; [`Error::Full`], [`Error::NoSpace`],
    /// [`Error::Io`]. Then nothing is kept.
    pub fn take(&self, id: &WorkspaceId, note: SnapshotNote) -> Result<Snapshot> {
        let _hand = self.take_in_hand(id)?;
        self.store.admit_space()?;
        drop(self.workspace_dir(id)?);
        let own =
            self.store.stage().ensure_path(self.store.root(), &layout::sandbox(&id.user, &id.agent)?)?;
        self.check_count(&own)?;
        if !mark_unfinished(&own)? {
            // A crash interrupted such work. Its leftovers count for no user.
            self.collect(&own)?;
        }
        match self.take_marked(id, &own, note) {
            Ok(snapshot) => {
                if let Err(error) = own.remove_file(OsStr::new(UNFINISHED)) {
                    let (user, agent) = (&id.user, &id.agent);
                    tracing::warn!(
                        %error, %user, %agent,
                        "failed to remove the mark of an unfinished snapshot: the next change of snapshots looks for unused contents"
                    );
                }
                Ok(snapshot)
            }
            Err(error) => {
                self.clear(&own);
                self.store.accounts().snapshots_changed(id);
                Err(error)
            }
        }
    }

    fn take_marked(&self, id: &WorkspaceId, own: &Dir, note: SnapshotNote) -> Result<Snapshot> {
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        let begun_ns = nanoseconds(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec));
        let watcher = self.store.workspaces().watch(id.clone());
        let counted = self.taken(own)?;
        let limit = self.store.options().snapshots.files;
        let Counted { taken, is_whole: true } = counted else {
            let tree = "the snapshots of the workspace".to_owned();
            let used = counted.taken.files;
            return Err(Error::Quota {
                tree,
                setting: "limits.snapshots.files",
                unit: "files",
                used,
                limit,
                needs: 1,
            });
        };
        let mut objects = Objects::new(&self.store, &id.user, own, taken)?;
        let mut known = match ids(own)?.last().map(|newest| Manifest::open(own, newest)) {
            // A damaged one remembers nothing.
            Some(Ok(newest)) => Known::of(newest).unwrap_or_default(),
            Some(Err(_)) | None => Known::default(),
        };
        drop(self.look(id, &mut objects, &mut known, TRIES)?);
        let walk = {
            let _held = self.store.locks().read(&id.workspace());
            self.look(id, &mut objects, &mut known, 1)?
        };
        let live = watcher.has_seen_somebody();
        let (unsettled, skipped) = (walk.unsettled, walk.skipped);
        let lines = walk.finish((!live).then_some(begun_ns.saturating_sub(QUIET_NS)));
        let sizes = lines.iter().map(|line| match &line.node {
            manifest::Node::File(file) => file.size,
            manifest::Node::Directory { .. } | manifest::Node::Link { .. } => 0,
        });
        let bytes: u64 = sizes.sum();
        let most = self.store.limits_of(&id.workspace()).bytes;
        if bytes > most {
            // The snapshot could not be restored: sparse files, and files with several names, take more room then.
            let tree = "the workspace, every file by itself,".to_owned();
            let needs = bytes - most;
            return Err(Error::Quota {
                tree,
                setting: self.store.settings_of(&id.workspace())[0],
                unit: "bytes",
                used: most,
                limit: most,
                needs,
            });
        }
        let header = Header {
            entries: u64::try_from(lines.len()).unwrap_or(u64::MAX),
            bytes,
            added_bytes: objects.added_bytes,
            live,
            unsettled,
            skipped,
            ..Header::new(note.name, note.note, begun_ns)
        };
        let snapshot = SnapshotId::fresh()?;
        let placed = self.place_manifest(own, &snapshot, &header, &lines);
        // While what was added is still promised room.
        self.store.accounts().snapshots_changed(id);
        drop(objects);
        placed?;
        Ok(header.of(snapshot))
    }

    /// Walks the workspace once.
    fn look<'a, 'b>(
        &self,
        id: &WorkspaceId,
        objects: &'a mut Objects<'b>,
        known: &'a mut Known,
        tries: usize,
    ) -> Result<Walk<'a, 'b>> {
        let mut walk = Walk {
            objects,
            known,
            tries,
            owner: self.store.owner(&id.workspace()),
            room: Room::of_entries(self.store.options().files.tree_entries),
            lines: Vec::new(),
            fresh: Vec::new(),
            unsettled: 0,
            skipped: 0,
        };
        walk.directory(&self.workspace_dir(id)?, 0)?;
        Ok(walk)
    }

    /// Makes the snapshot visible, when all that it names is on the disk.
    fn place_manifest(&self, own: &Dir, id: &SnapshotId, header: &Header, lines: &[Line]) -> Result<()> {
        let staged = self.store.stage().file(0o600, None)?;
        manifest::write(staged.file(), header, lines)?;
        let manifests = own.ensure_dir(OsStr::new(MANIFESTS))?;
        if self.store.is_strict() {
            // One call for all objects, their names, and the manifest.
            own.sync_file_system()?;
        }
        interrupt::commit()?;
        staged.place(&manifests, OsStr::new(id.as_str()))?;
        if self.store.is_strict() { manifests.sync() } else { Ok(()) }
    }

    fn check_count(&self, own: &Dir) -> Result<()> {
        let most = self.store.options().snapshots.per_workspace;
        let there = ids(own)?.len();
        if there < most {
            return Ok(());
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Err(Error::Quota {
            tree: "the workspace".to_owned(),
            setting: "limits.snapshots.per_workspace",
            unit: "snapshots",
            used: number(there),
            limit: number(most),
            needs: 1,
        })
    }

    pub(super) fn workspace_dir(&self, id: &WorkspaceId) -> Result<Dir> {
        match self.store.root().open_dir(&layout::workspace(&id.user, &id.agent)?) {
            Err(Error::NotFound(_)) => Err(Error::NotFound(id.workspace().sandbox_path())),
            dir => dir,
        }
    }
}

/// Marks that objects may lie about. Tells whether that is new.
pub(super) fn mark_unfinished(own: &Dir) -> Result<bool> {
    match own.create_file(OsStr::new(UNFINISHED), 0o600) {
        Ok(_) => Ok(true),
        Err(Error::AlreadyExists(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

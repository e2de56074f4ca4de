//! [`Snapshots`]: states of a workspace that are kept, and going back to them.
//!
//! A snapshot is a *manifest*, a list of names, kinds, modes and digests, and the *objects* that it names: contents of
//! files, each kept once for all snapshots of the workspace, under its digest. So a snapshot costs what has changed
//! since the one before, on every file system; where the file system can share blocks (reflinks), less. Every sandbox
//! has objects of its own: no user can find out by what a snapshot costs whether another has the same file.
//!
//! Commands write to files in place, so nothing is ever shared with a workspace but copy-on-write blocks.
//!
//! | File | Holds |
//! | --- | --- |
//! | `manifest` | the list, as it lies on the disk |
//! | `objects` | the contents |
//! | `walk` | looking at a workspace, file by file |
//! | `take` | making a snapshot |
//! | `restore` | making a workspace of one |
//! | `collect` | removing one, and the contents that no other has |

mod collect;
mod manifest;
mod objects;
mod restore;
mod take;
mod walk;

use std::ffi::OsStr;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use self::manifest::{Header, Manifest};
pub use self::restore::Forked;
use crate::core::count::Counted;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;
use crate::stat::Use;
use policy::WorkspaceId;

/// Longest name of a snapshot, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest note on a snapshot, in bytes.
pub const NOTE_BYTES_MAX: usize = 1024;

const MANIFESTS: &str = "manifests";
const OBJECTS: &str = "objects";
const UNFINISHED: &str = "unfinished";
/// Names in the directory of manifests that are looked at; `limits.snapshots.per_workspace` may have been more once.
const MANIFESTS_MAX: usize = 10_000;

/// The id of a snapshot: 20 lower-case hexadecimal digits, of which the first 12 are when it was made, so that ids sort
/// by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(String);

/// A caller's name and note for a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotNote {
    /// A few words, at most [`NAME_BYTES_MAX`].
    pub name: Option<String>,
    /// Some more, at most [`NOTE_BYTES_MAX`].
    pub note: Option<String>,
}

/// A state of a workspace that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// Its maker's name and note for it.
    pub note: SnapshotNote,
    /// When it was made, in nanoseconds since 1970.
    pub created_ns: i128,
    /// Files, links and directories that it has.
    pub entries: u64,
    /// Sizes of its files together, in bytes.
    pub bytes: u64,
    /// The room that it took on the disk for contents that no other snapshot had, in bytes.
    pub added_bytes: u64,
    /// Whether commands were in the sandbox meanwhile: then each file is as it was at some moment, but not all at one.
    pub live: bool,
    /// Files that a command was writing to all the while, so that they may be as they never were.
    pub unsettled: u64,
    /// Entries that were left out: sockets, pipes, devices, and files of others.
    pub skipped: u64,
}

/// The snapshots of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotList {
    /// The oldest first.
    pub list: Vec<Snapshot>,
    /// The room that they take on the disk together.
    pub taken: Use,
}

impl SnapshotId {
    /// Reads an id as a caller wrote it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
        (text.len() == 20 && is_hex).then(|| Self(text.to_owned()))
    }

    /// Its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn fresh() -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let chance = getrandom::u32()
            .map_err(|error| Error::from_io("getrandom", "snapshot", std::io::Error::other(error)))?;
        Ok(Self(format!("{:012x}{chance:08x}", now.as_millis() & 0xFFFF_FFFF_FFFF)))
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Taking, listing, restoring and removing snapshots. Cloning gives another handle of the same.
#[derive(Clone)]
pub struct Snapshots {
    store: Store,
}

impl Store {
    /// The snapshots of its workspaces.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        Snapshots { store: self.clone() }
    }
}

/// The snapshots of one sandbox, held alone until this is dropped.
pub(crate) struct Hand {
    store: Store,
    id: WorkspaceId,
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.store.in_hand().sandboxes.lock().remove(&self.id);
    }
}

impl Snapshots {
    /// Takes the snapshots of a sandbox in hand. No request waits for the hand: such work can take minutes.
    ///
    /// # Errors
    /// [`Error::Conflict`] when another request works on them.
    pub(crate) fn take_in_hand(&self, id: &WorkspaceId) -> Result<Hand> {
        if self.store.in_hand().sandboxes.lock().insert(id.clone()) {
            return Ok(Hand { store: self.store.clone(), id: id.clone() });
        }
        let message =
            "a snapshot of this workspace is being taken, restored or removed: try again in a moment";
        Err(Error::Conflict(message.to_owned()))
    }

    /// The snapshots of a workspace. A damaged one is left out.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn list(&self, id: &WorkspaceId) -> Result<SnapshotList> {
        let Some(own) = self.kept(id)? else { return Ok(SnapshotList::default()) };
        let mut list = Vec::new();
        for snapshot in ids(&own)? {
            match Manifest::open(&own, &snapshot) {
                Ok(manifest) => list.push(manifest.header.of(snapshot)),
                // Removed meanwhile.
                Err(Error::NotFound(_)) => {}
                Err(error) => {
                    let (user, agent, snapshot) = (&id.user, &id.agent, snapshot.as_str());
                    tracing::warn!(
                        %error, %user, %agent, snapshot,
                        "failed to read a snapshot: the list lacks it"
                    );
                }
            }
        }
        Ok(SnapshotList { list, taken: self.taken(&own)?.taken })
    }

    /// One snapshot.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Conflict`] for a damaged one.
    pub fn get(&self, id: &WorkspaceId, snapshot: &SnapshotId) -> Result<Snapshot> {
        Ok(self.manifest(id, snapshot)?.1.header.of(snapshot.clone()))
    }

    /// How many snapshots a workspace has.
    pub(crate) fn count(&self, id: &WorkspaceId) -> Result<usize> {
        Ok(self.kept(id)?.map(|own| ids(&own)).transpose()?.map_or(0, |ids| ids.len()))
    }

    /// The directory of what is kept about a sandbox.
    fn kept(&self, id: &WorkspaceId) -> Result<Option<Dir>> {
        match self.store.root().open_dir(&layout::sandbox(&id.user, &id.agent)?) {
            Ok(dir) => Ok(Some(dir)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn manifest(&self, id: &WorkspaceId, snapshot: &SnapshotId) -> Result<(Dir, Manifest)> {
        let missing = || Error::NotFound(format!("snapshot {snapshot}"));
        let own = self.kept(id)?.ok_or_else(missing)?;
        match Manifest::open(&own, snapshot) {
            Err(Error::NotFound(_)) => Err(missing()),
            manifest => Ok((own, manifest?)),
        }
    }

    fn taken(&self, own: &Dir) -> Result<Counted> {
        let limit = self.store.options().snapshots.files;
        let mut counter = crate::core::count::Counter::new(limit.saturating_mul(2).saturating_add(1024));
        counter.tree(own)?;
        Ok(counter.end())
    }
}

impl Header {
    fn of(&self, id: SnapshotId) -> Snapshot {
        Snapshot {
            id,
            note: SnapshotNote { name: self.name.clone(), note: self.note.clone() },
            created_ns: i128::from(self.created_ns),
            entries: self.entries,
            bytes: self.bytes,
            added_bytes: self.added_bytes,
            live: self.live,
            unsettled: self.unsettled,
            skipped: self.skipped,
        }
    }
}

/// The ids of the snapshots that lie in `own`, the oldest first.
fn ids(own: &Dir) -> Result<Vec<SnapshotId>> {
    let manifests = match own.open_dir_entry(OsStr::new(MANIFESTS)) {
        Err(Error::NotFound(_)) => return Ok(Vec::new()),
        manifests => manifests?,
    };
    let names = manifests.entries_at_most(MANIFESTS_MAX)?.into_iter();
    let mut ids: Vec<SnapshotId> =
        names.filter_map(|entry| SnapshotId::parse(entry.name.to_str()?)).collect();
    ids.sort_unstable();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_20_lower_case_digits_and_sorts_by_age() {
        for none in ["", "0", "../../../../etc/pass", "ABCDEF00000000000000", "0123456789abcdef01234"] {
            assert_eq!(SnapshotId::parse(none), None, "{none}");
        }
        let first = SnapshotId::fresh().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
        let second = SnapshotId::fresh().unwrap();
        assert!(first < second);
        assert_eq!(SnapshotId::parse(first.as_str()), Some(first));
    }
}

//! [`Index`]: the published entries and their authors.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AUTHOR_ENTRIES_MAX, ENTRIES_MAX, Entry, Kind, RegistryError, Result, Sharing};
use crate::place::Directory;
use sandbox::{Error, ErrorKind, UserId, WriteMode};

const FILE: &str = "index.json";
/// The largest index that is read, in bytes: 64 MiB, far more than all entries take.
const BYTES_MAX: u64 = 64 << 20;

/// All entries. A change makes a new one, which takes the place of this when it is on the disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    next_id: u64,
    pub(super) entries: Vec<Entry>,
}

impl Index {
    pub(super) async fn read(directory: &Directory<'_>) -> Result<Self> {
        let Some(bytes) = directory.read(FILE, BYTES_MAX).await? else {
            return Ok(Self { next_id: 1, entries: Vec::new() });
        };
        let index = serde_json::from_slice(&bytes);
        Ok(index.map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "open",
                "the index of the registry is damaged: restore `index.json`",
            )
            .because(error)
        })?)
    }

    pub(super) async fn write(&self, directory: &Directory<'_>) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorKind::Internal, "write_file", "the index cannot be written").because(error)
        })?;
        // A written index can be read again.
        if bytes.len() as u64 > BYTES_MAX {
            return Err(RegistryError::Full);
        }
        Ok(directory.write(FILE, Bytes::from(bytes), WriteMode::Replace, Some(0o600)).await?)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// Refuses a name that another author has public, and a new entry when there are too many.
    pub(super) fn may_publish(&self, author: &UserId, kind: Kind, name: &str) -> Result<()> {
        let is_named = |entry: &&Entry| entry.kind == kind && entry.name == name;
        let mut named = self.entries.iter().filter(is_named);
        if named.clone().any(|entry| entry.author != *author && entry.sharing == Sharing::Public) {
            return Err(RegistryError::Taken { kind, name: name.to_owned() });
        }
        if named.any(|entry| entry.author == *author) {
            return Ok(());
        }
        if self.entries.len() >= ENTRIES_MAX {
            return Err(RegistryError::Full);
        }
        match self.entries.iter().filter(|entry| entry.author == *author).count() {
            AUTHOR_ENTRIES_MAX.. => Err(RegistryError::TooMany),
            _ => Ok(()),
        }
    }

    /// The id of the author's entry of that name: the one it has, or the next.
    pub(super) fn id_for(&self, author: &UserId, kind: Kind, name: &str) -> u64 {
        let same = self
            .entries
            .iter()
            .find(|entry| entry.kind == kind && entry.name == name && entry.author == *author);
        same.map_or(self.next_id, |entry| entry.id)
    }

    /// The same with `entry`, in the place of that with its id; and the package that is not named any more.
    pub(super) fn with(&self, entry: Entry) -> (Self, Option<String>) {
        let mut next = self.clone();
        next.next_id = next.next_id.max(entry.id + 1);
        match next.entries.iter_mut().find(|other| other.id == entry.id) {
            Some(other) => {
                let package = (other.package != entry.package).then(|| other.package.clone());
                *other = entry;
                (next, package)
            }
            None => {
                next.entries.push(entry);
                (next, None)
            }
        }
    }

    /// The same without an entry.
    pub(super) fn without(&self, id: u64) -> Self {
        let mut next = self.clone();
        next.entries.retain(|entry| entry.id != id);
        next
    }
}

//! [`Seals`]: which files the log has and how each ends, under a MAC, so that a file that goes missing is noticed.
//!
//! The file `seals` beside the log is written anew, in one step, when a file of the log is full, when the service
//! stops, when a start finds a file without a seal, and before old files are removed. It is two lines: JSON, and the
//! MAC of that line ([`Key`]). A file is sealed with its first and last record and the hash of the last; what was
//! removed is summed up with the hash of its last record, which the first file that is left must name.

use std::ffi::OsStr;
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use storage::{Dir, Error, Result};

use super::key::Key;
use super::record::Head;

/// Name of the file.
pub const NAME: &str = "seals";
/// Its name until it is whole.
const DRAFT: &str = "seals.draft";
/// Largest file that is read, in bytes: some hundred thousand seals.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Everything that is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seals {
    /// The first record that was written under seals; those before it could go unnoticed.
    pub since: u64,
    /// The files that the service removed.
    pub removed: Removed,
    /// The files, oldest first. That which is being written is not among them.
    pub files: Vec<Sealed>,
}

/// A file that nothing is added to any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The number of its first record.
    pub first: u64,
    /// Its last record.
    pub last: Head,
    /// Its size.
    pub bytes: u64,
    /// When its last record was written, as RFC 3339.
    pub ended: String,
}

/// The sum of the files that the service has removed because the log was too large.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// How many.
    pub files: u64,
    /// Records that were in them.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The last of these records.
    pub last: Head,
    /// When the last file was removed, as RFC 3339.
    pub at: String,
}

/// The seals of a directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// There are none.
    None,
    /// They are the service's own.
    Genuine(Seals),
    /// There is a file, and the service did not write it, or not so.
    Forged,
}

impl Seals {
    /// Reads the seals of the log in `dir`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(dir: &Dir, key: &Key) -> Result<Found> {
        let (file, _) = match dir.open_file_entry(OsStr::new(NAME)) {
            Err(Error::NotFound(_)) => return Ok(Found::None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(|source| failed("read", source))?;
        let genuine = || {
            let (json, mac) = std::str::from_utf8(&bytes).ok()?.trim_end().split_once('\n')?;
            key.is_mac(json.as_bytes(), mac).then(|| serde_json::from_str(json).ok())?
        };
        Ok(genuine().map_or(Found::Forged, Found::Genuine))
    }

    /// Writes the seals, whole or not at all.
    ///
    /// # Errors
    /// Those of writing. The seals of before stay then.
    pub(super) fn write(&self, dir: &Dir, key: &Key, is_durable: bool) -> Result<()> {
        let (name, draft) = (OsStr::new(NAME), OsStr::new(DRAFT));
        match dir.remove_file(draft) {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        // A structure of texts and numbers always becomes JSON.
        let json = serde_json::to_string(self).unwrap_or_default();
        let mac = key.mac(json.as_bytes());
        let mut file = dir.create_file(draft, 0o600)?;
        writeln!(file, "{json}\n{mac}").map_err(|source| failed("write", source))?;
        if is_durable {
            file.sync_all().map_err(|source| failed("sync", source))?;
        }
        dir.rename(draft, dir, name)?;
        if is_durable { dir.sync() } else { Ok(()) }
    }

    /// Tells whether the file that begins with this record is sealed.
    pub(super) fn has(&self, first: u64) -> bool {
        self.files.iter().any(|sealed| sealed.first == first)
    }

    /// Moves the oldest file to what is removed. Returns the number of its first record.
    pub(super) fn remove_oldest(&mut self, at: String) -> Option<u64> {
        if self.files.is_empty() {
            return None;
        }
        let Sealed { first, last, bytes, .. } = self.files.remove(0);
        let records = (last.seq + 1).saturating_sub(first);
        self.removed = Removed {
            files: self.removed.files + 1,
            records: self.removed.records + records,
            bytes: self.removed.bytes + bytes,
            last,
            at,
        };
        Some(first)
    }
}

fn failed(operation: &'static str, source: std::io::Error) -> Error {
    Error::Io { operation, path: NAME.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(first: u64, last: u64) -> Sealed {
        let last = Head { seq: last, hash: format!("{last:064}") };
        Sealed { first, last, bytes: 100, ended: "2026-11-22T00:00:00Z".to_owned() }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test damages its own file")]
    fn seals_are_read_as_written_and_not_when_any_byte_or_the_key_differs() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(place.path()).unwrap();
        let key = Key::make().unwrap();
        assert_eq!(Seals::read(&dir, &key).unwrap(), Found::None);
        let mut seals = Seals { since: 1, files: vec![sealed(1, 10), sealed(11, 12)], ..Seals::default() };
        seals.write(&dir, &key, true).unwrap();
        assert_eq!(seals.remove_oldest("now".to_owned()), Some(1));
        assert_eq!((seals.removed.records, seals.removed.last.seq, seals.has(11)), (10, 10, true));
        seals.write(&dir, &key, false).unwrap();
        assert_eq!(Seals::read(&dir, &key).unwrap(), Found::Genuine(seals));
        assert_eq!(Seals::read(&dir, &Key::make().unwrap()).unwrap(), Found::Forged);
        let path = place.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() - 1 {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, changed).unwrap();
            assert_eq!(Seals::read(&dir, &key).unwrap(), Found::Forged, "{at}");
        }
    }
}

//! Listing a directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::stat::Kind;

/// Bytes of the buffer that one `getdents64` call fills.
const LISTING_BUFFER_BYTES: usize = 32 * 1024;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; any bytes but `/` and NUL.
    pub name: OsString,
    /// Its kind, as the directory says.
    pub kind: Kind,
    /// Whether it may be a whiteout: a character device (the directory does not say which).
    pub is_character_device: bool,
}

impl Dir {
    /// Lists the entries in the order of the directory, without `.` and `..`.
    ///
    /// A directory that strangers fill takes [`Dir::entries_at_most`]: they can make more names than memory holds.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.first_entries(usize::MAX)
    }

    /// Lists the entries as [`Dir::entries`] does, if there are no more than `limit`.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn entries_at_most(&self, limit: usize) -> Result<Vec<Entry>> {
        let entries = self.first_entries(limit.saturating_add(1))?;
        if entries.len() > limit { Err(Error::TooManyEntries(limit)) } else { Ok(entries) }
    }

    /// Lists the first `most` entries that the directory gives.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn first_entries(&self, most: usize) -> Result<Vec<Entry>> {
        // A position of its own, so that two threads may list one `Dir`.
        let dir = self.reopen()?;
        let mut buffer = Vec::with_capacity(LISTING_BUFFER_BYTES);
        let mut listing = RawDir::new(&dir.fd, buffer.spare_capacity_mut());
        let mut entries = Vec::new();
        while entries.len() < most
            && let Some(entry) = listing.next()
        {
            let entry = match entry {
                // A process has removed the directory since it was opened (getdents64(2)): nothing is in it.
                Err(Errno::NOENT) => break,
                entry => entry.map_err(|errno| Error::from_errno("list", ".", errno))?,
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsStr::from_bytes(name).to_owned();
            let mut file_type = entry.file_type();
            if file_type == FileType::Unknown {
                // Some file systems do not keep the type in the directory (readdir(3), `DT_UNKNOWN`).
                match rustix::fs::statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => file_type = FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                }
            }
            let is_character_device = file_type == FileType::CharacterDevice;
            entries.push(Entry { name, kind: file_type.into(), is_character_device });
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::fixture;

    #[test]
    fn a_directory_that_was_removed_since_it_was_opened_is_an_empty_one() {
        let (_temp, dir) = fixture();
        let removed = dir.create_dir(OsStr::new("removed"), 0o755).unwrap();
        dir.remove_dir(OsStr::new("removed")).unwrap();
        assert_eq!(removed.entries().unwrap(), []);
    }
}

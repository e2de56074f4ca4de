//! [`Room`]: how much of a tree one request may hold at once.

use crate::dir::{Dir, Entry};
use crate::error::{Error, Result};
use crate::interrupt;

/// Bytes that the paths of a tree may have for each entry that it may have, on average. Real ones have fewer than a
/// hundred; a command can nest names until each has thousands.
const PATH_BYTES: usize = 256;

/// The rest of the entries and of the bytes of paths that one request may hold.
///
/// Entries are counted when a directory is listed, not when they are visited: a walk holds the lists of all levels.
pub(crate) struct Room {
    entries: usize,
    entries_left: usize,
    path_bytes: usize,
    path_bytes_left: usize,
}

impl Room {
    /// Room for a tree of at most `entries` entries.
    pub(crate) fn of_entries(entries: usize) -> Self {
        let path_bytes = entries.saturating_mul(PATH_BYTES);
        Self { entries, entries_left: entries, path_bytes, path_bytes_left: path_bytes }
    }

    /// Lists `dir` and takes the room of its entries.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`] when there is no more; those of [`interrupt::check`].
    pub(crate) fn list(&mut self, dir: &Dir) -> Result<Vec<Entry>> {
        interrupt::check()?;
        let listed = dir.first_entries(self.entries_left.saturating_add(1))?;
        self.take_entries(listed.len())?;
        Ok(listed)
    }

    /// Takes the room of `entries` entries.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`] when there is no more.
    pub(crate) fn take_entries(&mut self, entries: usize) -> Result<()> {
        self.entries_left =
            self.entries_left.checked_sub(entries).ok_or(Error::TooManyEntries(self.entries))?;
        Ok(())
    }

    /// Takes the room of one path.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when there is no more; those of [`interrupt::check`].
    pub(crate) fn take_path(&mut self, bytes: usize) -> Result<()> {
        interrupt::check()?;
        self.path_bytes_left = self.path_bytes_left.checked_sub(bytes).ok_or_else(|| Error::TooLarge {
            what: "the list of all paths in the directory".to_owned(),
            limit: u64::try_from(self.path_bytes).unwrap_or(u64::MAX),
        })?;
        Ok(())
    }
}

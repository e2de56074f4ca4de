//! The devboxes: one text a devbox, which the store keeps and does not read.

use std::collections::HashMap;

use crate::core::store::Store;
use crate::error::Result;

/// Devboxes at once.
pub const DEVBOXES_MAX: usize = 10_000;

impl Store {
    /// Reads the texts of all devboxes, by their keys.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`](crate::Error::TooManyEntries), [`Error::Io`](crate::Error::Io).
    pub fn devboxes(&self) -> Result<HashMap<String, String>> {
        Ok(self.inner.devboxes.read()?.texts)
    }

    /// Keeps the text of the devbox under `key`, which is one line, or forgets it. After this it is on the disk.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::TooManyEntries`](crate::Error::TooManyEntries) when there are
    /// [`DEVBOXES_MAX`]; [`Error::Full`](crate::Error::Full), [`Error::NoSpace`](crate::Error::NoSpace),
    /// [`Error::Io`](crate::Error::Io).
    pub fn keep_devbox(&self, key: &str, text: Option<&str>) -> Result<()> {
        if text.is_some() {
            self.admit_space()?;
        }
        self.inner.devboxes.keep(key, text)
    }
}

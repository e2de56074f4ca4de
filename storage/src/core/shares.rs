//! Share links: one text a link, which the store keeps and does not read.

use std::collections::HashMap;

use crate::core::store::Store;
use crate::error::Result;

/// Share links at once.
pub const SHARES_MAX: usize = 10_000;

impl Store {
    /// Reads the texts of all share links, by their keys.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`](crate::Error::TooManyEntries), [`Error::Io`](crate::Error::Io).
    pub fn shares(&self) -> Result<HashMap<String, String>> {
        Ok(self.inner.shares.read()?.texts)
    }

    /// Keeps the text of the share link under `key`, which is one line, or forgets it. After this it is on the disk; a link is
    /// forgotten also where the disk has no more room than it is to keep.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::TooManyEntries`](crate::Error::TooManyEntries) when there are
    /// [`SHARES_MAX`]; [`Error::Full`](crate::Error::Full), [`Error::NoSpace`](crate::Error::NoSpace),
    /// [`Error::Io`](crate::Error::Io).
    pub fn keep_share(&self, key: &str, text: Option<&str>) -> Result<()> {
        if text.is_some() {
            self.admit_space()?;
        }
        self.inner.shares.keep(key, text)
    }
}

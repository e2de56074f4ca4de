//! Revocations of signed tokens: one text a revocation, which the store keeps and does not read.

use std::collections::HashMap;

use crate::core::store::Store;
use crate::error::Result;

/// Revocations at once.
pub const REVOCATIONS_MAX: usize = 10_000;

impl Store {
    /// Reads the texts of all revocations, by their keys.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`](crate::Error::TooManyEntries), [`Error::Io`](crate::Error::Io).
    pub fn revocations(&self) -> Result<HashMap<String, String>> {
        Ok(self.inner.revocations.read()?.texts)
    }

    /// Keeps the text of the revocation under `key`, which is one line, or forgets it. After this it is on the disk, also where
    /// the disk has no more room than it is to keep: a token that was stolen must not outlive a full disk.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::TooManyEntries`](crate::Error::TooManyEntries) when there are
    /// [`REVOCATIONS_MAX`]; [`Error::NoSpace`](crate::Error::NoSpace), [`Error::Io`](crate::Error::Io).
    pub fn keep_revocation(&self, key: &str, text: Option<&str>) -> Result<()> {
        self.inner.revocations.keep(key, text)
    }
}

//! The machines that users lend: one text a user, which the store keeps and does not read.

use std::collections::HashMap;

use policy::UserId;

use crate::core::store::Store;
use crate::error::Result;

/// Users with machines at once.
pub(crate) const RUNNER_LISTS_MAX: usize = 10_000;

impl Store {
    /// Reads which machines users lend.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`](crate::Error::TooManyEntries), [`Error::Io`](crate::Error::Io).
    pub fn runner_lists(&self) -> Result<HashMap<UserId, String>> {
        let texts = self.inner.runners.read()?.texts.into_iter();
        Ok(texts.filter_map(|(user, text)| Some((UserId::parse(&user).ok()?, text))).collect())
    }

    /// Keeps which machines a user lends, or forgets it. After this it is on the disk.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::TooManyEntries`](crate::Error::TooManyEntries) when too many users have
    /// some; [`Error::Full`](crate::Error::Full), [`Error::NoSpace`](crate::Error::NoSpace), [`Error::Io`](crate::Error::Io).
    pub fn keep_runner_list(&self, user: &UserId, text: Option<&str>) -> Result<()> {
        if text.is_some() {
            self.admit_space()?;
        }
        self.inner.runners.keep(user.as_str(), text)
    }
}

//! [`Condition`]: what must hold for a change to be made.

use policy::RelPath;

use crate::error::{Error, Result, Unmet};
use crate::stat::{ETag, Stat};

/// The condition for a change (RFC 9110, section 13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The path exists (`If-Match: *`).
    Exists,
    /// The path has one of these tags (`If-Match`).
    Matches(Vec<ETag>),
    /// The path does not exist (`If-None-Match: *`).
    Missing,
}

impl Condition {
    pub(crate) fn check(&self, path: &RelPath, existing: Option<&Stat>) -> Result<()> {
        self.check_tag(path, existing.map(Stat::etag))
    }

    /// As for a change: whether it holds for what has the tag `current`, or for nothing.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn check_tag(&self, path: &RelPath, current: Option<ETag>) -> Result<()> {
        let holds = match (self, &current) {
            (Self::Always, _) => true,
            (Self::Exists, current) => current.is_some(),
            (Self::Missing, current) => current.is_none(),
            (Self::Matches(tags), Some(current)) => tags.contains(current),
            (Self::Matches(_), None) => false,
        };
        if holds {
            return Ok(());
        }
        let unmet = match (self, &current) {
            (_, None) => Unmet::Missing,
            (Self::Missing, Some(_)) => Unmet::Exists,
            (Self::Matches(tags), Some(_)) if tags.is_empty() => Unmet::Weak,
            (_, Some(_)) => Unmet::Changed,
        };
        Err(Error::Stale { path: path.to_string(), unmet, current })
    }
}

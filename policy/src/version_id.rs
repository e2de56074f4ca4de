//! [`VersionId`]: the name of one immutable version of a skill's package.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// Characters of an id.
const CHARACTERS: usize = 24;

/// The id of a version of a skill, as platforms give it.
///
/// It is exactly 24 hexadecimal digits of either case, so it is one segment of a path, needs no quoting in a shell, and can
/// be no other program's file name by accident. Ids that differ in case are two ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct VersionId(String);

/// The text is no id of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the id of a version has exactly {CHARACTERS} hexadecimal digits: send it as the platform gave it")]
pub struct VersionIdError;

impl VersionId {
    /// Reads an id.
    ///
    /// # Errors
    /// [`VersionIdError`] for anything else than 24 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, VersionIdError> {
        let is_id = text.len() == CHARACTERS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id { Ok(Self(text.to_owned())) } else { Err(VersionIdError) }
    }

    /// The id as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_24_hexadecimal_digits_and_nothing_else() {
        for good in ["0123456789abcdefABCDEF01", "ffffffffffffffffffffffff"] {
            assert_eq!(VersionId::parse(good).unwrap().as_str(), good);
        }
        let long = "0".repeat(25);
        for bad in [
            "",
            "v1",
            "0123456789abcdefABCDEF0",
            &long,
            "../456789abcdefABCDEF01",
            "0123456789abcdefABCDEF0/",
        ] {
            assert_eq!(VersionId::parse(bad), Err(VersionIdError), "{bad}");
        }
    }
}

//! [`ExecId`]: the name of a run that is remembered.

use std::fmt;

use crate::ops::{Error, Result};

/// Longest name, in bytes.
const BYTES_MAX: usize = 128;

/// The name of a run in its tree, given by the caller or by the service.
///
/// * 1 to 128 of `A`-`Z`, `a`-`z`, `0`-`9`, `-`, `_`, `.` and `:`, so that it stands in a path as it is;
/// * the first is a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(String);

impl ExecId {
    /// Reads a name.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn parse(text: &str) -> Result<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins_well && text.len() <= BYTES_MAX && text.bytes().all(is_good) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::Invalid(format!(
            "`exec_id` is 1 to {BYTES_MAX} letters, digits, `-`, `_`, `.` or `:`, and begins with a letter or digit"
        )))
    }

    /// A name that no other run has.
    ///
    /// # Errors
    /// [`Error::Exec`]: the kernel has no random bytes.
    pub fn fresh() -> Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| exec::Error::Random(std::io::Error::other(error)))?;
        Ok(Self(format!("{:032x}", u128::from_le_bytes(random))))
    }

    /// As it is spelled.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_in_a_path_as_it_is() {
        for good in ["a", "0", "run-1", "A_b.c:d", &"x".repeat(128), ExecId::fresh().unwrap().as_str()] {
            assert!(ExecId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", "a/b", "a b", "数", "a\0", "%41", &"x".repeat(129)] {
            assert!(ExecId::parse(bad).is_err(), "{bad}");
        }
    }
}

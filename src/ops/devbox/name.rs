//! [`DevboxName`]: the name of a devbox, and the workspace that it stands for.

use std::fmt;

use policy::{AgentId, TreeId, UserId};

use crate::ops::error::{Error, Result};

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// The beginning of the ids of the users that devboxes stand for: no user of the platform is to be named so.
pub const USER_PREFIX: &str = "devbox-";

/// The name of a devbox, as Kubernetes has names.
///
/// * It is a label of DNS (RFC 1123, section 2.1): 1 to [`NAME_BYTES_MAX`] lower-case letters, digits and `-`, with a letter or a
///   digit at both ends.
/// * It stands for one user id, [`USER_PREFIX`] and the name, so that two names never share a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DevboxName {
    text: String,
    user: UserId,
}

impl DevboxName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the text is no such label.
    pub fn parse(text: &str) -> Result<Self> {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(is_inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if !is_label {
            let message = format!(
                "the name of a devbox has 1 to {NAME_BYTES_MAX} lower-case letters, digits and `-`, with a letter or a digit at \
                 both ends: choose another name"
            );
            return Err(Error::Invalid(message));
        }
        Ok(Self { text: text.to_owned(), user: UserId::parse(&format!("{USER_PREFIX}{text}"))? })
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The workspace that it stands for with `agent`.
    #[must_use]
    pub fn workspace(&self, agent: &AgentId) -> TreeId {
        TreeId::Workspace(self.user.clone(), agent.clone())
    }
}

impl fmt::Display for DevboxName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_label_of_dns_is_a_name() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        for good in ["a", "0", "a-b", "a--b", "65f2a1b3c4d5e6f708192a3b", &longest] {
            let name = DevboxName::parse(good).unwrap();
            assert_eq!(name.as_str(), good);
            let tree = name.workspace(&AgentId::parse("devbox").unwrap());
            assert_eq!(tree.user().as_str(), format!("devbox-{good}"));
        }
        let too_long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", "-", "a-", "-a", "A", "a.b", "a_b", "a/b", "..", "a b", "a\n", "ä", "a\0", &too_long]
        {
            assert!(DevboxName::parse(bad).is_err(), "{bad:?}");
        }
    }
}

//! [`Text`]: a text that a caller chose, as a record has it: whole while it is short, else its digest, length and head.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest text that a record has whole, in bytes.
pub const WHOLE_BYTES_MAX: usize = 256;
/// How much of a longer one it has, in bytes.
const HEAD_BYTES: usize = 96;

/// A text of any length in bounded room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// At most [`WHOLE_BYTES_MAX`] bytes.
    Whole(String),
    /// A longer one, which its digest tells from any other.
    Long {
        /// SHA-256 of the whole text, in hexadecimal.
        digest: String,
        /// Bytes of the whole text.
        length: u64,
        /// The first of them, up to a whole character.
        head: String,
    },
}

impl Text {
    /// The text as it is shown to a person.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Whole(text) => format!("{text:?}"),
            Self::Long { digest, length, head } => {
                format!("{head:?}…({length} bytes, SHA-256 {digest})")
            }
        }
    }

    /// The part of the text that the record has.
    pub(super) fn kept(&self) -> &str {
        match self {
            Self::Whole(text) | Self::Long { head: text, .. } => text,
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        if text.len() <= WHOLE_BYTES_MAX {
            return Self::Whole(text);
        }
        let head = text.get(..text.floor_char_boundary(HEAD_BYTES)).unwrap_or_default();
        Self::Long {
            digest: hex::encode(Sha256::digest(text.as_bytes())),
            length: u64::try_from(text.len()).unwrap_or(u64::MAX),
            head: head.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_becomes_its_digest_length_and_head_and_stays_whole_in_json() {
        let short = "数".repeat(WHOLE_BYTES_MAX / 3);
        assert_eq!(Text::from(short.clone()), Text::Whole(short));
        let long = Text::from("数".repeat(2000));
        let Text::Long { length, head, digest } = &long else { panic!("{long:?}") };
        assert_eq!((*length, head.as_str(), digest.len()), (6000, "数".repeat(32).as_str(), 64));
        let json = serde_json::to_string(&long).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), long);
        assert_ne!(Text::from("数".repeat(2001)), long);
    }
}

//! [`UserId`], [`AgentId`] and [`SkillId`]: names that become one directory each.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest id, in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 128;

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// No characters.
    #[error("the {kind} is empty")]
    Empty {
        /// Which id.
        kind: &'static str,
    },
    /// Longer than [`ID_BYTES_MAX`].
    #[error("the {kind} has {bytes} bytes: at most {ID_BYTES_MAX} are possible")]
    TooLong {
        /// Which id.
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// Begins with a dot, which also refuses `.` and `..`.
    #[error("the {kind} `{text}` begins with a dot: choose a name that does not")]
    LeadingDot {
        /// Which id.
        kind: &'static str,
        /// The text refused.
        text: String,
    },
    /// Begins or ends with white space.
    #[error("the {kind} `{text}` begins or ends with white space: remove it")]
    OuterSpace {
        /// Which id.
        kind: &'static str,
        /// The text refused.
        text: String,
    },
    /// `/`, `\`, a control character or a character that reorders text.
    #[error("the {kind} has the character U+{character:04X}, which an id cannot hold")]
    Character {
        /// Which id.
        kind: &'static str,
        /// The code point refused.
        character: u32,
    },
}

/// Characters that make text read in another order than it is stored (Unicode TR 9), so that two ids look alike.
fn reorders_text(character: char) -> bool {
    matches!(character, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn check(kind: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { kind });
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::TooLong { kind, bytes: text.len() });
    }
    if let Some(character) =
        text.chars().find(|c| c.is_control() || matches!(c, '/' | '\\') || reorders_text(*c))
    {
        return Err(IdError::Character { kind, character: u32::from(character) });
    }
    if text.starts_with('.') {
        return Err(IdError::LeadingDot { kind, text: text.to_owned() });
    }
    if text.trim() != text {
        return Err(IdError::OuterSpace { kind, text: text.to_owned() });
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        ///
        /// One path segment of letters of any script: 1 to 128 bytes of UTF-8, no `/`, no `\`, no control or
        /// text-reordering character, no leading dot, no white space at either end. A clone shares the text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses `text`, which must keep every rule of the type.
            ///
            /// # Errors
            /// The first rule broken, as an [`IdError`].
            pub fn parse(text: &str) -> Result<Self, IdError> {
                check($kind, text)?;
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                check($kind, &text)?;
                Ok(Self(text.into()))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, formatter)
            }
        }
    };
}

id!(
    /// A person (or service account) whose changes are private.
    UserId,
    "user id"
);
id!(
    /// An application; its baseline skills are shared by all its users.
    AgentId,
    "agent id"
);
id!(
    /// A skill: a folder of instructions and scripts.
    SkillId,
    "skill id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_script_are_ids() {
        for text in ["a", "user-1@example.com", "数据分析", "My Skill", "a..b", "café", "x.y_z~1"] {
            assert_eq!(SkillId::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_could_leave_a_directory_or_mislead_a_reader_is_refused() {
        let long = "é".repeat(65);
        for text in ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0", "a\nb", " a", "a ", "a\u{202E}b", &long]
        {
            assert!(UserId::parse(text).is_err(), "{text:?}");
        }
    }
}

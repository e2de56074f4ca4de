//! [`SandboxPath`]: an absolute path as agents write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest path, in bytes of UTF-8 (`PATH_MAX` of Linux with its final NUL).
pub const PATH_BYTES_MAX: usize = 4095;

/// Longest segment, in bytes of UTF-8 (`NAME_MAX`).
pub const SEGMENT_BYTES_MAX: usize = 255;

/// An absolute path inside a sandbox, in its shortest spelling.
///
/// * It begins with `/` and, but for the root, does not end with one.
/// * No segment is empty, `.` or `..`, longer than 255 bytes, or holds a control character.
/// * It is UTF-8 and has at most 4 095 bytes.
///
/// Spelling is all it proves: what is *there*, a symbolic link out of the workspace for one, is found out by opening it
/// beneath the workspace, which every backend does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxPath(String);

/// Why a text is not a [`SandboxPath`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SandboxPathError {
    /// It does not begin with `/`.
    #[error("`{0}` is not absolute: write it from `/`")]
    Relative(String),
    /// `..` would leave the root.
    #[error("`{0}` goes above `/`")]
    AboveRoot(String),
    /// A control character, NUL included.
    #[error("the path has a control character (U+{0:04X}): remove it")]
    ControlCharacter(u32),
    /// A segment is longer than [`SEGMENT_BYTES_MAX`].
    #[error("a path segment has {0} bytes: at most {SEGMENT_BYTES_MAX} are possible")]
    SegmentTooLong(usize),
    /// The whole is longer than [`PATH_BYTES_MAX`].
    #[error("the path has {0} bytes: at most {PATH_BYTES_MAX} are possible")]
    TooLong(usize),
}

impl SandboxPath {
    /// `/workspace`, where most backends have the user's own directory.
    #[must_use]
    pub fn workspace() -> Self {
        Self("/workspace".to_owned())
    }

    /// Parses an absolute path; `.`, `..`, repeated and final `/` are resolved by spelling alone.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn parse(text: &str) -> Result<Self, SandboxPathError> {
        if !text.starts_with('/') {
            return Err(SandboxPathError::Relative(text.to_owned()));
        }
        Self(String::new()).resolve(text)
    }

    /// `text` seen from this directory: itself when it is absolute, else below it.
    ///
    /// # Errors
    /// As for [`SandboxPath::parse`].
    pub fn join(&self, text: &str) -> Result<Self, SandboxPathError> {
        if text.starts_with('/') { Self::parse(text) } else { self.clone().resolve(text) }
    }

    fn resolve(mut self, text: &str) -> Result<Self, SandboxPathError> {
        if text.len() > 2 * PATH_BYTES_MAX {
            return Err(SandboxPathError::TooLong(text.len()));
        }
        if let Some(character) = text.chars().find(|character| character.is_control()) {
            return Err(SandboxPathError::ControlCharacter(u32::from(character)));
        }
        if self.0 == "/" {
            self.0.clear();
        }
        for segment in text.split('/') {
            match segment {
                "" | "." => {}
                ".." => match self.0.rfind('/') {
                    Some(position) => self.0.truncate(position),
                    None => return Err(SandboxPathError::AboveRoot(text.to_owned())),
                },
                _ if segment.len() > SEGMENT_BYTES_MAX => {
                    return Err(SandboxPathError::SegmentTooLong(segment.len()));
                }
                _ => {
                    self.0.push('/');
                    self.0.push_str(segment);
                }
            }
        }
        if self.0.len() > PATH_BYTES_MAX {
            return Err(SandboxPathError::TooLong(self.0.len()));
        }
        if self.0.is_empty() {
            self.0.push('/');
        }
        Ok(self)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment; none for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.0.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// The directory it is in; none for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let position = self.0.rfind('/').filter(|_| self.0 != "/")?;
        Some(Self(if position == 0 { "/".to_owned() } else { self.0[..position].to_owned() }))
    }

    /// The rest of the path below `directory`, without a leading `/`: empty for the directory itself, none outside it.
    #[must_use]
    pub fn below(&self, directory: &Self) -> Option<&str> {
        if directory.0 == "/" {
            return Some(&self.0[1..]);
        }
        let rest = self.0.strip_prefix(&directory.0)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

impl fmt::Display for SandboxPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SandboxPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

impl FromStr for SandboxPath {
    type Err = SandboxPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for SandboxPath {
    type Error = SandboxPathError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<SandboxPath> for String {
    fn from(path: SandboxPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SandboxPath {
        SandboxPath::parse(text).unwrap()
    }

    #[test]
    fn a_path_has_one_spelling() {
        for text in ["/工作/a b", "//工作//a b/", "/工作/./a b", "/工作/x/../a b", "/x/../工作/a b/."]
        {
            assert_eq!(path(text).as_str(), "/工作/a b", "{text}");
        }
        assert_eq!(path("/").as_str(), "/");
        assert_eq!(path("/a/..").as_str(), "/");
    }

    #[test]
    fn what_breaks_a_rule_is_refused() {
        let parse = |text: &str| SandboxPath::parse(text).unwrap_err();
        assert_eq!(parse("a"), SandboxPathError::Relative("a".into()));
        assert_eq!(parse(""), SandboxPathError::Relative(String::new()));
        assert_eq!(parse("/a/../.."), SandboxPathError::AboveRoot("/a/../..".into()));
        assert_eq!(parse("/a\0b"), SandboxPathError::ControlCharacter(0));
        assert_eq!(parse(&format!("/{}", "x".repeat(256))), SandboxPathError::SegmentTooLong(256));
        assert_eq!(parse(&"/x".repeat(2048)), SandboxPathError::TooLong(4096));
        assert_eq!(path(&format!("/{}", "字".repeat(85))).file_name().unwrap().len(), 255);
    }

    #[test]
    fn joining_goes_below_unless_the_text_is_absolute() {
        assert_eq!(path("/w").join("a/b").unwrap(), path("/w/a/b"));
        assert_eq!(path("/w").join("/a").unwrap(), path("/a"));
        assert_eq!(path("/").join("a").unwrap(), path("/a"));
        assert_eq!(path("/w").join("").unwrap(), path("/w"));
        assert_eq!(path("/w/a").join("../b").unwrap(), path("/w/b"));
    }

    #[test]
    fn below_is_by_segments() {
        assert_eq!(path("/w/a/b").below(&path("/w")), Some("a/b"));
        assert_eq!(path("/w").below(&path("/w")), Some(""));
        assert_eq!(path("/w-evil/a").below(&path("/w")), None);
        assert_eq!(path("/w").below(&path("/")), Some("w"));
    }

    #[test]
    fn the_root_has_neither_name_nor_parent() {
        assert_eq!((path("/").file_name(), path("/").parent()), (None, None));
        assert_eq!((path("/a").file_name(), path("/a").parent()), (Some("a"), Some(path("/"))));
        assert_eq!(path("/a/b").parent(), Some(path("/a")));
    }
}

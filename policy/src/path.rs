//! [`RelPath`]: a path inside a tree, proven well spelled.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest path, in bytes of UTF-8.
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest segment, in bytes of UTF-8 (`NAME_MAX` of Linux file systems).
pub const SEGMENT_BYTES_MAX: usize = 255;

/// A path relative to the root of a tree.
///
/// * UTF-8, segments separated by `/`, no leading and no trailing `/`;
/// * no segment is empty, `.` or `..`; `a..b.txt` is a fine name;
/// * no NUL and no other control character;
/// * each segment is 1 to 255 bytes, the whole at most 4 096 bytes.
///
/// The empty path is the tree itself and is made by [`RelPath::root`] only, never by parsing.
/// Spelling is all this type proves: that a path stays inside its tree is the kernel's promise
/// (`openat2` beneath an open directory), because a symbolic link is not a matter of spelling.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

/// Why a text is not a [`RelPath`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The text has no characters.
    #[error("the path is empty: name a file or directory relative to the tree")]
    Empty,
    /// The text begins with `/` and is not in this tree's sandbox form.
    #[error("`{0}` is absolute and not inside this tree: send a path relative to the tree")]
    Absolute(String),
    /// A segment is `..`.
    #[error("`{0}` has a `..` segment: send the path without it")]
    Parent(String),
    /// A segment is empty or `.`, or the path ends in `/`.
    #[error("`{0}` has an empty or `.` segment: send `a/b`, not `a//b` or `a/./b`")]
    EmptySegment(String),
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

impl PathError {
    /// Tells whether the path tried to leave its tree, as opposed to being badly spelled.
    #[must_use]
    pub fn is_escape(&self) -> bool {
        matches!(self, Self::Absolute(_) | Self::Parent(_))
    }
}

impl RelPath {
    /// The tree itself.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Parses `text`, which must keep every rule of the type.
    ///
    /// # Errors
    /// The first rule broken, as a [`PathError`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        check(text).map(|()| Self(text.to_owned()))
    }

    /// The text, empty for the tree itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether this is the tree itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The segments from the outermost in; none for the tree itself.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|segment| !segment.is_empty())
    }

    /// The last segment; `None` for the tree itself.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.segments().next_back()
    }

    /// The directory that holds this path; `None` for the tree itself.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        Some(self.0.rsplit_once('/').map_or_else(Self::root, |(parent, _)| Self(parent.to_owned())))
    }

    /// This path with one more segment.
    ///
    /// # Errors
    /// As [`RelPath::parse`]; also when `segment` holds a `/`.
    pub fn join(&self, segment: &str) -> Result<Self, PathError> {
        if segment.contains('/') {
            return Err(PathError::EmptySegment(segment.to_owned()));
        }
        check(segment)?;
        if self.is_root() {
            return Ok(Self(segment.to_owned()));
        }
        let bytes = self.0.len() + 1 + segment.len();
        if bytes > PATH_BYTES_MAX {
            return Err(PathError::TooLong(bytes));
        }
        Ok(Self([self.0.as_str(), "/", segment].concat()))
    }

    /// The path from `ancestor` to this one; `None` when it does not lie there.
    #[must_use]
    pub fn below(&self, ancestor: &Self) -> Option<Self> {
        if !self.starts_with(ancestor) {
            return None;
        }
        let rest = self.0.get(ancestor.0.len()..)?;
        Some(Self(rest.strip_prefix('/').unwrap_or(rest).into()))
    }

    /// Tells whether `self` is `ancestor` or lies below it, segment by segment.
    #[must_use]
    pub fn starts_with(&self, ancestor: &Self) -> bool {
        ancestor.is_root()
            || self.0.strip_prefix(&ancestor.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Tells whether `text` keeps every rule of the type; the first one that it breaks.
fn check(text: &str) -> Result<(), PathError> {
    if text.is_empty() {
        return Err(PathError::Empty);
    }
    if text.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong(text.len()));
    }
    // Most names are ASCII, and looking at bytes is many times cheaper.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain && let Some(character) = text.chars().find(|c| c.is_control()) {
        return Err(PathError::ControlCharacter(u32::from(character)));
    }
    if text.starts_with('/') {
        return Err(PathError::Absolute(text.to_owned()));
    }
    for segment in text.split('/') {
        match segment {
            ".." => return Err(PathError::Parent(text.to_owned())),
            "" | "." => return Err(PathError::EmptySegment(text.to_owned())),
            _ if segment.len() > SEGMENT_BYTES_MAX => {
                return Err(PathError::SegmentTooLong(segment.len()));
            }
            _ => {}
        }
    }
    Ok(())
}

impl fmt::Display for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_root() { "." } else { &self.0 })
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl TryFrom<String> for RelPath {
    type Error = PathError;
    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_and_chinese_names_are_paths() {
        for text in ["a", "a/b.txt", "a..b.txt", "..a", "a..", "...", "数据/分析 表.md", "a\\b", "-rf"] {
            assert_eq!(RelPath::parse(text).map(String::from), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_path_begins_anew_in_a_directory_that_it_lies_in() {
        let path = |text: &str| if text.is_empty() { RelPath::root() } else { RelPath::parse(text).unwrap() };
        for (whole, ancestor, rest) in
            [("a/b/c", "a", Some("b/c")), ("a/b", "", Some("a/b")), ("a", "a", Some("")), ("ab/c", "a", None)]
        {
            assert_eq!(path(whole).below(&path(ancestor)), rest.map(path), "{whole} {ancestor}");
        }
    }

    #[test]
    fn each_broken_rule_has_its_own_error() {
        let long_segment = "x".repeat(256);
        let long_path = "x/".repeat(2100);
        let cases = [
            ("", PathError::Empty),
            ("/etc", PathError::Absolute("/etc".into())),
            ("a/../b", PathError::Parent("a/../b".into())),
            ("..", PathError::Parent("..".into())),
            ("a//b", PathError::EmptySegment("a//b".into())),
            ("./a", PathError::EmptySegment("./a".into())),
            ("a/", PathError::EmptySegment("a/".into())),
            ("a\0b", PathError::ControlCharacter(0)),
            ("a\nb", PathError::ControlCharacter(10)),
            (&long_segment, PathError::SegmentTooLong(256)),
            (&long_path, PathError::TooLong(4200)),
        ];
        for (text, error) in cases {
            assert_eq!(RelPath::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn starts_with_compares_whole_segments() {
        let path = |text| RelPath::parse(text).unwrap();
        assert!(path("a/b").starts_with(&path("a")));
        assert!(path("a").starts_with(&path("a")));
        assert!(path("a").starts_with(&RelPath::root()));
        assert!(!path("ab").starts_with(&path("a")));
    }

    proptest! {
        #[test]
        fn a_parsed_path_never_names_its_parent(text in "\\PC{0,40}") {
            if let Ok(path) = RelPath::parse(&text) {
                prop_assert!(path.segments().all(|s| s != ".." && s != "." && !s.is_empty()));
                prop_assert_eq!(path.as_str(), text);
            }
        }

        #[test]
        fn parent_and_file_name_join_back(text in "[a-z中/]{1,20}") {
            if let Ok(path) = RelPath::parse(&text) {
                let joined = path.parent().unwrap().join(path.file_name().unwrap()).unwrap();
                prop_assert_eq!(joined, path);
            }
        }
    }
}

//! [`Version`]: which content a file had at one moment.

use std::fmt;

use thiserror::Error;

/// The most bytes of a [`Version`].
pub const VERSION_BYTES_MAX: usize = 128;

/// A strong validator (RFC 9110, section 8.8.3) of the content that one file had at one moment, in the backend's own words.
///
/// * It has 1 to [`VERSION_BYTES_MAX`] bytes of visible ASCII, none of them `"`: it is an entity tag once it stands in quotes.
/// * Two equal versions of one path mean the same content. Two different ones mean nothing: a change of permission bits
///   may give another one, and so does a write of the same bytes. Versions have no order, and those of different paths or
///   backends have nothing to do with each other.
/// * It is made of: inode number, size, modification time and change time in nanoseconds, as the kernel tells them (this
///   host, Docker containers, machines behind a runner); the tag in `ETag` (a service); a number that each write takes
///   (memory).
/// * A write through a backend always gives another one. A command that writes into a file moves the change time, which no
///   command can set back; but many kernels stamp it with the time of their last tick (10 ms at most), so of two writes
///   of one length by commands in one tick the second may leave the version as it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(String);

/// A text that is no [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a version has 1 to {VERSION_BYTES_MAX} bytes of visible ASCII without `\"`")]
pub struct VersionError;

impl Version {
    /// Reads a version as it stands between the quotes of an entity tag.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        let is_fit = (1..=VERSION_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        if is_fit { Ok(Self(text.to_owned())) } else { Err(VersionError) }
    }

    /// Reads a strong entity tag, quotes and all; `None` for a weak one, and for what is none.
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<Self> {
        Self::parse(tag.strip_prefix('"')?.strip_suffix('"')?).ok()
    }

    /// The version of a file that a kernel tells so, with times in nanoseconds since 1970.
    pub(crate) fn of_inode(inode: u64, size: u64, modified_ns: i128, changed_ns: i128) -> Self {
        // At most 16 + 16 + 32 + 32 digits and three dashes.
        Self(format!("{inode:x}-{size:x}-{modified_ns:x}-{changed_ns:x}"))
    }

    /// The text between the quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As an entity tag, in quotes.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Version({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_header_or_is_too_long_is_no_version() {
        let longest = "x".repeat(VERSION_BYTES_MAX);
        for text in ["a", "9f00b3-16-18ea22c2-18ea22c3", "!#~", "W/a", &longest] {
            assert_eq!(Version::parse(text).map(|version| version.to_string()), Ok(text.to_owned()));
        }
        let longer = "x".repeat(VERSION_BYTES_MAX + 1);
        for text in ["", "a b", "a\"b", "a\r\nx-evil: 1", "a\0", "é", "版", "\u{7f}", &longer] {
            assert_eq!(Version::parse(text), Err(VersionError), "{text:?}");
        }
        for tag in ["W/\"a\"", "a", "\"a", "\"\"", "\"a\"b\"", ""] {
            assert_eq!(Version::of_tag(tag), None, "{tag}");
        }
        assert_eq!(Version::of_tag("\"a\""), Version::parse("a").ok());
        assert_eq!(Version::parse("a").unwrap().tag(), "\"a\"");
    }

    #[test]
    fn the_longest_facts_of_a_kernel_are_a_version() {
        let version = Version::of_inode(u64::MAX, u64::MAX, i128::MIN, -1);
        assert_eq!(Version::parse(version.as_str()), Ok(version));
    }
}

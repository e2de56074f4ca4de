//! [`Stat`] and [`ETag`]: what is known of a file without reading it.

use std::fmt::{self, Write as _};

use rustix::fs::{FileType, Mode};
use serde::{Deserialize, Serialize};

/// The unit of `st_blocks`, for every block size of the file system (stat(2)).
pub(crate) const BLOCK_BYTES: u64 = 512;

/// The kind of an entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, pipe or device: never listed, never opened.
    Other,
}

impl From<FileType> for Kind {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// The facts of an entry that need no reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its kind.
    pub kind: Kind,
    /// Size in bytes; of a directory, any number that the file system has.
    pub size: u64,
    /// Bytes that it takes on the disk, in whole blocks (stat(2), `st_blocks`).
    pub allocated: u64,
    /// Permission bits, `0o0` to `0o7777`.
    pub mode: u32,
    /// Modification time, in nanoseconds since 1970-01-01T00:00:00Z.
    pub modified_ns: i128,
    /// Change time of the inode, in the same unit; of a file that [`frozen`](crate::frozen()) told of, the time of its birth.
    pub changed_ns: i128,
    /// Inode number.
    pub inode: u64,
    /// Names that lead to this inode.
    pub links: u64,
    /// Owning user id.
    pub owner: u32,
    /// Which device it is; 0 for anything but a device.
    pub device: u64,
    /// Whether it is a character device, as whiteouts are.
    pub is_character_device: bool,
}

/// Room for the tag of most files, so that it is made in one piece.
const TAG_BYTES: usize = 64;

impl Stat {
    /// The strong validator of the file's content.
    #[must_use]
    pub fn etag(&self) -> ETag {
        let mut tag = String::with_capacity(TAG_BYTES);
        // A text takes all that is written to it.
        let _ = write!(tag, "{:x}-{:x}-{:x}-{:x}", self.inode, self.size, self.modified_ns, self.changed_ns);
        ETag(tag)
    }

    /// Tells whether this is the kernel's whiteout, a character device 0:0 (overlayfs.rst, "whiteouts").
    #[must_use]
    pub fn is_whiteout(&self) -> bool {
        self.is_character_device && self.device == 0
    }
}

#[allow(clippy::useless_conversion, reason = "`st_nlink` has 64 bits on x86-64 and 32 on aarch64")]
impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Self {
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let nanoseconds =
            |seconds: i64, nanoseconds: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Self {
            kind: file_type.into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES),
            mode: Mode::from_raw_mode(stat.st_mode).as_raw_mode() & 0o7777,
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
            #[allow(clippy::useless_conversion, reason = "32 bits on aarch64")]
            links: u64::from(stat.st_nlink),
            owner: stat.st_uid,
            device: stat.st_rdev,
            is_character_device: file_type == FileType::CharacterDevice,
        }
    }
}

/// A strong validator (RFC 9110, section 8.8.3) of one file's content.
///
/// It is made of inode number, size, modification and change time, all of which the kernel keeps: every write
/// that replaces a file makes a new inode with a modification time of nanoseconds, and every write into a file moves the
/// change time, which no process can set back. A [frozen](crate::frozen()) file has the time of its birth instead, because nothing writes into it
/// and its change time moves with its names.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ETag(String);

impl ETag {
    /// Reads a tag as it stands between the quotes.
    #[must_use]
    pub fn from_opaque(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text between the quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.0)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

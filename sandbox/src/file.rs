//! Files and directories: what is asked about them, and what is answered.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{Error, ErrorKind, FILE_BYTES_MAX, Result, SandboxPath, Version};

/// Bytes that come piece by piece.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; only where links are not followed.
    Symlink,
    /// A socket, pipe or device.
    Other,
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The last segment of its path; empty for `/`.
    pub name: String,
    /// Its kind; links are followed, so this is never [`FileKind::Symlink`] from [`stat`](crate::Sandbox::stat).
    pub kind: FileKind,
    /// Its length in bytes; of a directory, any number that the backend has.
    pub size: u64,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// When its contents changed last.
    pub modified: SystemTime,
    /// Its version, for [`WriteMode::Swap`]. `None` for what is no regular file, and where the backend cannot tell: then it
    /// cannot swap either.
    pub version: Option<Version>,
}

/// An entry of a directory. Links are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// One segment. Bytes that are no UTF-8 are U+FFFD: such an entry can be seen but not named.
    pub name: String,
    /// Its kind, links not followed.
    pub kind: FileKind,
    /// Its length in bytes; of a link, that of its text.
    pub size: u64,
}

impl DirEntry {
    /// Whether its name is one segment. One that is none, such as `..` or `a/b`, is no entry of a directory, even when
    /// a backend says so: a path made with it would lead out of the directory.
    #[must_use]
    pub fn is_one_segment(&self) -> bool {
        !matches!(self.name.as_str(), "" | "." | "..") && !self.name.contains(['/', '\0'])
    }
}

/// The part of a file to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Only these bytes. What lies past the end of the file is left out; a range that begins there gives nothing.
    pub range: Option<Range<u64>>,
    /// The most bytes to be had, at most and by default [`FILE_BYTES_MAX`]: more is [`ErrorKind::TooLarge`].
    pub bytes_max: Option<u64>,
}

impl ReadOptions {
    /// Which bytes of a file of `size` are to be had.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when they are more than may be.
    pub fn window(&self, size: u64, path: &SandboxPath) -> Result<Range<u64>> {
        let asked = self.range.clone().unwrap_or(0..size);
        let start = asked.start.min(size);
        let window = start..asked.end.clamp(start, size);
        let most = self.bytes_max.unwrap_or(FILE_BYTES_MAX).min(FILE_BYTES_MAX);
        if window.end - window.start > most {
            let message =
                format!("{} bytes are more than the {most} that may be read", window.end - window.start);
            return Err(Error::new(ErrorKind::TooLarge, "read_file", message).at(path));
        }
        Ok(window)
    }
}

/// How a write treats an existing file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// The file is replaced, or made.
    #[default]
    Replace,
    /// The file is made; [`ErrorKind::AlreadyExists`] when the path is taken. A link to nothing is taken, or its target is
    /// made: backends differ, and none replaces it.
    Create,
    /// The file is replaced when it still has this version; else, and when it or its directory is gone,
    /// [`ErrorKind::Stale`], and what was there stays. A directory is [`ErrorKind::IsDirectory`]. A backend that tells no versions is
    /// [`ErrorKind::Unsupported`].
    ///
    /// Of several swaps from one version through the same backend one succeeds. What a command, or another program on
    /// the same directory, does to the file between the last look at it and the rename is lost where the backend is a file system: some
    /// microseconds.
    Swap(Version),
}

/// How to write a file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// How the write treats an existing file.
    pub mode: WriteMode,
    /// Permission bits of the file, `0o777` at most. `None`: those that it has, or `0o644` for a new one. No umask is
    /// applied.
    pub permissions: Option<u32>,
}

impl WriteOptions {
    /// Refuses permission bits that make no sense.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`].
    pub fn check(&self, path: &SandboxPath) -> Result<()> {
        self.permissions.map_or(Ok(()), |bits| check_permissions(bits, "write_file", path))
    }
}

/// Refuses permission bits that make no sense.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub fn check_permissions(bits: u32, operation: &'static str, path: &SandboxPath) -> Result<()> {
    if bits <= 0o777 {
        return Ok(());
    }
    let message = format!("{bits:o} are no permission bits: at most 777 are possible");
    Err(Error::new(ErrorKind::Invalid, operation, message).at(path))
}

/// A file that is being read.
pub struct FileBody {
    /// The file at the moment it was opened.
    pub info: FileInfo,
    /// Which of its bytes come.
    pub range: Range<u64>,
    /// The bytes, in order.
    pub stream: ByteStream,
}

impl FileBody {
    /// A body of bytes that are there already, `bytes` being those of `range`.
    #[must_use]
    pub fn whole(info: FileInfo, range: Range<u64>, bytes: Bytes) -> Self {
        Self { info, range, stream: stream::once(async { Ok(bytes) }).boxed() }
    }

    /// Collects all bytes.
    ///
    /// # Errors
    /// An error of the stream; [`ErrorKind::TooLarge`] when more come than were told, or than [`FILE_BYTES_MAX`].
    pub async fn bytes(mut self) -> Result<Bytes> {
        let most = (self.range.end - self.range.start).min(FILE_BYTES_MAX);
        let fits = |bytes: usize| match bytes as u64 <= most {
            true => Ok(()),
            false => {
                let message = format!("more than {most} bytes came");
                Err(Error::new(ErrorKind::TooLarge, "read_file", message))
            }
        };
        let Some(first) = self.stream.try_next().await? else { return Ok(Bytes::new()) };
        fits(first.len())?;
        let Some(mut piece) = self.stream.try_next().await? else { return Ok(first) };
        let mut bytes = BytesMut::from(&*first);
        loop {
            fits(bytes.len() + piece.len())?;
            bytes.extend_from_slice(&piece);
            let Some(next) = self.stream.try_next().await? else { return Ok(bytes.freeze()) };
            piece = next;
        }
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FileBody").field("info", &self.info).field("range", &self.range).finish()
    }
}

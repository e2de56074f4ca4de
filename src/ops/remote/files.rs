//! Bytes and directories of remote workspaces.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use policy::RelPath;
use sandbox::{
    DIR_ENTRIES_MAX, DirEntry, ErrorKind, FILE_BYTES_MAX, FileInfo, FileKind, ReadOptions, Version,
    WriteMode, WriteOptions,
};
use storage::{Condition, ETag, Unmet};

use super::feeding::Feeding;
use super::{Backend, PATIENCE, reading};
use crate::ops::error::{Error, Result};
use crate::ops::write::Unwritten;

/// The bits of directories that are made on the way to another.
const MODE_ABOVE: u32 = 0o755;
/// The most bytes of paths that are gathered at once.
const PATHS_BYTES: usize = 32 * 1024 * 1024;

/// Why a condition of a change cannot be kept where the backend tells no versions.
pub const UNTAGGED: &str =
    "files of this workspace have no tags, because another backend answers for it: leave the condition out";

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its size.
    pub bytes: u64,
    /// Its version, where the backend tells one.
    pub version: Option<Version>,
}

/// A file that is being read.
pub struct Opened {
    /// Its kind, size and time.
    pub info: FileInfo,
    /// Which of its bytes come.
    pub range: Range<u64>,
    /// The bytes.
    pub pieces: BoxStream<'static, io::Result<Bytes>>,
}

impl Backend {
    /// Tells what `path` is.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn stat(&self, path: &RelPath) -> Result<FileInfo> {
        let path = self.path(path).await?;
        self.ask("stat", self.sandbox().stat(self.user(), &path)).await
    }

    /// As [`Backend::stat`], of what must be a regular file.
    ///
    /// # Errors
    /// As [`Backend::stat`].
    pub async fn stat_file(&self, path: &RelPath) -> Result<FileInfo> {
        let info = self.stat(path).await?;
        let kind = match info.kind {
            FileKind::File => return Ok(info),
            FileKind::Directory => ErrorKind::IsDirectory,
            FileKind::Symlink | FileKind::Other => ErrorKind::PermissionDenied,
        };
        Err(self.failure(sandbox::Error::about(kind, "read_file", &self.path(path).await?)))
    }

    /// Opens the file `path`, or some bytes of it.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn open(&self, path: &RelPath, options: ReadOptions) -> Result<Opened> {
        let path = self.path(path).await?;
        let asked = self.sandbox().read_file(self.user(), &path, options.clone());
        let body = self.ask("read_file", asked).await?;
        let (info, range) = (body.info, body.range);
        // A part that is taken for the whole would be written back as the whole.
        match options.window(info.size, &path) {
            Ok(wanted) if range == wanted => {
                let pieces = reading::pieces(body.stream, range.end - range.start);
                Ok(Opened { info, range, pieces })
            }
            _ => Err(self.nonsense("read_file", "it has other bytes than were asked for")),
        }
    }

    /// How to write the file `path` so that `condition` holds at the moment of the change. It is looked at now, and once more by the
    /// backend then.
    ///
    /// # Errors
    /// [`storage::Error::Stale`]; [`Error::Unsupported`] where the backend tells no versions; [`Error::Remote`].
    pub async fn mode(&self, path: &RelPath, condition: &Condition) -> Result<WriteMode> {
        match condition {
            Condition::Always => return Ok(WriteMode::Replace),
            Condition::Missing => return Ok(WriteMode::Create),
            Condition::Exists | Condition::Matches(_) => {}
        }
        let info = match self.stat_file(path).await {
            Err(missing @ Error::Remote { kind: ErrorKind::NotFound, .. }) => {
                condition.check_tag(path, None)?;
                return Err(missing);
            }
            found => found?,
        };
        let version = info.version.ok_or_else(|| Error::Unsupported(UNTAGGED.to_owned()))?;
        condition.check_tag(path, Some(tag(&version)))?;
        Ok(WriteMode::Swap(version))
    }

    /// Writes the file `path` of at most `limit` bytes, which come as `pieces`.
    ///
    /// # Errors
    /// [`Unwritten::Sender`] for the first failure among `pieces`; [`storage::Error::TooLarge`];
    /// [`storage::Error::Stale`] where something is and nothing was to be, or where what is there is not what was to be swapped;
    /// [`Error::Remote`].
    pub async fn write<E: Send + 'static>(
        &self,
        path: &RelPath,
        pieces: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
        options: WriteOptions,
        limit: u64,
    ) -> Result<Written, Unwritten<E>> {
        let mode = options.mode.clone();
        let place = self.path(path).await?;
        let (body, feeding) = Feeding::new(pieces, limit.min(FILE_BYTES_MAX));
        let written = tokio::select! {
            written = self.sandbox().write_file(self.user(), &place, body, options) => written,
            () = feeding.stalled(PATIENCE) => return Err(self.silent("write_file").into()),
        };
        match (feeding.failure(), written) {
            (Some(failure), _) => Err(failure),
            (None, Ok(version)) if feeding.is_whole() => Ok(Written { bytes: feeding.bytes(), version }),
            (None, Ok(_)) => {
                Err(self.nonsense("write_file", "it wrote a file without all of its bytes").into())
            }
            (None, Err(error)) => Err(match (mode, error.kind()) {
                (WriteMode::Create, ErrorKind::AlreadyExists) => stale(path),
                (WriteMode::Swap(_), ErrorKind::Stale) => self.swapped_by_another(path).await,
                (WriteMode::Swap(_), ErrorKind::Unsupported) => Error::Unsupported(UNTAGGED.to_owned()),
                _ => self.failed("write_file", error),
            }
            .into()),
        }
    }

    /// That the file `path` is not what was to be swapped, with what is there now.
    async fn swapped_by_another(&self, path: &RelPath) -> Error {
        let (unmet, current) = match self.stat(path).await {
            Ok(info) => (Unmet::Changed, info.version.as_ref().map(tag)),
            Err(Error::Remote { kind: ErrorKind::NotFound, .. }) => (Unmet::Missing, None),
            Err(_) => (Unmet::Changed, None),
        };
        storage::Error::Stale { path: path.to_string(), unmet, current }.into()
    }

    /// Lists the directory `path`, sorted by name. Names that no path can have are left out: no caller could ask for
    /// them, and one with a `/` would lead its reader astray.
    ///
    /// # Errors
    /// [`storage::Error::TooManyEntries`] for more than any backend may list; [`Error::Remote`].
    pub async fn list_dir(&self, path: &RelPath) -> Result<Vec<DirEntry>> {
        let path = self.path(path).await?;
        let mut entries = self.ask("read_dir", self.sandbox().read_dir(self.user(), &path)).await?;
        if entries.len() > DIR_ENTRIES_MAX {
            return Err(storage::Error::TooManyEntries(DIR_ENTRIES_MAX).into());
        }
        entries.retain(|entry| RelPath::parse(&entry.name).is_ok_and(|name| name.segments().count() == 1));
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// The paths of files and links at most `depth` levels below the directory `path`, sorted. They are relative to the
    /// workspace.
    ///
    /// # Errors
    /// [`storage::Error::TooManyEntries`] when there are more than `most` entries, or their paths have more than
    /// [`PATHS_BYTES`]; [`Error::Remote`], also when it takes longer than a backend may be silent.
    pub async fn walk(&self, path: &RelPath, depth: usize, most: usize) -> Result<Vec<(RelPath, DirEntry)>> {
        match tokio::time::timeout(PATIENCE, self.walk_all(path, depth, most)).await {
            Ok(walked) => walked,
            Err(_) => Err(self.silent("read_dir")),
        }
    }

    async fn walk_all(&self, path: &RelPath, depth: usize, most: usize) -> Result<Vec<(RelPath, DirEntry)>> {
        let (mut found, mut seen, mut bytes) = (Vec::new(), 0, 0);
        let mut waiting = vec![(path.clone(), 1)];
        while let Some((directory, level)) = waiting.pop() {
            for entry in self.list_dir(&directory).await? {
                // An entry that is too deep for a path cannot be asked for.
                let Ok(below) = directory.join(&entry.name) else { continue };
                if self.path(&below).await.is_err() {
                    continue;
                }
                seen += 1;
                bytes += below.as_str().len();
                if seen > most || bytes > PATHS_BYTES {
                    return Err(storage::Error::TooManyEntries(most).into());
                }
                match entry.kind {
                    FileKind::Directory if level < depth => waiting.push((below, level + 1)),
                    FileKind::File | FileKind::Symlink => found.push((below, entry)),
                    FileKind::Directory | FileKind::Other => {}
                }
            }
        }
        found.sort_unstable_by(|one: &(RelPath, _), other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// Makes the directory `path`, with `parents` also those above it. Tells whether it was not there.
    ///
    /// A backend makes directories with those above them and says nothing about what was there, so that is looked at
    /// first: of two callers at once, both may be told that they made it.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn make_dir(&self, path: &RelPath, mode: u32, parents: bool) -> Result<bool> {
        match self.stat(path).await {
            Ok(info) if parents && info.kind == FileKind::Directory => return Ok(false),
            Ok(_) => {
                let place = self.path(path).await?;
                let taken = sandbox::Error::about(ErrorKind::AlreadyExists, "mkdir_all", &place);
                return Err(self.failure(taken));
            }
            Err(Error::Remote { kind: ErrorKind::NotFound, .. }) => {}
            Err(other) => return Err(other),
        }
        if let Some(above) = path.parent().filter(|above| !above.is_root()) {
            if parents {
                self.make_all(&above, MODE_ABOVE).await?
            } else {
                self.stat(&above).await.map(drop)?
            }
        }
        self.make_all(path, mode).await?;
        Ok(true)
    }

    /// Makes the directories above `path` that are not there.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn make_parents(&self, path: &RelPath) -> Result<()> {
        match path.parent().filter(|above| !above.is_root()) {
            Some(above) => self.make_all(&above, MODE_ABOVE).await,
            None => Ok(()),
        }
    }

    async fn make_all(&self, path: &RelPath, mode: u32) -> Result<()> {
        let path = self.path(path).await?;
        self.ask("mkdir_all", self.sandbox().mkdir_all(self.user(), &path, mode)).await
    }

    /// Removes `path`, with `recursive` an entry of any kind with all below it.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub async fn remove(&self, path: &RelPath, recursive: bool) -> Result<()> {
        let path = self.path(path).await?;
        if recursive {
            self.ask("remove_all", self.sandbox().remove_all(self.user(), &path)).await
        } else {
            self.ask("remove", self.sandbox().remove(self.user(), &path)).await
        }
    }
}

/// The tag that the service gives for a version.
pub(in crate::ops) fn tag(version: &Version) -> ETag {
    ETag::from_opaque(version.as_str())
}

/// Something is where nothing was to be.
pub(super) fn stale(path: &RelPath) -> Error {
    storage::Error::Stale { path: path.to_string(), unmet: Unmet::Exists, current: None }.into()
}

//! [`Folder`]: a folder of the person at the command line, packed as a tar while it is sent.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use tar::{Builder, EntryType, Header};
use walkdir::{DirEntry, WalkDir};

use super::client::ClientError;

/// Entries of one folder; the service takes fewer.
const ENTRIES_MAX: usize = 100_000;
/// Directories that are not sent: what version control keeps for itself.
const LEFT_OUT: [&str; 3] = [".git", ".hg", ".svn"];
/// Bytes of a header, and the multiple that data is filled up to.
const BLOCK_BYTES: u64 = 512;

/// A folder that was looked through.
pub(super) struct Folder {
    /// Its own name, which everything in it is sent below.
    pub(super) name: String,
    entries: Vec<DirEntry>,
    root: PathBuf,
    /// About the size of the tar, for a progress bar.
    pub(super) bytes: u64,
}

impl Folder {
    /// Looks through the folder at `path`; links in it are not followed.
    ///
    /// # Errors
    /// [`ClientError::File`], naming what cannot be read or sent.
    pub(super) fn look(path: &Path) -> Result<Self, ClientError> {
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |source| ClientError::File { path, source }
        };
        // `.` and `..` have the names of what they mean.
        let root = path.canonicalize().map_err(at(path))?;
        let name = root.file_name().map_or_else(|| "folder".into(), |name| name.to_string_lossy());
        let name = name.into_owned();
        let mut folder = Self { name, entries: Vec::new(), root: root.clone(), bytes: 2 * BLOCK_BYTES };
        let is_sent = |entry: &DirEntry| {
            !(entry.file_type().is_dir() && LEFT_OUT.iter().any(|name| entry.file_name() == *name))
        };
        let walk = WalkDir::new(&root).min_depth(1).sort_by_file_name().into_iter().filter_entry(is_sent);
        for entry in walk {
            let entry = entry.map_err(|error| {
                let place = error.path().unwrap_or(path).to_path_buf();
                at(&place)(error.into())
            })?;
            let metadata = entry.metadata().map_err(|error| at(entry.path())(error.into()))?;
            let kind = metadata.file_type();
            if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
                let reason = "it is a device, pipe or socket: leave it out";
                return Err(at(entry.path())(io::Error::new(io::ErrorKind::InvalidInput, reason)));
            }
            if folder.entries.len() == ENTRIES_MAX {
                let reason = format!("the folder has more than {ENTRIES_MAX} files and directories");
                return Err(at(path)(io::Error::new(io::ErrorKind::InvalidInput, reason)));
            }
            let data = if kind.is_file() { metadata.len() } else { 0 };
            folder.bytes += BLOCK_BYTES + data.next_multiple_of(BLOCK_BYTES);
            folder.entries.push(entry);
        }
        Ok(folder)
    }

    /// Packs the folder on a thread of its own; what is read from the result is the tar.
    ///
    /// # Errors
    /// [`ClientError::File`] when there is no pipe.
    pub(super) fn pack(self) -> Result<Packing, ClientError> {
        let path = self.root.display().to_string();
        let (reader, writer) = io::pipe().map_err(|source| ClientError::File { path, source })?;
        let thread = std::thread::spawn(move || self.write(writer));
        Ok(Packing { reader, thread: Some(thread), failure: None })
    }

    fn write(self, writer: PipeWriter) -> Result<(), ClientError> {
        let mut tar = Builder::new(io::BufWriter::with_capacity(64 * 1024, writer));
        for entry in &self.entries {
            self.append(&mut tar, entry)
                .map_err(|source| ClientError::File { path: entry.path().display().to_string(), source })?;
        }
        let ended = tar.into_inner().and_then(|mut writer| io::Write::flush(&mut writer));
        ended.map_err(|source| ClientError::File { path: self.root.display().to_string(), source })
    }

    fn append(&self, tar: &mut Builder<impl io::Write>, entry: &DirEntry) -> io::Result<()> {
        let below = entry.path().strip_prefix(&self.root).map_err(io::Error::other)?;
        let path = Path::new(&self.name).join(below);
        let metadata = entry.metadata()?;
        let mut header = Header::new_gnu();
        header.set_mode(metadata.permissions().mode() & 0o777);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        if metadata.is_dir() {
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            return tar.append_data(&mut header, path, io::empty());
        }
        if metadata.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            return tar.append_link(&mut header, path, std::fs::read_link(entry.path())?);
        }
        #[expect(clippy::disallowed_methods, reason = "a file of the person at the command line")]
        let file = std::fs::File::open(entry.path())?;
        // Of the open file: another may have taken its place.
        let length = file.metadata()?.len();
        header.set_size(length);
        tar.append_data(&mut header, path, Exactly { from: file, left: length })
    }
}

/// A file of which as many bytes are read as its header says.
struct Exactly<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let read = self.from.read(into.get_mut(..most).unwrap_or_default())?;
        if read == 0 && most > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was sent"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// A folder that is being packed. Its end is an error when not all of it could be.
pub(super) struct Packing {
    reader: PipeReader,
    thread: Option<JoinHandle<Result<(), ClientError>>>,
    failure: Option<ClientError>,
}

impl Packing {
    /// Why packing ended early, if it did.
    pub(super) fn failure(self) -> Option<ClientError> {
        self.failure
    }
}

impl Read for Packing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        if read > 0 || into.is_empty() {
            return Ok(read);
        }
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) if self.failure.is_none() => Ok(0),
            Some(Ok(Err(failure))) => {
                self.failure = Some(failure);
                Err(io::Error::other("the folder could not be read whole"))
            }
            _ => Err(io::Error::other("the folder could not be read whole")),
        }
    }
}

//! [`pack()`]: a directory as an archive to download, a ZIP or a tar.

mod tar;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::str::FromStr;

use flate2::Compression;
use flate2::write::GzEncoder;
use policy::RelPath;
use zip::result::ZipError;
use zip::write::FullFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::time;
use super::wire::EXTRA_TIMESTAMP;
use crate::error::{Error, Result};
use crate::interrupt;

/// Bytes copied at once, and bytes collected before they are written.
const BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of the table of contents for each entry besides its name, at most: its record and its extra fields.
const RECORD_BYTES: u64 = 128;

/// Size from which an entry gets 64-bit sizes: room for deflate making incompressible data a little larger.
const LARGE_FROM_BYTES: u64 = (u32::MAX as u64) - (u32::MAX as u64) / 1000;

/// The source of an entry of the archive.
#[derive(Debug)]
pub enum PackSource {
    /// A directory, so that empty ones are kept.
    Directory,
    /// A file, read from its position to its end.
    File(File),
    /// A file with these bytes.
    Bytes(Vec<u8>),
}

/// One file or directory to pack.
#[derive(Debug)]
pub struct PackEntry {
    /// Where it stands in the skill; the skill's own root is passed over.
    pub path: RelPath,
    /// Unix mode; only whether anyone may execute it is kept.
    pub mode: u32,
    /// Modification time, in nanoseconds since 1970-01-01T00:00:00Z; kept to the second from 1970 to 2038, to two
    /// seconds until 2107. In a ZIP, a time before 1970 is the first moment that one can have, 1980-01-01, and nothing more.
    pub modified_ns: i128,
    /// Its content.
    pub source: PackSource,
}

/// The form of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackFormat {
    /// ZIP, deflated.
    #[default]
    Zip,
    /// Plain tar, in the form of GNU tar where a name needs it.
    Tar,
    /// The same through gzip.
    TarGz,
}

impl PackFormat {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Zip, Self::Tar, Self::TarGz];

    /// What names of files of this format end in.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::Tar => "tar",
            Self::TarGz => "tar.gz",
        }
    }
}

impl FromStr for PackFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.extension() == text);
        found.ok_or_else(|| "`format` is `zip`, `tar` or `tar.gz`".to_owned())
    }
}

/// The size of a packed archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Files.
    pub files: usize,
    /// Bytes in them, unpacked.
    pub bytes: u64,
}

/// The limits of an archive.
pub struct PackLimits<'a> {
    /// Bytes in the files together, unpacked.
    pub bytes: u64,
    /// Agrees to the size that the archive has so far, its table of contents included; asked each 64 KiB that are read.
    pub admit: &'a mut dyn FnMut(u64) -> Result<()>,
}

/// Writes `entries` in their order to `into`, an empty file at position 0, below the directory `prefix` if there is one.
///
/// Names are UTF-8, modes are 0755 or 0644. In a ZIP names are marked as UTF-8, data is deflated, and entries and archives beyond
/// 4 GiB or 65 534 entries get zip64 fields. Equal entries in equal order give equal bytes. `into` is left at its end.
///
/// # Errors
/// An error of `entries`, or of `limits`; [`Error::Unpackable`]; [`Error::NoSpace`], [`Error::Io`], and
/// [`Error::AlreadyExists`] for a path given twice in a ZIP.
pub fn pack(
    format: PackFormat,
    prefix: Option<&str>,
    entries: impl IntoIterator<Item = Result<PackEntry>>,
    into: &File,
    limits: PackLimits<'_>,
) -> Result<Packed> {
    let length = Cell::new(0);
    let into = Measured { file: into, position: 0, length: &length };
    let into = BufWriter::with_capacity(BUFFER_BYTES, into);
    match format {
        PackFormat::Zip => pack_zip(prefix, entries, into, &length, limits),
        PackFormat::Tar => {
            let (packed, mut into) = tar::pack(prefix, entries, into, &length, limits)?;
            into.flush().map_err(|error| Error::from_io("write", "archive", error))?;
            Ok(packed)
        }
        PackFormat::TarGz => {
            let into = GzEncoder::new(into, Compression::fast());
            let (packed, into) = tar::pack(prefix, entries, into, &length, limits)?;
            let ended = into.finish().and_then(|mut into| into.flush());
            ended.map_err(|error| Error::from_io("write", "archive", error))?;
            Ok(packed)
        }
    }
}

/// The name of an entry in the archive.
fn name_of(prefix: Option<&str>, path: &RelPath) -> String {
    prefix.map_or_else(|| path.to_string(), |prefix| format!("{prefix}/{path}"))
}

/// Refuses an archive of which more than `limit` bytes were packed.
fn check_size(prefix: Option<&str>, bytes: u64, limit: u64) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::Unpackable { what: prefix.unwrap_or("the directory").to_owned(), bytes, limit })
}

fn pack_zip(
    prefix: Option<&str>,
    entries: impl IntoIterator<Item = Result<PackEntry>>,
    into: BufWriter<Measured<'_>>,
    length: &Cell<u64>,
    limits: PackLimits<'_>,
) -> Result<Packed> {
    let mut writer = ZipWriter::new(into);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut packed = Packed::default();
    let mut contents_bytes = 0;
    for entry in entries {
        let entry = entry?;
        if entry.path.is_root() {
            continue;
        }
        let name = name_of(prefix, &entry.path);
        contents_bytes += RECORD_BYTES + u64::try_from(name.len()).unwrap_or(u64::MAX);
        (limits.admit)(length.get() + contents_bytes)?;
        let options = options(&entry).map_err(|error| failure(error, &entry.path))?;
        match entry.source {
            PackSource::Directory => {
                writer.add_directory(name, options).map_err(|error| failure(error, &entry.path))?;
            }
            PackSource::Bytes(bytes) => {
                packed.bytes += bytes.len() as u64;
                check_size(prefix, packed.bytes, limits.bytes)?;
                writer.start_file(name, options).map_err(|error| failure(error, &entry.path))?;
                let written = writer.write_all(&bytes);
                written.map_err(|error| Error::from_io("write", &entry.path, error))?;
                packed.files += 1;
            }
            PackSource::File(mut file) => {
                let stat = rustix::fs::fstat(&file)
                    .map_err(|errno| Error::from_errno("stat", &entry.path, errno))?;
                let is_large = u64::try_from(stat.st_size).unwrap_or(0) >= LARGE_FROM_BYTES;
                writer
                    .start_file(name, options.large_file(is_large))
                    .map_err(|error| failure(error, &entry.path))?;
                loop {
                    let read = copy_piece(&mut file, &mut writer, &mut buffer, &entry.path)?;
                    if read == 0 {
                        break;
                    }
                    packed.bytes += read;
                    check_size(prefix, packed.bytes, limits.bytes)?;
                    (limits.admit)(length.get() + contents_bytes)?;
                }
                packed.files += 1;
            }
        }
    }
    let mut inner = writer.finish().map_err(|error| failure(error, &RelPath::root()))?;
    inner.flush().map_err(|error| Error::from_io("write", "archive", error))?;
    Ok(packed)
}

fn options(entry: &PackEntry) -> Result<FullFileOptions<'static, 'static>, ZipError> {
    let is_directory = matches!(entry.source, PackSource::Directory);
    let mode = if is_directory || entry.mode & 0o111 != 0 { 0o755 } else { 0o644 };
    let seconds = i64::try_from(entry.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0);
    let mut options = FullFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(mode)
        .last_modified_time(dos_time(seconds));
    // An MS-DOS time has no zone: the receiver takes ours, in UTC, for local time unless this field is there.
    if let Some(seconds) = i32::try_from(seconds).ok().filter(|seconds| *seconds >= 0) {
        let [a, b, c, d] = seconds.to_le_bytes();
        options.add_extra_field(EXTRA_TIMESTAMP, [1, a, b, c, d], false)?;
    }
    Ok(options)
}

/// The moment as an MS-DOS time in UTC; 1980-01-01 where there is none.
fn dos_time(seconds: i64) -> DateTime {
    time::to_civil(seconds)
        .and_then(|(year, [month, day, hour, minute, second])| {
            DateTime::from_date_and_time(year, month, day, hour, minute, second).ok()
        })
        .unwrap_or_default()
}

/// Copies what one read yields; 0 at the end.
fn copy_piece(from: &mut File, to: &mut impl Write, buffer: &mut [u8], path: &RelPath) -> Result<u64> {
    let read = loop {
        interrupt::check()?;
        match from.read(buffer) {
            Ok(read) => break read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::from_io("read", path, error)),
        }
    };
    let bytes = buffer.get(..read).unwrap_or_default();
    to.write_all(bytes).map_err(|error| Error::from_io("write", path, error))?;
    Ok(read as u64)
}

/// A file, and how long it has become.
struct Measured<'a> {
    file: &'a File,
    position: u64,
    length: &'a Cell<u64>,
}

impl Write for Measured<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.position += written as u64;
        self.length.set(self.length.get().max(self.position));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Measured<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

fn failure(error: ZipError, path: &RelPath) -> Error {
    match error {
        ZipError::Io(error) => Error::from_io("write", path, error),
        ZipError::InvalidArchive(reason) if reason.contains("Duplicate") => {
            Error::AlreadyExists(path.to_string())
        }
        other => Error::from_io("pack", path, io::Error::other(other)),
    }
}

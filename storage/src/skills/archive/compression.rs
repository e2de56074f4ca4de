//! Whole archives that are compressed: a `.tar.gz` or `.tar.zst` becomes the tar in it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use flate2::bufread::GzDecoder;
use policy::ArchiveLimits;
use zstd::stream::read::Decoder;

use super::source::Source;
use crate::error::{ArchiveError, Error, Result};
use crate::interrupt;

/// Bytes read and handed on at once.
const BUFFER_BYTES: usize = 128 * 1024;
/// Bytes of a tar for each entry besides its data: its header, those of a long name and the padding.
const ENTRY_BYTES: u64 = 4096;
/// Longest distance of a zstd stream's references, as a power of two: 8 MiB, what levels up to 19 use.
const WINDOW_LOG_MAX: u32 = 23;

/// How a whole archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// How `file` is compressed, by its first bytes; `None` when it is not.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn of(file: &File) -> Result<Option<Self>> {
        let mut source = Source::new(file, 4)?;
        Ok(match source.bytes(0, 4)? {
            Some([0x1F, 0x8B, 8, _]) => Some(Self::Gzip),
            // A frame, or one that holds none of the data.
            Some([0x28, 0xB5, 0x2F, 0xFD] | [0x50..=0x5F, 0x2A, 0x4D, 0x18]) => Some(Self::Zstd),
            _ => None,
        })
    }

    /// Hands what is in `file` to `sink`, which bounds nothing.
    ///
    /// `file` is read at offsets. Several gzip members or zstd frames are one stream, and only zeros may follow it.
    ///
    /// # Errors
    /// [`ArchiveError`]: `TotalTooLarge`, `Ratio`, `Corrupt`, `Truncated`, `TrailingBytes`; [`Error::Io`]; those of
    /// [`interrupt::check`]; and what `sink` answers.
    pub fn unpack(
        self,
        file: &File,
        limits: &ArchiveLimits,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let stat = rustix::fs::fstat(file).map_err(|errno| Error::from_errno("stat", "archive", errno))?;
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let room = limits.total_bytes.saturating_add(ENTRY_BYTES.saturating_mul(limits.entries as u64));
        let mut bytes = 0_u64;
        let mut counted = |piece: &[u8]| {
            interrupt::check()?;
            bytes = bytes.saturating_add(piece.len() as u64);
            if bytes > room {
                return Err(ArchiveError::TotalTooLarge { limit: limits.total_bytes }.into());
            }
            if bytes > limits.ratio_from_bytes && bytes > length.saturating_mul(limits.ratio) {
                return Err(ArchiveError::Ratio { name: "archive".to_owned(), limit: limits.ratio }.into());
            }
            sink(piece)
        };
        let input = BufReader::with_capacity(BUFFER_BYTES, Positioned { file, position: 0 });
        self.parts(input, &mut counted)
    }

    /// Unpacks member after member, or frame after frame. Zeros after the last are the padding of a program that writes
    /// tape blocks.
    fn parts(self, mut input: impl BufRead, sink: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut is_first = true;
        loop {
            interrupt::check()?;
            let rest = input.fill_buf().map_err(damaged)?;
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            match rest.get(zeros) {
                Some(first) if zeros == 0 && (is_first || self.begins_with(*first)) => {}
                Some(_) => {
                    let bytes = (rest.len() - zeros) as u64;
                    return Err(ArchiveError::TrailingBytes { bytes }.into());
                }
                None if rest.is_empty() => return Ok(()),
                None => {
                    input.consume(zeros);
                    continue;
                }
            }
            is_first = false;
            input = match self {
                Self::Gzip => {
                    let mut member = GzDecoder::new(input);
                    copy(&mut member, sink)?;
                    member.into_inner()
                }
                Self::Zstd => {
                    let mut frame = Decoder::with_buffer(input).map_err(damaged)?.single_frame();
                    frame.window_log_max(WINDOW_LOG_MAX).map_err(damaged)?;
                    copy(&mut frame, sink)?;
                    frame.finish()
                }
            };
        }
    }

    /// Tells whether a further member or frame may begin with `byte`.
    fn begins_with(self, byte: u8) -> bool {
        match self {
            Self::Gzip => byte == 0x1F,
            Self::Zstd => matches!(byte, 0x28 | 0x50..=0x5F),
        }
    }
}

fn copy(from: &mut impl Read, sink: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => sink(buffer.get(..read).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(error)),
        }
    }
}

/// What a failure to read means: the decoders tell damage by the errors of a reader.
fn damaged(error: io::Error) -> Error {
    match error.kind() {
        _ if error.raw_os_error().is_some() => Error::from_io("read", "archive", error),
        io::ErrorKind::UnexpectedEof => ArchiveError::Truncated.into(),
        _ => ArchiveError::Corrupt { name: "archive".to_owned() }.into(),
    }
}

/// A file read at a position of its own.
struct Positioned<'file> {
    file: &'file File,
    position: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

//! [`Unpacker`]: one file's data out of the archive, to the byte as declared.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::entry::Method;
use super::source::Source;
use super::tree::PackedFile;
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};

/// Bytes handed on at once.
const OUTPUT_BYTES: usize = 128 * 1024;

/// Unpacks files one after another with one inflate state and one buffer.
pub(super) struct Unpacker {
    inflate: Decompress,
    output: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new() -> Self {
        Self { inflate: Decompress::new(false), output: vec![0; OUTPUT_BYTES] }
    }

    /// Hands the unpacked bytes of `file` to `sink`, never more than the declared size.
    ///
    /// `name` is for messages. What reached `sink` before an error is worthless.
    ///
    /// # Errors
    /// [`ArchiveError`]: `Corrupt`, `WrongSize`, `Checksum`, `Changed`; and what `sink` answers.
    pub(super) fn unpack(
        &mut self,
        source: &mut Source<'_>,
        file: &PackedFile,
        name: &str,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut crc = Crc::new();
        let mut checked = |bytes: &[u8]| {
            crc.update(bytes);
            sink(bytes)
        };
        match file.method {
            Method::Store => copy(source, file, &mut checked)?,
            // Some programs write an empty file without the two bytes of an empty stream.
            Method::Deflate if file.packed == 0 && file.size == 0 => {}
            Method::Deflate => self.inflate(source, file, name, &mut checked)?,
        }
        if file.crc.is_none_or(|declared| crc.sum() == declared) {
            Ok(())
        } else {
            Err(ArchiveError::Checksum { name: excerpt(name.as_bytes()) }.into())
        }
    }

    fn inflate(
        &mut self,
        source: &mut Source<'_>,
        file: &PackedFile,
        name: &str,
        sink: &mut impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let corrupt = || ArchiveError::Corrupt { name: excerpt(name.as_bytes()) };
        let wrong_size = || ArchiveError::WrongSize { name: excerpt(name.as_bytes()), declared: file.size };
        self.inflate.reset(false);
        let mut filled = 0;
        loop {
            let consumed = self.inflate.total_in();
            let left = file.packed.checked_sub(consumed).ok_or_else(corrupt)?;
            let input = source.chunk(file.data_at + consumed, left)?;
            if input.is_empty() && left > 0 {
                return Err(ArchiveError::Changed.into());
            }
            let produced = self.inflate.total_out();
            let room = self.output.get_mut(filled..).unwrap_or_default();
            let status =
                self.inflate.decompress(input, room, FlushDecompress::None).map_err(|_| corrupt())?;
            let new = self.inflate.total_out() - produced;
            if self.inflate.total_out() > file.size {
                return Err(wrong_size().into());
            }
            if new == 0 && self.inflate.total_in() == consumed && status != Status::StreamEnd {
                // No progress although there is room: the stream wants bytes that the entry does not have.
                return Err(corrupt().into());
            }
            filled += usize::try_from(new).unwrap_or(0);
            let is_last = status == Status::StreamEnd;
            if is_last || filled == self.output.len() {
                sink(self.output.get(..filled).unwrap_or_default())?;
                filled = 0;
            }
            if is_last {
                break;
            }
        }
        if self.inflate.total_out() != file.size {
            return Err(wrong_size().into());
        }
        // Bytes after the end of the stream would be seen by no reader, or by another one.
        if self.inflate.total_in() == file.packed { Ok(()) } else { Err(corrupt().into()) }
    }
}

/// Hands stored data on as it is read; its packed and unpacked sizes were compared when it was planned.
fn copy(
    source: &mut Source<'_>,
    file: &PackedFile,
    sink: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut done = 0;
    while done < file.packed {
        let chunk = source.chunk(file.data_at + done, file.packed - done)?;
        if chunk.is_empty() {
            return Err(ArchiveError::Changed.into());
        }
        done += chunk.len() as u64;
        sink(chunk)?;
    }
    Ok(())
}

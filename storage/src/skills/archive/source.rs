//! [`Source`]: positioned reads of the uploaded file through one bounded window.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

/// Largest single request: a header with a name and extra fields of 65 535 bytes each, and a comment.
const REQUEST_BYTES_MAX: usize = 3 * 65_535 + 46;

/// The archive as bytes at offsets.
///
/// Neither the file's position is used nor moved, so that one open file serves several readers. Memory is one window,
/// for every size that the archive declares.
#[derive(Debug)]
pub(super) struct Source<'file> {
    file: &'file File,
    length: u64,
    window: Vec<u8>,
    window_start: u64,
    window_bytes: usize,
}

impl<'file> Source<'file> {
    /// Reads `file` in windows of `window_bytes`; its length is taken once, now.
    pub(super) fn new(file: &'file File, window_bytes: usize) -> Result<Self> {
        let stat = rustix::fs::fstat(file).map_err(|errno| Error::from_errno("stat", "archive", errno))?;
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { file, length, window: Vec::new(), window_start: 0, window_bytes })
    }

    /// The file's length, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The `length` bytes at `offset`; `None` when the file does not have them all.
    pub(super) fn bytes(&mut self, offset: u64, length: usize) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(length as u64) else { return Ok(None) };
        if end > self.length || length > REQUEST_BYTES_MAX.max(self.window_bytes) {
            return Ok(None);
        }
        if offset < self.window_start || end > self.window_start + self.window.len() as u64 {
            self.fill(offset, length.max(self.window_bytes))?;
        }
        Ok(self.within(offset).and_then(|rest| rest.get(..length)))
    }

    /// At most `most` bytes at `offset`, one window at a time; empty only at the end of the file.
    ///
    /// No more than `most` is read ahead: files are unpacked in the order of their paths, which need not be the
    /// order of their data.
    pub(super) fn chunk(&mut self, offset: u64, most: u64) -> Result<&[u8]> {
        let most = usize::try_from(most).map_or(self.window_bytes, |most| most.min(self.window_bytes));
        if self.within(offset).is_none_or(<[u8]>::is_empty) {
            self.fill(offset, most)?;
        }
        let chunk = self.within(offset).unwrap_or_default();
        Ok(chunk.get(..most).unwrap_or(chunk))
    }

    /// The bytes of the window from `offset` on.
    fn within(&self, offset: u64) -> Option<&[u8]> {
        let skip = usize::try_from(offset.checked_sub(self.window_start)?).ok()?;
        self.window.get(skip..)
    }

    /// Makes the window the `wanted` bytes at `offset`, or what the file has of them.
    fn fill(&mut self, offset: u64, wanted: usize) -> Result<()> {
        self.window.resize(wanted, 0);
        self.window_start = offset;
        let mut filled = 0;
        while let Some(rest) = self.window.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.window.clear();
                    return Err(Error::from_io("read", "archive", error));
                }
            }
        }
        self.window.truncate(filled);
        Ok(())
    }
}

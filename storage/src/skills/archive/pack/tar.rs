//! [`pack()`]: a directory as a tar.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Write};

use tar::{Builder, EntryType, Header};

use super::{PackEntry, PackLimits, PackSource, Packed, check_size, name_of};
use crate::error::{Error, Result};
use crate::interrupt;

/// Bytes of the headers of an entry besides its name, and of its last block, at most.
const RECORD_BYTES: u64 = 4 * 512;

/// Writes `entries` as a tar to `into`, whose file has `length` bytes so far, and gives `into` back.
pub(super) fn pack<W: Write>(
    prefix: Option<&str>,
    entries: impl IntoIterator<Item = Result<PackEntry>>,
    into: W,
    length: &Cell<u64>,
    limits: PackLimits<'_>,
) -> Result<(Packed, W)> {
    let mut builder = Builder::new(into);
    let mut packed = Packed::default();
    let limits = RefCell::new(limits);
    for entry in entries {
        let PackEntry { path, mode, modified_ns, source } = entry?;
        if path.is_root() {
            continue;
        }
        let name = name_of(prefix, &path);
        let name_bytes = u64::try_from(name.len()).unwrap_or(u64::MAX);
        (limits.borrow_mut().admit)(length.get().saturating_add(RECORD_BYTES + name_bytes))?;
        let mut header = Header::new_gnu();
        header.set_mtime(u64::try_from(modified_ns.div_euclid(1_000_000_000)).unwrap_or(0));
        let file = match source {
            PackSource::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                let added = builder.append_data(&mut header, format!("{name}/"), io::empty());
                added.map_err(|error| Error::from_io("write", &path, error))?;
                continue;
            }
            PackSource::Bytes(bytes) => {
                let size = bytes.len() as u64;
                check_size(prefix, packed.bytes.saturating_add(size), limits.borrow().bytes)?;
                header.set_entry_type(EntryType::Regular);
                header.set_mode(0o644);
                header.set_size(size);
                let added = builder.append_data(&mut header, name, bytes.as_slice());
                added.map_err(|error| Error::from_io("write", &path, error))?;
                packed.files += 1;
                packed.bytes += size;
                continue;
            }
            PackSource::File(file) => file,
        };
        let stat = rustix::fs::fstat(&file).map_err(|errno| Error::from_errno("stat", &path, errno))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        check_size(prefix, packed.bytes.saturating_add(size), limits.borrow().bytes)?;
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if mode & 0o111 != 0 { 0o755 } else { 0o644 });
        header.set_size(size);
        let refused = Cell::new(None);
        let admit = || (limits.borrow_mut().admit)(length.get().saturating_add(RECORD_BYTES));
        let content = Content { file, left: size, admit, refused: &refused };
        if let Err(error) = builder.append_data(&mut header, name, content) {
            return Err(refused.take().unwrap_or_else(|| Error::from_io("pack", &path, error)));
        }
        packed.files += 1;
        packed.bytes += size;
    }
    let into = builder.into_inner().map_err(|error| Error::from_io("write", "archive", error))?;
    Ok((packed, into))
}

/// The bytes of a file, exactly as many as its header has said: a command may write to it meanwhile.
struct Content<'a, A> {
    file: File,
    left: u64,
    /// Asked before each piece.
    admit: A,
    /// Why no more is read.
    refused: &'a Cell<Option<Error>>,
}

impl<A: FnMut() -> Result<()>> Read for Content<'_, A> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        if let Err(error) = interrupt::check().and_then(|()| (self.admit)()) {
            self.refused.set(Some(error));
            return Err(io::ErrorKind::Other.into());
        }
        let read = match self.file.read(buffer)? {
            // What the file has lost.
            0 => {
                buffer.fill(0);
                buffer.len()
            }
            read => read,
        };
        self.left -= u64::try_from(read).unwrap_or(self.left);
        Ok(read)
    }
}

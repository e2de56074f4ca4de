//! [`copy_hashed`]: copying contents that are compared with a digest.

use std::fs::File;
use std::io::{Read, Write};

use crate::error::{Error, Result};
use crate::interrupt;

const BUFFER_BYTES: usize = 256 * 1024;

/// Copies the first `size` bytes of `from` into the empty file `to`, sharing blocks where the file system can
/// (ioctl_ficlone(2)), and tells the BLAKE3 of what is in `to` then.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
pub(crate) fn copy_hashed(from: &File, to: &File, size: u64) -> Result<blake3::Hash> {
    let failed = |error| Error::from_io("copy", "file", error);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES)];
    let is_shared = size > 0 && rustix::fs::ioctl_ficlone(to, from).is_ok();
    if is_shared && to.metadata().map_err(failed)?.len() > size {
        // All blocks are shared, also those of a file that has grown by now to more than can ever be read.
        to.set_len(size).map_err(failed)?;
    }
    let (mut source, mut target) = (if is_shared { to } else { from }, to);
    let mut left = size;
    loop {
        interrupt::check()?;
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let piece = buffer.get_mut(..most).unwrap_or_default();
        let read = match source.read(piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.map_err(failed)?,
        };
        let read_bytes = piece.get(..read).unwrap_or_default();
        if read_bytes.is_empty() {
            return Ok(hasher.finalize());
        }
        hasher.update(read_bytes);
        if !is_shared {
            target.write_all(read_bytes).map_err(failed)?;
        }
        left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    #[test]
    fn a_file_that_grows_while_it_is_copied_is_copied_as_large_as_it_was() {
        let (mut from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.write_all(b"first and more").unwrap();
        // Far more than can be read: where blocks are shared all of them come along.
        from.set_len(1 << 42).unwrap();
        from.rewind().unwrap();
        let digest = copy_hashed(&from, &to, 5).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 5);
        assert_eq!(digest, blake3::hash(b"first"));
    }
}

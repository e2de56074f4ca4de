//! [`pieces`]: a part of an open file on its way, none of it held whole in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use storage::cached::read_now;

use super::admission::reads::Reads;

/// Bytes of one piece.
const PIECE_BYTES: u64 = 512 * 1024;

/// A part of an open file.
struct Part {
    file: Arc<File>,
    offset: u64,
    left: u64,
    reads: Reads,
}

/// The `left` bytes of `file` from `offset`, read in the places of `reads`. No thread waits while the receiver is slow.
///
/// A file that shrinks meanwhile ends the stream early with an error, so that no reader takes it for whole.
pub fn pieces(
    file: File,
    offset: u64,
    left: u64,
    reads: Reads,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let part = Part { file: Arc::new(file), offset, left, reads };
    stream::try_unfold(part, |mut part| async move {
        if part.left == 0 {
            return Ok(None);
        }
        let (file, offset, bytes) = (Arc::clone(&part.file), part.offset, part.left.min(PIECE_BYTES));
        let piece = match read_now(&file, offset, bytes) {
            Some(piece) => piece.into(),
            None => part.reads.read(move || read_piece(&file, offset, bytes)).await?,
        };
        let read = u64::try_from(piece.len()).unwrap_or(0);
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        part.offset += read;
        part.left -= read;
        Ok(Some((piece, part)))
    })
}

/// Reads up to `bytes` at `offset`.
fn read_piece(file: &File, offset: u64, bytes: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; usize::try_from(bytes).unwrap_or(0)];
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = offset + u64::try_from(filled).unwrap_or(0);
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(piece.into())
}

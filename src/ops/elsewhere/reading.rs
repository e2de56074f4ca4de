//! A backend's stream on its way to a caller: each piece in time, and as many bytes as were told.

use std::io;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::ByteStream;

use super::PATIENCE;

/// The `expected` bytes of a file. One that breaks off, or that has other bytes than were told, ends with an error, so that
/// nobody takes it for whole.
pub(super) fn pieces(from: ByteStream, expected: u64) -> BoxStream<'static, io::Result<Bytes>> {
    let pieces = stream::try_unfold((from, expected), |(mut from, left)| async move {
        let next = tokio::time::timeout(PATIENCE, from.try_next()).await;
        let next = next.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        match next.map_err(io::Error::other)? {
            Some(piece) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Ok(Some((piece, (from, left)))),
                None => Err(io::Error::from(io::ErrorKind::InvalidData)),
            },
            None if left == 0 => Ok(None),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    });
    pieces.boxed()
}

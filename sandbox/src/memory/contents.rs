//! [`Contents`]: the bytes of a file in the pieces in which they came.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{ByteStream, Error, ErrorKind, FILE_BYTES_MAX, Result, SandboxPath};

/// Smaller pieces are put together, so that a file of single bytes costs little more than its bytes.
const PIECE_BYTES_MIN: usize = 64 * 1024;

/// Bytes that are shared and never changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pieces: Vec<Bytes>,
    len: u64,
}

impl From<Bytes> for Contents {
    fn from(bytes: Bytes) -> Self {
        Self { len: bytes.len() as u64, pieces: vec![bytes] }
    }
}

impl Contents {
    /// Takes all that comes; what is too large, or fails, is given up.
    pub(super) async fn collect(mut body: ByteStream, path: &SandboxPath) -> Result<Self> {
        let (mut contents, mut small) = (Self::default(), BytesMut::new());
        while let Some(piece) = body.try_next().await? {
            contents.len += piece.len() as u64;
            if contents.len > FILE_BYTES_MAX {
                return Err(Error::about(ErrorKind::TooLarge, "write_file", path));
            }
            if piece.len() < PIECE_BYTES_MIN {
                small.extend_from_slice(&piece);
            }
            if small.len() >= PIECE_BYTES_MIN || (piece.len() >= PIECE_BYTES_MIN && !small.is_empty()) {
                contents.pieces.push(small.split().freeze());
            }
            if piece.len() >= PIECE_BYTES_MIN {
                contents.pieces.push(piece);
            }
        }
        contents.pieces.push(small.freeze());
        Ok(contents)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// All bytes in one piece.
    pub(super) fn bytes(&self) -> Bytes {
        match self.pieces.as_slice() {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        }
    }

    /// The bytes of `range`, which is inside.
    pub(super) fn stream(self, range: Range<u64>) -> ByteStream {
        let mut begin = 0;
        let pieces = self.pieces.into_iter().filter_map(move |piece| {
            let (from, until) = (begin, begin + piece.len() as u64);
            begin = until;
            let (first, last) = (range.start.max(from), range.end.min(until));
            // Both are inside the piece, whose length is a usize.
            (first < last).then(|| piece.slice((first - from) as usize..(last - from) as usize))
        });
        stream::iter(pieces.map(Ok)).boxed()
    }
}

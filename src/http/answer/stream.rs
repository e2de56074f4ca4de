//! Sending files: small ones at once, large ones piece by piece, none held whole in memory.

use std::fs::File;

use axum::body::Body;
use futures_util::StreamExt;
use storage::Flight;
use storage::cached::{CACHED_READ_BYTES_MAX, read_now};

use crate::ops::admission::reads::Reads;
use crate::ops::pieces::pieces;
use crate::ops::tree::Content;

/// Sends the `bytes` bytes of a spool, which count as `flight` until they are sent.
pub(in crate::http) fn counted_body(file: File, bytes: u64, flight: Flight, reads: Reads) -> Body {
    Body::from_stream(pieces(file, 0, bytes, reads).inspect(move |_| {
        let _ = &flight;
    }))
}

/// Sends the bytes of an opened file from `offset` on, `left` of them. Pieces are those bytes alone.
pub(in crate::http) fn content(content: Content, offset: u64, left: u64) -> Body {
    match content {
        Content::File(file, reads) => body(file, offset, left, reads),
        Content::Pieces(pieces) => Body::from_stream(pieces),
    }
}

/// Sends `left` bytes of `file` from `offset`; see [`pieces`].
pub(in crate::http) fn body(file: File, offset: u64, left: u64, reads: Reads) -> Body {
    if left <= CACHED_READ_BYTES_MAX
        && let Some(whole) = read_now(&file, offset, left)
    {
        return Body::from(whole);
    }
    Body::from_stream(pieces(file, offset, left, reads))
}

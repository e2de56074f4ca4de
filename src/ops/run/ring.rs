//! A file used as a ring, and the form in which events lie in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use storage::cached::read_now;

use super::event::{Event, Kind};
use crate::ops::admission::reads::Reads;
use crate::ops::{Error, Result};

/// The bytes of an event besides its payload: number, kind, length.
pub(super) const HEAD_BYTES: usize = 13;

impl Event {
    /// An event as it lies in the file: number, kind, length, payload.
    pub(super) fn encode(seq: u64, kind: Kind, payload: &[u8]) -> Vec<u8> {
        let mut record = Vec::with_capacity(HEAD_BYTES + payload.len());
        record.extend(seq.to_le_bytes());
        record.push(kind.byte());
        record.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        record.extend_from_slice(payload);
        record
    }

    /// Reads the first event of `bytes`; `None` when it is not whole. What follows it comes back.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (seq, rest) = bytes.split_first_chunk::<8>()?;
        let (kind, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (payload, rest) = rest.split_at_checked(length)?;
        let event =
            Self { seq: u64::from_le_bytes(*seq), kind: Kind::of_byte(*kind), payload: payload.into() };
        Some((event, rest))
    }
}

/// The pieces of a stretch of `length` bytes at `at`: where each lies in the file, and how long it is.
fn pieces(capacity: u64, at: u64, length: u64) -> [(u64, u64); 2] {
    let begin = at % capacity;
    let before_the_end = length.min(capacity - begin);
    [(begin, before_the_end), (0, length - before_the_end)]
}

/// Writes `bytes` at `at`, which counts on past the end of the ring.
///
/// # Errors
/// As `pwrite(2)`.
pub(super) fn write_ring(file: &File, capacity: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    for (offset, length) in pieces(capacity, at, bytes.len() as u64) {
        let (piece, after) = rest.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(rest.len()));
        file.write_all_at(piece, offset)?;
        rest = after;
    }
    Ok(())
}

/// Reads `length` bytes at `at`, from memory where the kernel has them there and else in the permits of `reads`.
///
/// # Errors
/// [`Error::Log`].
pub(super) async fn read_ring(
    reads: &Reads,
    file: Arc<File>,
    capacity: u64,
    at: u64,
    length: u64,
) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    for (offset, length) in pieces(capacity, at, length) {
        let piece = match read_now(&file, offset, length) {
            Some(piece) => piece,
            None => {
                let file = Arc::clone(&file);
                let read = reads.read(move || {
                    let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
                    file.read_exact_at(&mut piece, offset)?;
                    Ok(piece)
                });
                read.await.map_err(Error::Log)?
            }
        };
        if whole.is_empty() {
            whole = piece;
        } else {
            whole.extend(piece);
        }
    }
    Ok(whole)
}

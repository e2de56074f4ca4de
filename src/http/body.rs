//! Receiving bodies: bounded, and never a whole upload in memory.

use axum::body::{Body, Bytes};
use axum::http::header;
use futures_util::StreamExt;
use storage::Store;
use storage::stage::StagedFile;

use super::facts;
use super::problem::{Code, Problem};
use crate::ops::{self, blocking};

/// Bytes collected before they are written at once.
const WRITE_BYTES: usize = 512 * 1024;
/// A body up to this size is received whole and written in one go.
pub(super) const SMALL_BYTES: u64 = 512 * 1024;

/// Receives a body of at most `limit` bytes into memory.
pub(super) async fn collect(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut stream = body.into_data_stream();
    let Some(first) = stream.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| broken())?;
    let mut whole: Option<Vec<u8>> = None;
    check_size(first.len(), limit)?;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| broken())?;
        let whole = whole.get_or_insert_with(|| first.to_vec());
        check_size(whole.len() + chunk.len(), limit)?;
        whole.extend_from_slice(&chunk);
    }
    // Most bodies come in one piece, which is passed on uncopied.
    Ok(whole.map_or(first, Bytes::from))
}

fn check_size(bytes: usize, limit: usize) -> Result<(), Problem> {
    if bytes > limit {
        Err(Problem::too_large("the body", u64::try_from(limit).unwrap_or(u64::MAX)))
    } else {
        Ok(())
    }
}

/// The sender stopped in the middle, or was too slow.
pub(super) fn broken() -> Problem {
    if facts::is_slow() {
        let message = "the body came too slowly: send it faster, or in smaller parts";
        return Problem::new(Code::TooSlow, message).with_header(header::CONNECTION, "close");
    }
    Problem::invalid("the body ended before it was complete")
}

/// Receives a body that is text.
pub(super) async fn collect_text(body: Body, limit: u64) -> Result<String, Problem> {
    let bytes = collect(body, usize::try_from(limit).unwrap_or(usize::MAX)).await?;
    String::from_utf8(bytes.into())
        .map_err(|_| Problem::invalid("the body is not UTF-8: send bytes with `PUT raw`"))
}

/// Receives a body of at most `limit` bytes into a staged file, half a mebibyte at a time.
pub(super) async fn receive(
    body: Body,
    mut file: StagedFile,
    limit: u64,
    store: &Store,
) -> Result<StagedFile, Problem> {
    let mut stream = body.into_data_stream();
    let mut received = 0_u64;
    let mut pending: Vec<Bytes> = Vec::new();
    let mut pending_bytes = 0;
    loop {
        let chunk = stream.next().await.transpose().map_err(|_| broken())?;
        let is_last = chunk.is_none();
        if let Some(chunk) = chunk {
            received += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if received > limit {
                return Err(Problem::too_large("the file", limit));
            }
            pending_bytes += chunk.len();
            pending.push(chunk);
        }
        if pending_bytes >= WRITE_BYTES || (is_last && pending_bytes > 0) {
            let chunks = std::mem::take(&mut pending);
            pending_bytes = 0;
            let store = store.clone();
            file = blocking(move || {
                store.admit_space()?;
                for chunk in chunks {
                    file.write(&chunk).map_err(ops::Error::from)?;
                }
                Ok(file)
            })
            .await?;
        }
        if is_last {
            return Ok(file);
        }
    }
}

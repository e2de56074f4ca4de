//! Bodies that are written to a spool before they are read: archives.

use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use policy::UserId;
use storage::Spool;

use crate::http::App;
use crate::http::answer::problem::Problem;

/// Bytes collected before they are written at once.
const WRITE_BYTES: usize = 512 * 1024;

/// Refuses a body that says that it has more than `limit` bytes.
pub(in crate::http) fn check_announced(headers: &HeaderMap, limit: u64) -> Result<(), Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match announced.and_then(|value| value.parse::<u64>().ok()) {
        Some(bytes) if bytes > limit => Err(Problem::too_large("the upload", limit)),
        _ => Ok(()),
    }
}

/// Writes a stream to a spool of `user`, counting down the bytes `left`.
pub(in crate::http) async fn spool(
    app: &App,
    user: &UserId,
    stream: impl futures_util::Stream<Item = Result<bytes::Bytes, Problem>>,
    left: &mut u64,
) -> Result<Spool, Problem> {
    let limit = app.service.archive_limits().upload_bytes;
    let mut spool = app.service.spool(user).await?;
    let mut stream = std::pin::pin!(stream);
    let mut pending = Vec::new();
    loop {
        let chunk = stream.next().await.transpose()?;
        let is_last = chunk.is_none();
        if let Some(chunk) = chunk {
            let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            *left = left.checked_sub(bytes).ok_or_else(|| Problem::too_large("the upload", limit))?;
            pending.extend_from_slice(&chunk);
        }
        if pending.len() >= WRITE_BYTES || (is_last && !pending.is_empty()) {
            let bytes = std::mem::take(&mut pending);
            let written = app.service.light(user, move || {
                spool.write(&bytes)?;
                Ok(spool)
            });
            spool = written.await?;
        }
        if is_last {
            return Ok(spool);
        }
    }
}

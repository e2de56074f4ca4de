//! Receiving bodies into memory, bounded. Larger ones go to `ops` piece by piece.

use axum::body::{Body, Bytes};
use axum::http::header;
use futures_util::StreamExt;
use http_body::Body as _;

use crate::http::answer::problem::{Code, Problem};
use crate::http::{App, request_log};

/// Bodies of up to so many bytes are received without a look at the budget: as many as there are connections take little.
const SMALL_BYTES: usize = 64 * 1024;

/// Receives a body of at most `limit` bytes into memory.
///
/// A large one waits until there is room for it among all bodies that are held, and among those of its user. It holds the
/// room until its request is answered.
pub(in crate::http) async fn collect(app: &App, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let announced = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if let Some(bytes) = announced {
        check_size(bytes, limit)?;
    }
    // A body that does not say how large it is may become as large as one may be.
    let most = announced.unwrap_or(limit);
    if most > SMALL_BYTES {
        request_log::hold(app.service.admission().hold_bytes(request_log::user_of().as_ref(), most).await?);
    }
    let mut stream = body.into_data_stream();
    let Some(first) = stream.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| broken())?;
    let mut whole: Option<Vec<u8>> = None;
    check_size(first.len(), limit)?;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| broken())?;
        let whole = whole.get_or_insert_with(|| {
            let mut whole = Vec::with_capacity(announced.unwrap_or_default());
            whole.extend_from_slice(&first);
            whole
        });
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
pub(in crate::http) fn broken() -> Problem {
    if request_log::is_slow() {
        let message = "the body came too slowly: send it faster, or in smaller parts";
        return Problem::new(Code::TooSlow, message).with_header(header::CONNECTION, "close");
    }
    Problem::invalid("the body ended before it was complete")
}

/// Receives a body that is text.
pub(in crate::http) async fn collect_text(app: &App, body: Body, limit: u64) -> Result<String, Problem> {
    let bytes = collect(app, body, usize::try_from(limit).unwrap_or(usize::MAX)).await?;
    String::from_utf8(bytes.into())
        .map_err(|_| Problem::invalid("the body is not UTF-8: send bytes with `PUT raw`"))
}

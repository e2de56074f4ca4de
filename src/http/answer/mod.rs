//! Answers: the envelope of success, and the headers of a file.

pub(super) mod disposition;
pub(super) mod page;
pub(super) mod problem;
pub(super) mod status;
pub(super) mod stream;
pub(super) mod streamed;
pub(super) mod time;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use storage::ETag;

use crate::http::answer::problem::Problem;
use crate::http::request_log;
use crate::ops::admission::{Admission, Job, Weight};

pub(in crate::http) type Answer<T = Response> = Result<T, Problem>;

/// Size from which an answer is written with a permit of its caller, in bytes: the runtime's threads belong to all requests,
/// and four lists of 90 000 entries at once kept `/healthz` waiting for 0.9 s.
const LARGE_BYTES: usize = 256 * 1024;

/// `{"status":"success","data":…}` with the fields that stand beside `data`.
#[derive(Serialize)]
struct Envelope<'a, T, B> {
    status: &'a str,
    data: T,
    #[serde(flatten)]
    beside: B,
}

/// Nothing beside `data`.
#[derive(Serialize)]
pub(in crate::http) struct Nothing {}

/// Answers with `data` alone.
pub(in crate::http) fn success(data: impl Serialize) -> Answer {
    success_with(data, Nothing {})
}

/// Answers with `data` and the fields of `beside`, a struct, beside it.
pub(in crate::http) fn success_with(data: impl Serialize, beside: impl Serialize) -> Answer {
    let body = serde_json::to_vec(&Envelope { status: "success", data, beside })
        .map_err(|error| Problem::invalid(format!("the answer cannot be written as JSON: {error}")))?;
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], body).into_response())
}

/// Makes an answer of about `bytes` bytes: a large one off the runtime, with one of the few permits that the caller has for
/// work on whole trees and texts. Only for requests that change nothing, because it may refuse what has been worked out.
///
/// # Errors
/// The error of `make`; `busy` when the caller has too many of them.
pub(in crate::http) async fn made(
    admission: &Admission,
    bytes: usize,
    make: impl FnOnce() -> Answer + Send + 'static,
) -> Answer {
    if bytes < LARGE_BYTES {
        return make();
    }
    let job = Job::about(request_log::user_of().as_ref(), Weight::Scan);
    admission.work(job, move || Ok(make())).await?
}

/// Adds the tag of a file.
pub(in crate::http) fn tagged(mut response: Response, etag: &ETag) -> Response {
    if let Ok(value) = HeaderValue::try_from(etag.to_string()) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

/// Adds the tag of a file, where there is one.
pub(in crate::http) fn tagged_if(response: Response, etag: Option<&ETag>) -> Response {
    match etag {
        Some(etag) => tagged(response, etag),
        None => response,
    }
}

/// A status without a body.
pub(in crate::http) fn bare(status: StatusCode) -> Response {
    (status, Body::empty()).into_response()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use policy::WorkLimits;

    use super::*;

    #[tokio::test]
    async fn a_large_answer_is_written_off_the_runtime_and_a_small_one_where_the_request_is() {
        let admission = Admission::new(&WorkLimits::default());
        let here = thread::current().id();
        for (bytes, is_here) in [(0, true), (LARGE_BYTES - 1, true), (LARGE_BYTES, false)] {
            let make = move || {
                assert_eq!(thread::current().id() == here, is_here, "{bytes} bytes");
                success("x".repeat(bytes))
            };
            let response = made(&admission, bytes, make).await.ok().unwrap();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert_eq!(body.len(), r#"{"status":"success","data":""}"#.len() + bytes);
        }
    }
}

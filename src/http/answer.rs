//! Answers: the envelope of success, and the headers of a file.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use storage::ETag;

use super::problem::Problem;

pub(super) type Answer<T = Response> = Result<T, Problem>;

/// `{"status":"success","data":…}` with whatever stands beside `data`.
#[derive(Serialize)]
struct Envelope<'a, T, B> {
    status: &'a str,
    data: T,
    #[serde(flatten)]
    beside: B,
}

/// Nothing beside `data`.
#[derive(Serialize)]
pub(super) struct Nothing {}

/// Answers with `data` alone.
pub(super) fn success(data: impl Serialize) -> Answer {
    success_with(data, Nothing {})
}

/// Answers with `data` and the fields of `beside`, a struct, beside it.
pub(super) fn success_with(data: impl Serialize, beside: impl Serialize) -> Answer {
    let body = serde_json::to_vec(&Envelope { status: "success", data, beside })
        .map_err(|error| Problem::invalid(format!("the answer cannot be written as JSON: {error}")))?;
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], body).into_response())
}

/// Adds the tag of a file.
pub(super) fn tagged(mut response: Response, etag: &ETag) -> Response {
    if let Ok(value) = HeaderValue::try_from(etag.to_string()) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

/// A status without a body.
pub(super) fn bare(status: StatusCode) -> Response {
    (status, Body::empty()).into_response()
}

//! The rules for the head of every request: no header twice that means one thing, and a body that comes as it is.
//!
//! A head that two readers understand differently lets a request past the reader in front (RFC 9112, section 11.2), so
//! that the service refuses it instead of choosing. hyper has refused what is no HTTP before.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use http_body::Body as _;

use crate::http::answer::problem::{Code, Problem};

/// Headers that mean one thing. Lists may come in several lines (RFC 9110, section 5.3); `Host` is for
/// [`Host`](crate::http::middleware::host::Host).
const SINGLE: [HeaderName; 9] = [
    header::AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::ORIGIN,
    header::RANGE,
    header::IF_RANGE,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-websocket-key"),
];

/// Checks the head of a request.
///
/// # Errors
/// `invalid` for a header that says two things and for a part of a file in place of the file; `unsupported` and
/// `unsupported_media` for a body in a coding.
pub(in crate::http) fn check(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    // Nothing comes twice in most requests, which costs a comparison.
    if headers.len() > headers.keys_len() {
        for name in &SINGLE {
            if headers.get_all(name).iter().nth(1).is_some() {
                return Err(Problem::invalid(format!(
                    "the request has `{name}` several times: send it once"
                )));
            }
        }
    }
    if headers.contains_key(header::TRANSFER_ENCODING)
        && !is_only(headers, &header::TRANSFER_ENCODING, "chunked")
    {
        let message = "no `Transfer-Encoding` but `chunked` is understood: send the body as it is";
        return Err(Problem::new(Code::Unsupported, message).with_header(header::CONNECTION, "close"));
    }
    if headers.contains_key(header::CONTENT_ENCODING)
        && !request.body().is_end_stream()
        && !is_only(headers, &header::CONTENT_ENCODING, "identity")
    {
        let message = "a body in a `Content-Encoding` is not decoded: send it as it is";
        return Err(Problem::new(Code::UnsupportedMedia, message));
    }
    // To take a part for the whole would lose the rest (RFC 9110, section 14.5).
    if headers.contains_key(header::CONTENT_RANGE) {
        let message = "a part of a file cannot be sent with `Content-Range`: send all of it, or use `edit`";
        return Err(Problem::invalid(message));
    }
    Ok(())
}

/// Whether the header comes once and says `word`.
fn is_only(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    let is_word =
        |value: &axum::http::HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(word.as_bytes());
    values.next().is_some_and(is_word) && values.next().is_none()
}

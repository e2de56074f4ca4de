//! The promise of the interface: `GET /openapi.json` (OpenAPI 3.1.1), and `GET /docs`, the same as a page.
//!
//! Operations are described in `operations/*.yaml`, what they share in `components.yaml`, codes in `codes.yaml`; all of it
//! is in the program and put together at the first request. Tests hold it against the router, against
//! `docs/API.md`, against every answer of the tests in `tests/rest`, and against what a client makes up.
//!
//! | File | Holds |
//! | --- | --- |
//! | `document` | the document as a whole |
//! | `source` | reading the files of this folder |
//! | `components` | what operations refer to |
//! | `failure` | the schema and the answer of each code |
//! | `dialect` | answers of the devbox dialect |
//! | `operation` | one operation as it is written, and as OpenAPI has it |
//! | `passed_on` | answers of an operation that passes requests on to a server in a sandbox |
//! | `shorthand` | how schemas are written |
//! | `compressed` | a document in gzip, too |
//! | `page`, `notation` | the page, and schemas on it |

mod components;
mod compressed;
mod dialect;
mod document;
mod failure;
mod notation;
mod operation;
mod page;
mod passed_on;
mod shorthand;
mod source;

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;

use self::compressed::Compressed;
pub use self::document::build;
pub use self::source::Wrong;
use super::answer::Answer;
use crate::http::answer::problem::Problem;

/// The document and its page, ready to be sent.
struct Ready {
    json: Compressed,
    html: Compressed,
    /// The content that the page may load: its own style, by its digest.
    security: String,
}

static READY: LazyLock<Result<Ready, Wrong>> = LazyLock::new(|| {
    let document = build()?;
    Ok(Ready {
        json: Compressed::new(document.to_string(), "application/json"),
        html: Compressed::new(page::html(&document), "text/html; charset=utf-8"),
        security: page::security_policy(),
    })
});

fn ready() -> Result<&'static Ready, Problem> {
    READY.as_ref().map_err(|wrong| Problem::internal(wrong))
}

/// `GET /openapi.json`. It is the same for every service of this version, so no caller needs a token for it.
pub(super) async fn json(headers: HeaderMap) -> Answer {
    Ok(ready()?.json.answer(&headers))
}

/// `GET /`: a person who opens the service in a browser finds the page.
pub(super) async fn root() -> Answer {
    let page = HeaderValue::from_static("/docs");
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, page)]).into_response())
}

/// `GET /docs`
pub(super) async fn html(headers: HeaderMap) -> Answer {
    let ready = ready()?;
    let mut response = ready.html.answer(&headers);
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::try_from(&ready.security) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    Ok(response)
}

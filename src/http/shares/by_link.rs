//! [`ByLink`]: a request by a link that counts, and how it is answered.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use storage::{ETag, Spool};

use crate::http::App;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::{Answer, tagged};
use crate::http::extract::conditional::{Fresh, of_read};
use crate::http::tree::archive::attached;
use crate::ops::shares::Share;
use crate::ops::shares::artifact::Digests;

/// A request by a link that counts.
pub(super) struct ByLink {
    pub(super) app: App,
    pub(super) share: Arc<Share>,
    pub(super) headers: HeaderMap,
    /// The link as a whole URL, without the last `/`.
    pub(super) base: String,
}

/// One answer for a link that never was, one that was revoked, and what a link does not show.
pub(super) fn missing() -> Problem {
    Problem::new(Code::NotFound, "there is no such share link, or it does not show this, or not any more")
}

impl ByLink {
    /// What is in force at the moment: to be asked for again, and not sent again unless it is another.
    pub(super) fn current(&self, told: &Value) -> Answer {
        let body = told.to_string();
        let etag = ETag::from_opaque(blake3::hash(body.as_bytes()).to_hex().get(..32).unwrap_or_default());
        let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let response = match of_read(&self.headers, Some(&etag), "the answer")? {
            Fresh::NotModified => StatusCode::NOT_MODIFIED.into_response(),
            Fresh::Send => (json, body).into_response(),
        };
        Ok(caching(tagged(response, &etag), "no-cache"))
    }

    /// An archive with the name `file`. Where its name follows from what is in it, it never becomes another.
    pub(super) fn archive(
        &self,
        (packed, digests): ((Spool, u64), Digests),
        content_type: &'static str,
        file: &str,
        is_fixed: bool,
    ) -> Answer {
        let etag = ETag::from_opaque(&hex::encode(digests.sha256.get(..16).unwrap_or_default()));
        let response = match of_read(&self.headers, Some(&etag), "the archive")? {
            Fresh::NotModified => StatusCode::NOT_MODIFIED.into_response(),
            Fresh::Send => {
                let reads = self.app.service.admission().reads_of(&self.share.account()?);
                attached(packed, reads, content_type, file)
            }
        };
        // In the caller's own cache alone: one that others share would answer after the link is revoked.
        let caches = if is_fixed { "private, max-age=31536000, immutable" } else { "no-cache" };
        Ok(caching(tagged(response, &etag), caches))
    }
}

fn caching(mut response: Response, caches: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caches));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

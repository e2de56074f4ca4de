//! Holds every answer of the router against the OpenAPI document, on its way to the caller.

use std::sync::Mutex;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::Response;

use crate::client::answered::Answered;
use crate::client::promise::PROMISE;

/// The largest document that is looked at, in bytes.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

static FOUND: Mutex<(usize, Vec<String>)> = Mutex::new((0, Vec::new()));

/// How many answers there were, and what was wrong with them.
pub(crate) fn so_far() -> (usize, Vec<String>) {
    FOUND.lock().unwrap().clone()
}

pub(crate) async fn hold(request: Request, next: Next) -> Response {
    let (method, target) = (request.method().to_string(), request.uri().to_string());
    let (head, body) = next.run(request).await.into_parts();
    let is_document = head.headers.get(CONTENT_TYPE).is_none_or(|kind| kind == "application/json");
    let (bytes, body) = if is_document {
        let bytes = to_bytes(body, DOCUMENT_BYTES_MAX).await.unwrap();
        (bytes.clone(), Body::from(bytes))
    } else {
        (Default::default(), body)
    };
    let named = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let headers: Vec<(String, String)> = named.collect();
    let (status, target) = (head.status.as_u16(), target.as_str());
    // What goes with the answer to `HEAD` is dropped behind this.
    let seen: &[u8] = if method == "HEAD" { &[] } else { &bytes };
    let answered = Answered { method: &method, target, status, headers: &headers, body: seen };
    let complaints = PROMISE.broken_by(&answered);
    let mut found = FOUND.lock().unwrap();
    found.0 += 1;
    if !complaints.is_empty() {
        let shown: String = String::from_utf8_lossy(&bytes).chars().take(500).collect();
        found.1.push(format!("{method} {target}: {status} {shown}: {complaints:?}"));
    }
    drop(found);
    Response::from_parts(head, body)
}

//! `ANY /s/{share}/{path}`: what an installer reads by a link. It needs no token; the link is the right.
//!
//! Nothing can be changed here, and nothing is found but what the link shows, by the names that its catalog has.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use storage::{ETag, Spool};

use super::{discovery, marketplace, whole_url};
use crate::access::{Caller, Role};
use crate::http::answer::{Answer, tagged};
use crate::http::conditional::{Fresh, of_read};
use crate::http::problem::{Code, Problem};
use crate::http::tree::archive::attached;
use crate::http::{App, request_log};
use crate::ops::shares::Share;
use crate::ops::shares::artifact::Digests;

/// Bytes of a search.
const QUERY_BYTES_MAX: usize = 256;

/// What clients that search send; other parameters mean nothing here.
#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
}

/// A request by a link that counts.
pub(super) struct ByLink {
    pub(super) app: App,
    pub(super) share: Arc<Share>,
    pub(super) headers: HeaderMap,
    /// The link as a whole URL, without the last `/`.
    pub(super) base: String,
}

pub(in crate::http) async fn serve(State(app): State<App>, request: Request) -> Answer {
    let path = request.uri().path().to_owned();
    // "", "s", the secret, and what follows.
    let steps = path.split('/').skip(2).map(decoded).collect::<Result<Vec<_>, _>>()?;
    let (secret, steps) = steps.split_first().ok_or_else(missing)?;
    let Some(share) = app.service.share(secret) else {
        request_log::refused();
        return Err(missing());
    };
    let role = Role::User { user: share.user.clone(), agent: Some(share.agent.clone()) };
    request_log::caller(&Caller { role, token: format!("share:{}", share.id) });
    request_log::skills(&share.user, &share.agent, None);
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Problem::new(
            Code::MethodNotAllowed,
            "a share link is for reading: send `GET` or `HEAD`",
        ));
    }
    let base = format!("{}/s/{secret}", whole_url(&app, request.headers()));
    let link = ByLink { app, share, headers: request.headers().clone(), base };
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    match steps.as_slice() {
        [] | [""] | [".well-known", "agent-skills" | "skills", "index.json"] => discovery::index(&link).await,
        [".well-known", "agent-skills" | "skills", file] => discovery::archive(&link, file).await,
        ["api", "search"] => discovery::search(&link, &wanted(request.uri())).await,
        ["marketplace.json"] => marketplace::marketplace(&link).await,
        ["npm", package] => marketplace::package(&link, package).await,
        // A client that leaves the `/` of a scoped name as it is.
        ["npm", scope, name] => marketplace::package(&link, &format!("{scope}/{name}")).await,
        ["npm", "-", alias, file] => marketplace::tarball(&link, alias, file).await,
        [file] => discovery::archive(&link, file).await,
        _ => Err(missing()),
    }
}

fn decoded(segment: &str) -> Result<String, Problem> {
    let decoded = percent_decode_str(segment).decode_utf8();
    decoded.map(Into::into).map_err(|_| Problem::invalid("the path is not percent-encoded UTF-8"))
}

/// The text that is looked for, in small letters; empty for all.
fn wanted(uri: &Uri) -> String {
    let query = Query::<Search>::try_from_uri(uri).map(|Query(search)| search.q).unwrap_or_default();
    let end = query.floor_char_boundary(QUERY_BYTES_MAX);
    query.get(..end).unwrap_or_default().to_lowercase()
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
        let response = match of_read(&self.headers, &etag, "the answer")? {
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
        let response = match of_read(&self.headers, &etag, "the archive")? {
            Fresh::NotModified => StatusCode::NOT_MODIFIED.into_response(),
            Fresh::Send => {
                let reads = self.app.service.admission().reads_of(&self.share.account()?);
                attached(packed, reads, content_type, file)
            }
        };
        let caches = if is_fixed { "public, max-age=31536000, immutable" } else { "no-cache" };
        Ok(caching(tagged(response, &etag), caches))
    }
}

fn caching(mut response: Response, caches: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caches));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

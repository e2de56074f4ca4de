//! `ANY /s/{share}/{path}`: what an installer reads by a link. It needs no token; the link is the right.
//!
//! Nothing can be changed here, and nothing is found but what the link shows, by the names that its catalog has.

use axum::extract::{Query, Request, State};
use axum::http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::by_link::{ByLink, missing};
use super::{discovery, marketplace, whole_url};
use crate::access::{Caller, Role};
use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem};
use crate::http::{App, request_log};

/// Bytes of a search.
const QUERY_BYTES_MAX: usize = 256;

/// What clients that search send; other parameters mean nothing here.
#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
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

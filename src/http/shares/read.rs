//! `ANY /s/{share}/{path}`: what an installer reads by a link. It needs no token; the link is the right. And `ANY /catalog/{a}/{path}`,
//! the same of an agent whose skills everybody may read.
//!
//! Nothing can be changed here, and nothing is found but what the link shows, by the names that its catalog has.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use policy::AgentId;
use serde::Deserialize;

use super::by_link::{ByLink, missing};
use super::{discovery, marketplace, whole_url};
use crate::access::{Caller, Role};
use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem};
use crate::http::{App, request_log};
use crate::ops::shares::Share;

/// Bytes of a search.
const QUERY_BYTES_MAX: usize = 256;

/// What clients that search send; other parameters mean nothing here.
#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
}

/// What a link shows.
pub(in crate::http) async fn by_link(State(app): State<App>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (secret, steps) = steps(&parts.uri)?;
    let share = app.service.share(&secret);
    if share.is_none() {
        request_log::refused();
    }
    let base = format!("{}/s/{secret}", whole_url(&app, &parts.headers));
    answer(app, share, base, &steps, parts).await
}

/// What an agent has for all users, where everybody may read it.
pub(in crate::http) async fn of_agent(State(app): State<App>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (agent, steps) = steps(&parts.uri)?;
    let share = AgentId::parse(&agent).ok().and_then(|agent| app.service.public_share(&agent));
    let segment = utf8_percent_encode(&agent, NON_ALPHANUMERIC);
    let base = format!("{}/catalog/{segment}", whole_url(&app, &parts.headers));
    answer(app, share, base, &steps, parts).await
}

/// The segment after the first one of the path, and those that follow, decoded.
fn steps(uri: &Uri) -> Result<(String, Vec<String>), Problem> {
    let segments = uri.path().split('/').skip(2).map(decoded).collect::<Result<Vec<_>, _>>()?;
    let (first, more) = segments.split_first().ok_or_else(missing)?;
    Ok((first.clone(), more.to_vec()))
}

async fn answer(app: App, share: Option<Arc<Share>>, base: String, steps: &[String], parts: Parts) -> Answer {
    let share = share.ok_or_else(missing)?;
    let role = Role::User { user: share.user.clone(), agent: Some(share.agent.clone()) };
    request_log::caller(&Caller { role, token: format!("share:{}", share.id) });
    request_log::skills(&share.user, &share.agent, None);
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Problem::new(Code::MethodNotAllowed, "this is for reading: send `GET` or `HEAD`"));
    }
    let link = ByLink { app, share, headers: parts.headers, base };
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    match steps.as_slice() {
        [] | [""] | [".well-known", "agent-skills" | "skills", "index.json"] => discovery::index(&link).await,
        [".well-known", "agent-skills" | "skills", file] => discovery::archive(&link, file).await,
        ["api", "search"] => discovery::search(&link, &wanted(&parts.uri)).await,
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

//! `GET`, `POST` and `DELETE /v1/tokens`, and `DELETE /v1/tokens/{id}`

use std::sync::Arc;

use axum::extract::State;
use policy::{AgentId, UserId};
use serde::{Deserialize, Serialize};

use crate::access::now;
use crate::access::revoked::{Revocation, Revoked};
use crate::access::signed::Claims;
use crate::http::App;
use crate::http::answer::page::{self, Page};
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{
    Issuer, JsonBody, JsonLimit, NoParams, PageQuery, Params, TokenReader, TokenRequest,
};
use crate::ops::Error;

/// How long a token lasts when the request does not say, in seconds.
const SECONDS_DEFAULT: u64 = 3600;
/// How long a revocation counts at least, in seconds: a token may be older than the configuration that bounds it now.
const MONTH_SECONDS: u64 = 30 * 24 * 3600;
/// About what a revocation takes in an answer, in bytes.
const REVOCATION_BYTES: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Wanted {
    user: String,
    agent: Option<String>,
    ttl_seconds: Option<u64>,
}

impl JsonLimit for Wanted {}

#[derive(Serialize)]
struct Beside {
    /// Names the token in logs.
    id: String,
    expires_at: String,
}

pub(in crate::http) async fn issue(
    State(app): State<App>,
    _issuer: Issuer,
    _: NoParams,
    JsonBody(wanted): JsonBody<Wanted>,
) -> Answer {
    let user = UserId::parse(&wanted.user).map_err(Error::from)?;
    let agent = wanted.agent.as_deref().map(AgentId::parse).transpose().map_err(Error::from)?;
    let most = app.token_seconds_max;
    let seconds = wanted.ttl_seconds.unwrap_or(SECONDS_DEFAULT.min(most));
    if !(1..=most).contains(&seconds) {
        return Err(Problem::invalid(format!("`ttl_seconds` is {seconds}: send 1 to {most}")));
    }
    let issued = app.access.revocations().issued_at(&user, now());
    let claims = Claims::new(user, agent, issued, seconds).map_err(|error| Problem::internal(&error))?;
    crate::http::request_log::issued(&claims.user, &claims.id);
    let token = app.access.issue(&claims).ok_or_else(|| {
        Problem::new(
            Code::Unsupported,
            "the service has no key to sign with: the operator sets `access.key_file`",
        )
    })?;
    let expires_at = second(claims.expires);
    success_with(token, Beside { id: claims.id, expires_at })
}

/// What tokens a revocation is about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Whose {
    user: String,
}

/// A revocation that is in force.
#[derive(Serialize)]
struct Listed {
    /// Null where it is about all tokens of a user.
    id: Option<String>,
    /// Null where it is about one token.
    user: Option<UserId>,
    revoked_at: String,
    /// From when it means nothing, because all tokens that it is about have expired.
    until: String,
}

#[derive(Serialize)]
struct RevokedBeside {
    revoked_at: String,
    until: String,
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    _: TokenReader,
    Params(query): Params<PageQuery>,
) -> Answer {
    let keyed = app.access.revocations().all(now()).into_iter();
    let keyed = keyed.map(|(revoked, revocation)| (revoked.key(), revoked, revocation)).collect();
    let most = app.service.file_limits().list_entries;
    let Page { elements, beside } =
        page::cut(keyed, |(key, ..)| key, query.limit, query.cursor.as_deref(), most)?;
    let listed = |(_, revoked, revocation): (String, Revoked, Revocation)| {
        let (id, user) = match revoked {
            Revoked::Token(id) => (Some(id), None),
            Revoked::User(user) => (None, Some(user)),
        };
        Listed { id, user, revoked_at: second(revocation.at), until: second(revocation.until) }
    };
    made(app.service.admission(), elements.len().saturating_mul(REVOCATION_BYTES), move || {
        success_with(elements.into_iter().map(listed).collect::<Vec<_>>(), beside)
    })
    .await
}

pub(in crate::http) async fn revoke(State(app): State<App>, request: TokenRequest, _: NoParams) -> Answer {
    put_in_force(&app, request.revoked, "The token is revoked").await
}

pub(in crate::http) async fn revoke_all(
    State(app): State<App>,
    _issuer: Issuer,
    Params(whose): Params<Whose>,
) -> Answer {
    let user = UserId::parse(&whose.user).map_err(Error::from)?;
    crate::http::request_log::user(&user);
    let told = format!("All tokens of the user '{user}' that were issued until now are revoked");
    put_in_force(&app, Revoked::User(user), &told).await
}

async fn put_in_force(app: &App, revoked: Revoked, told: &str) -> Answer {
    let at = now();
    let lasting = app.token_seconds_max.max(app.service.port_limits().link_seconds_max).max(MONTH_SECONDS);
    let revocation = Revocation { at, until: at.saturating_add(lasting) };
    let in_force = Arc::clone(app.access.revocations());
    app.service.revoke_tokens(in_force, revoked, revocation).await?;
    success_with(told, RevokedBeside { revoked_at: second(at), until: second(revocation.until) })
}

fn second(seconds: u64) -> String {
    rfc3339(i128::from(seconds) * 1_000_000_000)
}

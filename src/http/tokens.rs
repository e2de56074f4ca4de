//! `POST /v1/tokens`

use axum::extract::State;
use policy::{AgentId, UserId};
use serde::{Deserialize, Serialize};

use super::App;
use super::answer::{Answer, success_with};
use super::extract::{Issuer, JsonBody, JsonLimit, NoParams};
use super::problem::{Code, Problem};
use super::time::rfc3339;
use crate::access::now;
use crate::access::signed::Claims;
use crate::ops::Error;

/// How long a token lasts when the request does not say, in seconds.
const SECONDS_DEFAULT: u64 = 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
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

pub(super) async fn issue(
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
    let claims = Claims::new(user, agent, now(), seconds).map_err(|error| Problem::internal(&error))?;
    super::request_log::issued(&claims.user, &claims.id);
    let token = app.access.issue(&claims).ok_or_else(|| {
        Problem::new(
            Code::Unsupported,
            "the service has no key to sign with: the operator sets `access.key_file`",
        )
    })?;
    let expires_ns = i128::from(claims.expires) * 1_000_000_000;
    success_with(token, Beside { id: claims.id, expires_at: rfc3339(expires_ns) })
}

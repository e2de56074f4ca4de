//! `GET /v1/whoami`

use axum::extract::State;
use axum::http::HeaderMap;
use policy::{AgentId, UserId};
use serde::Serialize;

use crate::access::Role;
use crate::http::App;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, Someone, bearer};

/// What the service knows of a caller.
#[derive(Serialize)]
struct Identity<'a> {
    role: &'static str,
    /// The user whose trees the token reaches; null for one that reaches those of any user, or none.
    user: Option<&'a UserId>,
    /// The agent that the token is bound to.
    agent: Option<&'a AgentId>,
    /// What logs call the token; null where none is needed.
    token: Option<&'a str>,
    expires_at: Option<String>,
}

pub(in crate::http) async fn whoami(
    State(app): State<App>,
    Someone(caller): Someone,
    _: NoParams,
    headers: HeaderMap,
) -> Answer {
    let (user, agent) = match &caller.role {
        Role::User { user, agent } => (Some(user), agent.as_ref()),
        Role::Manager(agent) => (None, Some(agent)),
        Role::Admin | Role::Engine | Role::Monitor => (None, None),
    };
    let expires = app.access.expiry(bearer(&headers));
    success(Identity {
        role: caller.role.word(),
        user,
        agent,
        token: caller.token_name(),
        expires_at: expires.map(|seconds| rfc3339(i128::from(seconds) * 1_000_000_000)),
    })
}

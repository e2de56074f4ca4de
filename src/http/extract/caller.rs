//! Who asks, and what the token lets them do.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use policy::{AgentId, VersionId};

use super::names::named;
use crate::access::revoked::Revoked;
use crate::access::{Access, Action, Caller};
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};

/// Finds out who the sender is.
pub(super) fn caller(access: &Access, headers: &HeaderMap) -> Result<Caller, Problem> {
    let caller = access.caller(bearer(headers))?;
    request_log::caller(&caller);
    Ok(caller)
}

/// The token that a request brings.
pub(in crate::http) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
}

/// Lets the caller make a change, unless its changes have filled its part of the audit log. To be asked when it is
/// known who asks and about whom, and before anything is done.
pub(in crate::http) fn admitted(app: &App) -> Result<(), Problem> {
    if request_log::is_change() {
        app.service.audit().admit(&request_log::account())?;
    }
    Ok(())
}

/// A caller with any valid token.
pub(in crate::http) struct Known;

impl FromRequestParts<App> for Known {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers).map(|_| Self)
    }
}

/// A caller with any valid token, and who it is: what is sent depends on it.
pub(in crate::http) struct Someone(pub(in crate::http) Caller);

impl FromRequestParts<App> for Someone {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers).map(Self)
    }
}

/// A caller who may have the registry made anew.
pub(in crate::http) struct Rebuilder;

impl FromRequestParts<App> for Rebuilder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Rebuild)?;
        admitted(app)?;
        Ok(Self)
    }
}

/// A caller who may see and set the policy of an agent, and which agent.
pub(in crate::http) struct Governor {
    pub(in crate::http) agent: AgentId,
}

impl FromRequestParts<App> for Governor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Govern)?;
        let (_, agent, _) = named(parts, app).await?;
        let agent = agent.ok_or_else(|| Problem::invalid("the path names no agent"))?;
        request_log::agent(&agent);
        admitted(app)?;
        Ok(Self { agent })
    }
}

/// A caller who may put and read packages, and the version of which.
pub(in crate::http) struct PackageRequest {
    pub(in crate::http) version: VersionId,
}

impl FromRequestParts<App> for PackageRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Packages)?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params =
            params.map_err(|_| Problem::invalid("a segment of the path is not percent-encoded UTF-8"))?;
        let version = params.iter().find(|(name, _)| *name == "version").map(|(_, value)| value);
        let version = VersionId::parse(version.unwrap_or_default());
        let version = version.map_err(|error| Problem::invalid(error.to_string()))?;
        request_log::package(&version);
        admitted(app)?;
        Ok(Self { version })
    }
}

/// A caller who may issue tokens.
pub(in crate::http) struct Issuer;

impl FromRequestParts<App> for Issuer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Issue)?;
        admitted(app)?;
        Ok(Self)
    }
}

/// A caller who may read the audit log.
pub(in crate::http) struct Auditor;

impl FromRequestParts<App> for Auditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Audit)?;
        Ok(Self)
    }
}

/// A caller who may see which tokens are revoked.
pub(in crate::http) struct TokenReader;

impl FromRequestParts<App> for TokenReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Issue)?;
        Ok(Self)
    }
}

/// A caller who may revoke the token whose id the path names: one who may issue tokens, and the token's own bearer.
pub(in crate::http) struct TokenRequest {
    pub(in crate::http) revoked: Revoked,
}

impl FromRequestParts<App> for TokenRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = caller(&app.access, &parts.headers)?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params =
            params.map_err(|_| Problem::invalid("a segment of the path is not percent-encoded UTF-8"))?;
        let id = params.iter().find(|(name, _)| *name == "id").map_or("", |(_, id)| id);
        if caller.signed_id() != Some(id) {
            caller.role.may(Action::Issue)?;
        }
        let revoked = Revoked::token(id).ok_or_else(|| {
            Problem::invalid("the path names no token: send its `id`, or the one that stands beside a link")
        })?;
        request_log::token(id);
        admitted(app)?;
        Ok(Self { revoked })
    }
}

/// A caller who may read figures about the service.
pub(in crate::http) struct Observer;

impl FromRequestParts<App> for Observer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Observe)?;
        Ok(Self)
    }
}

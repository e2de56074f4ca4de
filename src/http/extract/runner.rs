//! A request about the machines that a user lends.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use policy::UserId;

use super::caller::{admitted, bearer, caller};
use super::names::named;
use crate::access::Action;
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};

/// The user whose machine is to be connected. A runner may bring its token in the first frame alone; one that it brings in the head
/// has to count.
pub(in crate::http) struct LendingUser {
    pub(in crate::http) user: UserId,
    /// Whether a token came in the head.
    pub(in crate::http) has_token: bool,
}

impl FromRequestParts<App> for LendingUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let user = user_of(parts, app).await?;
        request_log::user(&user);
        let has_token = bearer(&parts.headers).is_some();
        if has_token {
            caller(&app.access, &parts.headers)?.role.may(Action::OfUser(&user))?;
        }
        Ok(Self { user, has_token })
    }
}

async fn user_of(parts: &mut Parts, app: &App) -> Result<UserId, Problem> {
    let (user, ..) = named(parts, app).await?;
    user.ok_or_else(|| Problem::invalid("the path names no user"))
}

/// A change of one machine of a user, by a caller who may use all that the user has.
pub(in crate::http) struct RunnerRequest {
    pub(in crate::http) user: UserId,
    /// The name of the machine, as it was sent.
    pub(in crate::http) runner: String,
}

impl FromRequestParts<App> for RunnerRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = caller(&app.access, &parts.headers)?;
        let user = user_of(parts, app).await?;
        request_log::user(&user);
        caller.role.may(Action::OfUser(&user))?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params =
            params.map_err(|_| Problem::invalid("a segment of the path is not percent-encoded UTF-8"))?;
        let runner = params.iter().find(|(name, _)| *name == "runner").map(|(_, runner)| runner.to_owned());
        let runner = runner.ok_or_else(|| Problem::invalid("the path names no runner"))?;
        request_log::runner(&user, &runner);
        admitted(app)?;
        Ok(Self { user, runner })
    }
}

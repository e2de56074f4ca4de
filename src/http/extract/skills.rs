//! A request about skills of one user and agent.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use policy::{AgentId, Scope, SkillId, UserId};

use super::caller::{admitted, caller};
use super::names::named;
use crate::access::{Action, Caller, Role};
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};

/// A request about skills of one user and agent; what it may do depends on the scope.
pub(in crate::http) struct SkillsRequest {
    pub(in crate::http) user: UserId,
    pub(in crate::http) agent: AgentId,
    pub(in crate::http) skill: Option<SkillId>,
    /// Who asks, as it is written down with what is published.
    pub(in crate::http) subject: String,
    role: Role,
}

impl SkillsRequest {
    pub(in crate::http) fn check_read(&self) -> Result<(), Problem> {
        Ok(self.role.may(Action::Read(&self.user, &self.agent))?)
    }

    /// Whether the caller decides what the users of the agent have.
    pub(in crate::http) fn may_publish(&self) -> bool {
        self.role.may(Action::Baseline(&self.user, &self.agent)).is_ok()
    }

    pub(in crate::http) fn check_change(&self, scope: Scope) -> Result<(), Problem> {
        request_log::scope(scope);
        Ok(self.role.may(match scope {
            Scope::Baseline => Action::Baseline(&self.user, &self.agent),
            Scope::Overlay => Action::Change(&self.user, &self.agent),
        })?)
    }
}

impl FromRequestParts<App> for SkillsRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let asks = caller(&app.access, &parts.headers)?;
        let (subject, Caller { role, .. }) = (asks.subject().to_owned(), asks);
        let (Some(user), Some(agent), skill) = named(parts, app).await? else {
            return Err(Problem::invalid("the path names no user and agent"));
        };
        request_log::skills(&user, &agent, skill.as_ref());
        admitted(app)?;
        Ok(Self { user, agent, skill, subject, role })
    }
}

//! `GET /v1/users/{u}`

use axum::extract::State;
use policy::UserId;
use serde::Serialize;

use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, made, success};
use crate::http::extract::{NoParams, WorkspacesRequest};
use crate::http::workspaces::Taken;
use crate::ops::users::{OfAgent, OfUser};

/// About what an agent takes in an answer, in bytes.
const AGENT_BYTES: usize = 200;

#[derive(Serialize)]
struct Facts {
    user: UserId,
    /// What everything takes on the disk together.
    used: Taken,
    /// What it may take.
    limits: Taken,
    /// Sorted by agent.
    agents: Vec<WithAgent>,
}

/// What the user has with one agent.
#[derive(Serialize)]
struct WithAgent {
    agent: String,
    skills: usize,
    workspace: bool,
    home: bool,
    kept: bool,
    snapshots: usize,
    runs: usize,
    terminals: usize,
    last_used_at: Option<String>,
}

impl From<OfAgent> for WithAgent {
    fn from(of: OfAgent) -> Self {
        let sandbox = &of.facts.sandbox;
        Self {
            agent: sandbox.id.agent.to_string(),
            skills: of.facts.skills,
            workspace: sandbox.has_workspace,
            home: sandbox.has_home,
            kept: sandbox.is_kept,
            snapshots: sandbox.snapshots,
            runs: of.runs,
            terminals: of.terminals,
            last_used_at: sandbox.used_ns.map(rfc3339),
        }
    }
}

pub(in crate::http) async fn one(State(app): State<App>, request: WorkspacesRequest, _: NoParams) -> Answer {
    let user = named(request)?;
    let OfUser { agents, taken, limits } = app.service.user(user.clone()).await?;
    made(app.service.admission(), agents.len().saturating_mul(AGENT_BYTES), move || {
        let agents = agents.into_iter().map(WithAgent::from).collect();
        success(Facts { user, used: taken.into(), limits: limits.into(), agents })
    })
    .await
}

/// The user that the path names.
pub(in crate::http) fn named(request: WorkspacesRequest) -> Result<UserId, Problem> {
    request.user.ok_or_else(|| Problem::invalid("the path names no user"))
}

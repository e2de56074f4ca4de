//! `GET /v1/runs?user&agent&state&limit&cursor`

use axum::extract::State;
use policy::{AgentId, TreeId, UserId};
use serde::{Deserialize, Serialize};

use crate::access::Reach;
use crate::http::App;
use crate::http::answer::page::{self, Page};
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{Params, Someone};
use crate::http::tree::exec::list::{Run, Summary};
use crate::http::tree::walls::{Told, Walls};
use crate::ops::Error;

/// About what a run takes in an answer, in bytes.
const RUN_BYTES: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    user: Option<String>,
    agent: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A run with its tree.
#[derive(Serialize)]
struct Listed<'a> {
    user: &'a UserId,
    agent: &'a AgentId,
    /// Null for a run in the workspace.
    skill_id: Option<&'a str>,
    #[serde(flatten)]
    summary: Summary<'a>,
}

impl<'a> Listed<'a> {
    fn of(run: &'a Run, walls: &Walls) -> Self {
        let tree = run.tree();
        let skill_id = match tree {
            TreeId::Skill(.., skill) => Some(skill.as_str()),
            TreeId::Workspace(..) => None,
        };
        Self { user: tree.user(), agent: tree.agent(), skill_id, summary: Summary::of(run, walls) }
    }
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    Someone(caller): Someone,
    Params(query): Params<Query>,
) -> Answer {
    let agent = query.agent.as_deref().map(AgentId::parse).transpose().map_err(Error::from)?;
    let user = query.user.as_deref().map(UserId::parse).transpose().map_err(Error::from)?;
    let state = query.state.as_deref();
    if state.is_some_and(|state| !["starting", "running", "ended"].contains(&state)) {
        return Err(Problem::invalid("`state` is `starting`, `running` or `ended`"));
    }
    let Reach { agent, only_of } = caller.role.reach(agent.as_ref(), user.as_ref())?;
    let user = user.as_ref().or(only_of);
    let is_wanted = |run: &Run| {
        user.is_none_or(|user| run.tree().user() == user)
            && agent.is_none_or(|agent| run.tree().agent() == agent)
            && state.is_none_or(|state| run.state() == state)
    };
    let found = Run::all(&app).into_iter().filter(is_wanted);
    // No id has a slash.
    let mut keyed: Vec<(String, Run)> = found.map(|run| (run.key(), run)).collect();
    keyed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let most = app.service.file_limits().list_entries;
    let Page { elements, beside } =
        page::cut(keyed, |(key, _)| key, query.limit, query.cursor.as_deref(), most)?;
    let walls = Walls::of(&app, Told::Differing);
    made(app.service.admission(), elements.len().saturating_mul(RUN_BYTES), move || {
        success_with(elements.iter().map(|(_, run)| Listed::of(run, &walls)).collect::<Vec<_>>(), beside)
    })
    .await
}

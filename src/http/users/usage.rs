//! `GET /v1/usage?user&agent&limit&cursor`

use axum::extract::State;
use policy::{AgentId, UserId};
use serde::{Deserialize, Serialize};
use storage::WorkspaceId;

use crate::access::Reach;
use crate::http::App;
use crate::http::answer::page::{self, Page};
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{Params, Someone};
use crate::http::workspaces::Taken;
use crate::ops::Error;
use crate::ops::usages::Used;

/// Most elements of a page: each is counted for it.
const PAGE: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    user: Option<String>,
    agent: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Told {
    user: UserId,
    agent: AgentId,
    workspace: Taken,
    skills: Taken,
    more_skills: usize,
    snapshots: Taken,
}

impl From<Used> for Told {
    fn from(used: Used) -> Self {
        Self {
            user: used.id.user,
            agent: used.id.agent,
            workspace: used.workspace.into(),
            skills: used.skills.into(),
            more_skills: used.more_skills,
            snapshots: used.snapshots.into(),
        }
    }
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    Someone(caller): Someone,
    Params(query): Params<Query>,
) -> Answer {
    let agent = query.agent.as_deref().map(AgentId::parse).transpose().map_err(Error::from)?;
    let user = query.user.as_deref().map(UserId::parse).transpose().map_err(Error::from)?;
    let Reach { agent, only_of } = caller.role.reach(agent.as_ref(), user.as_ref())?;
    let places = app.service.used_places(user.or(only_of.cloned()), agent.cloned()).await?;
    // No id has a slash.
    let mut keyed: Vec<(String, WorkspaceId)> =
        places.into_iter().map(|id| (format!("{}/{}", id.user, id.agent), id)).collect();
    keyed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let cursor = query.cursor.as_deref();
    let Page { elements, beside } = page::cut(keyed, |(key, _)| key, query.limit, cursor, PAGE)?;
    let used = app.service.used(elements.into_iter().map(|(_, id)| id).collect()).await?;
    success_with(used.into_iter().map(Told::from).collect::<Vec<_>>(), beside)
}

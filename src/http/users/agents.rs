//! `GET /v1/agents?limit&cursor`

use axum::extract::State;
use policy::AgentId;
use serde::Serialize;

use crate::access::Reach;
use crate::http::App;
use crate::http::answer::page::{self, Page};
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{PageQuery, Params, Someone};

#[derive(Serialize)]
struct Listed {
    agent: AgentId,
    /// Skills in its baseline.
    skills: usize,
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    Someone(caller): Someone,
    Params(query): Params<PageQuery>,
) -> Answer {
    let Reach { agent, only_of } = caller.role.reach(None, None)?;
    let mut agents = app.service.agents(only_of.cloned()).await?;
    agents.retain(|found| agent.is_none_or(|own| found.id == *own));
    let most = app.service.file_limits().list_entries;
    let cursor = query.cursor.as_deref();
    let Page { elements, beside } = page::cut(agents, |agent| agent.id.as_str(), query.limit, cursor, most)?;
    let listed = elements.into_iter().map(|agent| Listed { agent: agent.id, skills: agent.skills });
    success_with(listed.collect::<Vec<_>>(), beside)
}

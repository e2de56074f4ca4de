//! `GET /v1/sandbox?limit&cursor` and `GET /v1/sandbox/{u}?limit&cursor`

use axum::extract::State;
use serde::Serialize;
use storage::WorkspaceId;

use crate::http::App;
use crate::http::answer::page::{self, Page};
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{PageQuery, Params, WorkspacesRequest};
use crate::ops::sandboxes::Glance;

/// About what a workspace takes in an answer, in bytes.
const SANDBOX_BYTES: usize = 200;

/// A sandbox at a glance.
#[derive(Serialize)]
pub(super) struct Listed {
    user: String,
    agent: String,
    workspace: bool,
    home: bool,
    kept: bool,
    snapshots: usize,
    runs: usize,
    terminals: usize,
    last_used_at: Option<String>,
}

impl From<&Glance> for Listed {
    fn from(glance: &Glance) -> Self {
        let facts = &glance.facts;
        Self {
            user: facts.id.user.to_string(),
            agent: facts.id.agent.to_string(),
            workspace: facts.has_workspace,
            home: facts.has_home,
            kept: facts.is_kept,
            snapshots: facts.snapshots,
            runs: glance.runs,
            terminals: glance.terminals,
            last_used_at: facts.used_ns.map(rfc3339),
        }
    }
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    request: WorkspacesRequest,
    Params(query): Params<PageQuery>,
) -> Answer {
    let ids = app.service.sandboxes(request.user).await?;
    // No id has a slash.
    let mut keyed: Vec<(String, WorkspaceId)> =
        ids.into_iter().map(|id| (format!("{}/{}", id.user, id.agent), id)).collect();
    keyed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let most = app.service.file_limits().list_entries;
    let Page { elements, beside } =
        page::cut(keyed, |(key, _)| key, query.limit, query.cursor.as_deref(), most)?;
    let glances = app.service.glance(elements.into_iter().map(|(_, id)| id).collect()).await?;
    made(app.service.admission(), glances.len().saturating_mul(SANDBOX_BYTES), move || {
        success_with(glances.iter().map(Listed::from).collect::<Vec<_>>(), beside)
    })
    .await
}

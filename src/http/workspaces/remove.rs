//! `DELETE /v1/sandbox/{u}/{a}`, `DELETE /v1/sandbox/{u}` and `DELETE /v1/sandbox`

use axum::extract::State;
use serde::{Deserialize, Serialize};

use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{Params, WorkspaceRequest, WorkspacesRequest};
use crate::ops::sandboxes::{Removal, Removed};

/// Workspaces that one request removes.
const REMOVED_MAX: usize = 1000;
/// The word that confirms the removal of all workspaces.
const CONFIRMATION: &str = "all-workspaces";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    #[serde(default)]
    force: bool,
    #[serde(default)]
    snapshots: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Confirmed {
    #[serde(default)]
    force: bool,
    #[serde(default)]
    snapshots: bool,
    confirm: Option<String>,
}

#[derive(Serialize)]
struct Beside {
    /// Whether there was anything.
    removed: bool,
}

#[derive(Serialize)]
struct BesideSeveral {
    removed: usize,
    /// Workspaces with an occupant, which stay.
    busy: Vec<Busy>,
    /// Whether there are more: ask again.
    more: bool,
}

#[derive(Serialize)]
struct Busy {
    user: String,
    agent: String,
}

pub(in crate::http) async fn one(
    State(app): State<App>,
    request: WorkspaceRequest,
    Params(query): Params<Query>,
) -> Answer {
    let removal = Removal { force: query.force, snapshots: query.snapshots };
    let sentence = format!("Workspace of '{}' with '{}' removed", request.id.user, request.id.agent);
    let removed = app.service.remove_sandbox(request.id, removal).await?;
    success_with(sentence, Beside { removed })
}

pub(in crate::http) async fn of_user(
    State(app): State<App>,
    request: WorkspacesRequest,
    Params(query): Params<Query>,
) -> Answer {
    let removal = Removal { force: query.force, snapshots: query.snapshots };
    several(app.service.remove_sandboxes(request.user, removal, REMOVED_MAX).await?)
}

pub(in crate::http) async fn all(
    State(app): State<App>,
    request: WorkspacesRequest,
    Params(query): Params<Confirmed>,
) -> Answer {
    if query.confirm.as_deref() != Some(CONFIRMATION) {
        return Err(Problem::invalid(format!(
            "this removes the workspaces of all users: send `confirm={CONFIRMATION}` if that is meant"
        )));
    }
    let removal = Removal { force: query.force, snapshots: query.snapshots };
    several(app.service.remove_sandboxes(request.user, removal, REMOVED_MAX).await?)
}

fn several(done: Removed) -> Answer {
    let Removed { removed, busy, more } = done;
    let busy = busy.into_iter().map(|id| Busy { user: id.user.to_string(), agent: id.agent.to_string() });
    let beside = BesideSeveral { removed, busy: busy.collect(), more };
    success_with(format!("{removed} workspaces removed"), beside)
}

//! `POST /v1/sandbox/{u}/{a}/snapshots/{snapshot}/restore` and `…/fork`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use policy::{AgentId, UserId};
use serde::{Deserialize, Serialize};
use storage::{Forked, WorkspaceId};

use super::Taken;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{JsonBody, JsonLimit, NoParams, SnapshotRequest};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Target {
    user: UserId,
    agent: AgentId,
    #[serde(default)]
    replace: bool,
}

impl JsonLimit for Target {}

#[derive(Serialize)]
struct Beside {
    #[serde(flatten)]
    taken: Taken,
    /// Whether there was a workspace in its place.
    replaced: bool,
}

impl From<Forked> for Beside {
    fn from(forked: Forked) -> Self {
        Self { taken: forked.taken.into(), replaced: forked.replaced }
    }
}

pub(in crate::http) async fn restore(
    State(app): State<App>,
    request: SnapshotRequest,
    _: NoParams,
) -> Answer {
    let restored = app.service.restore_snapshot(request.sandbox, request.id).await?;
    success_with("The workspace is what it was", Beside::from(restored))
}

pub(in crate::http) async fn fork(
    State(app): State<App>,
    request: SnapshotRequest,
    _: NoParams,
    JsonBody(target): JsonBody<Target>,
) -> Answer {
    let to = WorkspaceId { user: target.user, agent: target.agent };
    request.check_change(&to)?;
    let sentence = format!("The workspace of '{}' with '{}' begins with the snapshot", to.user, to.agent);
    let forked = app.service.fork_snapshot(request.sandbox, request.id, to, target.replace).await?;
    Ok((StatusCode::CREATED, success_with(sentence, Beside::from(forked))?).into_response())
}

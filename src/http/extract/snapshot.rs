//! A request about a snapshot of a workspace.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::Method;
use axum::http::request::Parts;
use storage::{SnapshotId, WorkspaceId};

use super::tree::{Allowed, allowed_tree};
use crate::access::{Action, Role};
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};

/// A request about a snapshot of a workspace.
pub(in crate::http) struct SnapshotRequest {
    pub(in crate::http) sandbox: WorkspaceId,
    pub(in crate::http) id: SnapshotId,
    role: Role,
}

impl SnapshotRequest {
    /// Checks that the caller may change another workspace too.
    pub(in crate::http) fn check_change(&self, to: &WorkspaceId) -> Result<(), Problem> {
        request_log::fork(&to.user, &to.agent);
        Ok(self.role.may(Action::Change(&to.user, &to.agent))?)
    }
}

impl FromRequestParts<App> for SnapshotRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let Allowed { tree, role, .. } = allowed_tree(parts, app, !reads).await?;
        let sandbox = WorkspaceId::of(tree.local()?);
        tree.note_use().await?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params = params.map_err(|_| Problem::invalid("the path is not percent-encoded UTF-8"))?;
        let text = params.iter().find(|(name, _)| *name == "snapshot").map_or("", |(_, value)| value);
        let id = SnapshotId::parse(text).ok_or_else(|| {
            Problem::invalid("the id of a snapshot has 20 digits: send one that `snapshots` lists")
        })?;
        request_log::snapshot(&id);
        Ok(Self { sandbox, id, role })
    }
}

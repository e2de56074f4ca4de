//! A request for one tree.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use policy::TreeId;
use storage::{Version, WorkspaceId};

use super::caller::{admitted, caller};
use super::names::named;
use super::remote;
use crate::access::{Action, Caller, Role};
use crate::http::problem::Problem;
use crate::http::{App, request_log};
use crate::ops::preparations::Deploying;
use crate::ops::remote::Backend;

/// A request for one tree by a caller who may ask for it: reading for `GET` and `HEAD`, changing otherwise.
pub(in crate::http) struct TreeRequest {
    pub(in crate::http) id: TreeId,
    /// The backend that holds the tree; `None` where this service does.
    pub(in crate::http) backend: Option<Arc<Backend>>,
    /// The published version of the skill that is read instead of what its user sees.
    pub(in crate::http) version: Option<Version>,
    /// Whether the caller decides what the users of the agent have, and sees staged versions.
    pub(in crate::http) may_publish: bool,
}

/// A request for one tree that reads under any method, because the question takes a body.
pub(in crate::http) struct TreeQuestion(pub(in crate::http) TreeRequest);

impl FromRequestParts<App> for TreeRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        Ok(used_tree(parts, app, !reads).await?.into())
    }
}

impl FromRequestParts<App> for TreeQuestion {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self(used_tree(parts, app, false).await?.into()))
    }
}

/// A request that changes one tree under any method, such as one for a terminal.
pub(in crate::http) struct ChangingRequest {
    pub(in crate::http) id: TreeId,
    /// As for [`TreeRequest`].
    pub(in crate::http) backend: Option<Arc<Backend>>,
}

impl FromRequestParts<App> for ChangingRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Allowed { tree, backend, .. } = used_tree(parts, app, true).await?;
        Ok(Self { id: tree, backend })
    }
}

/// A request that prepares a workspace.
pub(in crate::http) struct PreparingRequest {
    pub(in crate::http) id: WorkspaceId,
    /// The backend that holds the workspace; `None` where this service does.
    pub(in crate::http) backend: Option<Arc<Backend>>,
    /// Whether the caller may have packages deployed.
    pub(in crate::http) deploying: Deploying,
}

impl FromRequestParts<App> for PreparingRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Allowed { tree, role, backend } = used_tree(parts, app, true).await?;
        let deploying = match role.may(Action::Packages) {
            Ok(()) => Deploying::Allowed,
            Err(_) => Deploying::Denied,
        };
        Ok(Self { id: WorkspaceId::of(&tree), backend, deploying })
    }
}

/// A tree that the caller may ask for.
pub(super) struct Allowed {
    pub(super) tree: TreeId,
    pub(super) role: Role,
    /// The backend that holds it; `None` where this service does.
    pub(super) backend: Option<Arc<Backend>>,
}

impl From<Allowed> for TreeRequest {
    fn from(Allowed { tree, role, backend }: Allowed) -> Self {
        let may_publish = role.may(Action::Baseline(tree.user(), tree.agent())).is_ok();
        Self { id: tree, backend, version: None, may_publish }
    }
}

/// The tree that the path names, if the caller may read it, or change it when the request `changes` it.
pub(super) async fn used_tree(parts: &mut Parts, app: &App, changes: bool) -> Result<Allowed, Problem> {
    let allowed = allowed_tree(parts, app, changes).await?;
    // A request to a backend is no use of what lies here.
    if allowed.backend.is_none() {
        app.service.note_use(WorkspaceId::of(&allowed.tree)).await?;
    }
    Ok(allowed)
}

/// As [`used_tree`], for a request that is no use of the tree.
pub(super) async fn allowed_tree(parts: &mut Parts, app: &App, changes: bool) -> Result<Allowed, Problem> {
    let Caller { role, .. } = caller(&app.access, &parts.headers)?;
    let (Some(user), Some(agent), skill) = named(parts, app).await? else {
        return Err(Problem::invalid("the path names no user and agent"));
    };
    request_log::tree(&user, &agent, skill.as_ref());
    role.may(if changes { Action::Change(&user, &agent) } else { Action::Read(&user, &agent) })?;
    admitted(app)?;
    let tree = match skill {
        Some(skill) => TreeId::Skill(user, agent, skill),
        None => TreeId::Workspace(user, agent),
    };
    let backend = remote::backend(parts, app, &tree)?;
    Ok(Allowed { tree, role, backend })
}

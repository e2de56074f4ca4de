//! A request for one tree.

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use policy::TreeId;

use super::caller::{admitted, caller};
use super::names::named;
use crate::access::{Action, Caller, Role};
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};
use crate::ops::preparations::Deploying;
use crate::ops::tree::Tree;

/// A request for one tree by a caller who may ask for it: reading for `GET` and `HEAD`, changing otherwise.
pub(in crate::http) struct TreeRequest {
    pub(in crate::http) tree: Tree,
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
    pub(in crate::http) tree: Tree,
}

impl FromRequestParts<App> for ChangingRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Allowed { tree, .. } = used_tree(parts, app, true).await?;
        Ok(Self { tree })
    }
}

/// A request that prepares a workspace.
pub(in crate::http) struct PreparingRequest {
    pub(in crate::http) tree: Tree,
    /// Whether the caller may have packages deployed.
    pub(in crate::http) deploying: Deploying,
}

impl FromRequestParts<App> for PreparingRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Allowed { tree, role } = used_tree(parts, app, true).await?;
        let deploying = match role.may(Action::Packages) {
            Ok(()) => Deploying::Allowed,
            Err(_) => Deploying::Denied,
        };
        Ok(Self { tree, deploying })
    }
}

/// A tree that the caller may ask for.
pub(super) struct Allowed {
    pub(super) tree: Tree,
    pub(super) role: Role,
}

impl From<Allowed> for TreeRequest {
    fn from(Allowed { tree, role }: Allowed) -> Self {
        let may_publish = role.may(Action::Baseline(tree.id().user(), tree.id().agent())).is_ok();
        Self { tree, may_publish }
    }
}

/// The tree that the path names, if the caller may read it, or change it when the request `changes` it.
pub(super) async fn used_tree(parts: &mut Parts, app: &App, changes: bool) -> Result<Allowed, Problem> {
    let allowed = allowed_tree(parts, app, changes).await?;
    allowed.tree.note_use().await?;
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
    let id = match skill {
        Some(skill) => TreeId::Skill(user, agent, skill),
        None => TreeId::Workspace(user, agent),
    };
    Ok(Allowed { tree: Tree::of(&app.service, id), role })
}

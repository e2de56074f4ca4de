//! A request about a sandbox as a whole, or about several.

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use policy::UserId;
use storage::WorkspaceId;

use super::caller::{admitted, caller};
use super::names::named;
use super::tree::{Allowed, allowed_tree};
use crate::access::{Action, Caller};
use crate::http::answer::problem::Problem;
use crate::http::{App, request_log};
use crate::ops::tree::Tree;

/// A request about a sandbox or skill as a whole, which is no use of it: looking for `GET`, removing otherwise.
pub(in crate::http) struct WorkspaceRequest {
    pub(in crate::http) id: WorkspaceId,
    /// The workspace, wherever it is, or the skill.
    pub(in crate::http) tree: Tree,
}

impl FromRequestParts<App> for WorkspaceRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let Allowed { tree, .. } = allowed_tree(parts, app, !reads).await?;
        Ok(Self { id: WorkspaceId::of(tree.id()), tree })
    }
}

/// A request about the sandboxes of one user, or of all.
pub(in crate::http) struct WorkspacesRequest {
    pub(in crate::http) user: Option<UserId>,
}

impl FromRequestParts<App> for WorkspacesRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Caller { role, .. } = caller(&app.access, &parts.headers)?;
        let (user, ..) = named(parts, app).await?;
        user.as_ref().inspect(|user| request_log::user(user));
        role.may(match (&user, &parts.method) {
            (Some(user), _) => Action::OfUser(user),
            (None, &Method::GET | &Method::HEAD) => Action::SeeAll,
            (None, _) => Action::RemoveAll,
        })?;
        admitted(app)?;
        Ok(Self { user })
    }
}

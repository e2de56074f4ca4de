//! Which requests a remote backend can be asked.

use std::sync::Arc;

use axum::extract::MatchedPath;
use axum::http::Method;
use axum::http::request::Parts;
use policy::TreeId;
use storage::WorkspaceId;

use crate::http::App;
use crate::http::problem::{Code, Problem};
use crate::ops::remote::Backend;

/// The beginning of the routes of a workspace.
const WORKSPACE: &str = "/v1/sandbox/{u}/{a}/";

/// Tells whether a backend can be asked, by the route's name below the workspace and the method.
fn is_supported(name: &str, method: &Method) -> bool {
    matches!(
        (name, method.as_str()),
        (
            "info"
                | "stat"
                | "dir"
                | "files"
                | "content"
                | "raw/{*path}"
                | "exec"
                | "exec/{exec_id}"
                | "terminal",
            "GET" | "HEAD"
        ) | ("edit" | "raw/{*path}", "PUT")
            | (
                "replace"
                    | "mkdir"
                    | "execute"
                    | "exec"
                    | "exec/{exec_id}/stdin"
                    | "exec/{exec_id}/signal"
                    | "prepare",
                "POST"
            )
            | ("file" | "raw/{*path}" | "exec/{exec_id}", "DELETE")
    )
}

/// The backend that holds `tree`; `None` where this service does.
///
/// # Errors
/// `unsupported`: the backend has nothing like the route.
pub(super) fn backend(parts: &Parts, app: &App, tree: &TreeId) -> Result<Option<Arc<Backend>>, Problem> {
    // One atomic load while no workspace is remote.
    if app.service.backends().is_empty() || !matches!(tree, TreeId::Workspace(..)) {
        return Ok(None);
    }
    let route = parts.extensions.get::<MatchedPath>();
    let Some(name) = route.and_then(|route| route.as_str().strip_prefix(WORKSPACE)) else { return Ok(None) };
    let Some(backend) = app.service.backends().get(&WorkspaceId::of(tree)) else { return Ok(None) };
    if is_supported(name, &parts.method) {
        return Ok(Some(backend));
    }
    let message = format!(
        "`{}`, where this workspace is, has nothing like it: use the other routes for files and commands",
        backend.name()
    );
    Err(Problem::new(Code::Unsupported, message))
}

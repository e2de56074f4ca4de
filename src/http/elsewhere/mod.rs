//! Workspaces that another backend answers for: the same routes, asked of a [`Sandbox`](sandbox::Sandbox).
//!
//! [`answer`] stands before the handlers of all routes. While [`Backends`](crate::ops::backends::Backends) is empty it costs
//! one atomic load; a workspace that is not in it goes on to the service's own handlers. For one that is, [`dispatch`] is
//! the whole table: what is not in it, no backend can be asked for, and the own handler's extractor says so, which knows who may
//! ask.
//!
//! The files of this folder have one endpoint each, and read requests by the structs of the own routes. Commands and their
//! names are the service's own business wherever they run, so those handlers are the own ones.

mod content;
mod dir;
mod edit;
mod files;
mod info;
mod mkdir;
mod raw;
mod remove;
mod replace;
mod stat;

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::handler::Handler;
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use policy::TreeId;

use super::App;
use super::answer::Answer;
use super::problem::{Code, Problem};
use super::request::{TreeRequest, workspace_of};
use super::tree::{exec, execute};
use crate::ops::elsewhere::Backend;

/// What the routes of a workspace begin with.
const WORKSPACE: &str = "/v1/sandbox/{u}/{a}/";

/// Goes with a request for a workspace that another backend answers for.
#[derive(Clone)]
pub(super) enum Lent {
    /// The backend can be asked.
    Served(Arc<Backend>),
    /// No backend can, which is told to whoever may ask.
    InVain(Arc<Backend>),
}

impl Lent {
    /// What to ask.
    ///
    /// # Errors
    /// `unsupported`.
    pub(super) fn backend(&self) -> Result<Arc<Backend>, Problem> {
        match self {
            Self::Served(backend) => Ok(Arc::clone(backend)),
            Self::InVain(backend) => {
                let message = format!(
                    "`{}`, where this workspace is, has nothing like it: use the other routes for files and commands",
                    backend.name()
                );
                Err(Problem::new(Code::Unsupported, message))
            }
        }
    }
}

/// Answers through the backend of the workspace, where it has one.
pub(super) async fn answer(app: App, request: Request, next: Next) -> Response {
    if app.service.backends.is_empty() {
        return next.run(request).await;
    }
    let route = request.extensions().get::<MatchedPath>().cloned();
    let Some(name) = route.as_ref().and_then(|route| route.as_str().strip_prefix(WORKSPACE)) else {
        return next.run(request).await;
    };
    let (mut parts, body) = request.into_parts();
    let workspace = workspace_of(&mut parts, &app).await;
    let Some(backend) = workspace.and_then(|workspace| app.service.backends.get(&workspace)) else {
        return next.run(Request::from_parts(parts, body)).await;
    };
    let method = parts.method.clone();
    parts.extensions.insert(Lent::Served(Arc::clone(&backend)));
    let request = Request::from_parts(parts, body);
    match dispatch(name, &method, request, app).await {
        Ok(response) => response,
        Err(mut request) => {
            request.extensions_mut().insert(Lent::InVain(backend));
            next.run(request).await
        }
    }
}

/// What a backend answers, by the route's name below the workspace and the method; the request, when there is nothing.
async fn dispatch(name: &str, method: &Method, request: Request, app: App) -> Result<Response, Request> {
    Ok(match (name, method.as_str()) {
        ("info", "GET" | "HEAD") => info::info.call(request, app).await,
        ("stat", "GET" | "HEAD") => stat::stat.call(request, app).await,
        ("dir", "GET" | "HEAD") => dir::dir.call(request, app).await,
        ("files", "GET" | "HEAD") => files::files.call(request, app).await,
        ("content", "GET" | "HEAD") => content::content.call(request, app).await,
        ("edit", "PUT") => edit::edit.call(request, app).await,
        ("replace", "POST") => replace::replace.call(request, app).await,
        ("mkdir", "POST") => mkdir::mkdir.call(request, app).await,
        ("file", "DELETE") => remove::by_query.call(request, app).await,
        ("raw/{*path}", "GET") => raw::get.call(request, app).await,
        ("raw/{*path}", "HEAD") => raw::head.call(request, app).await,
        ("raw/{*path}", "PUT") => raw::put.call(request, app).await,
        ("raw/{*path}", "DELETE") => remove::by_path.call(request, app).await,
        ("execute", "POST") => execute::execute.call(request, app).await,
        ("exec", "POST") => exec::exec.call(request, app).await,
        ("exec", "GET" | "HEAD") => exec::list::list.call(request, app).await,
        ("exec/{exec_id}", "GET" | "HEAD") => exec::one::get.call(request, app).await,
        ("exec/{exec_id}", "DELETE") => exec::one::delete.call(request, app).await,
        _ => return Err(request),
    })
}

/// A request for a workspace that a backend answers for, by somebody who may ask for it.
struct Elsewhere {
    id: TreeId,
    backend: Arc<Backend>,
}

impl FromRequestParts<App> for Elsewhere {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match TreeRequest::from_request_parts(parts, app).await? {
            TreeRequest { id, backend: Some(backend) } => Ok(Self { id, backend }),
            TreeRequest { backend: None, .. } => {
                Err(Problem::new(Code::Disconnected, "nothing answers for this workspace any more"))
            }
        }
    }
}

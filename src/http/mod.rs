//! REST. Each handler extracts, calls one operation of [`ops`](crate::ops), and wraps.
//!
//! [`routes`] has all routes on one screen, and `docs/API.md` describes each; [`problem`] is the only file that knows HTTP status
//! codes of failures.

mod answer;
mod audit;
mod body;
mod bounded;
mod client_connection;
mod compat;
mod conditional;
mod connections;
mod devbox;
mod disposition;
mod extract;
mod guard;
mod head;
mod host;
pub mod listen;
mod mcp;
mod meta;
mod methods;
mod object;
mod observe;
pub mod openapi;
mod packages;
mod page;
mod problem;
mod registry;
mod request_log;
mod request_span;
mod routes;
mod runners;
mod sandbox;
mod shares;
mod skills;
mod slow_body;
mod spooled;
mod status;
mod stream;
mod streamed;
mod time;
mod tokens;
mod tree;
mod under_way;
mod users;
mod whoami;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;

pub use self::routes::operations;
use crate::access::Access;
use crate::config::ConnectionLimits;
use crate::mcp::Mcp;
use crate::ops::Service;

/// The state that every handler gets.
#[derive(Clone)]
pub struct App {
    /// The operations of the service.
    pub service: Arc<Service>,
    /// Who may ask for it.
    pub access: Arc<Access>,
    /// Whether the operator said that something else guards the port, so that callers may use any name for it.
    pub is_guarded: bool,
    /// Origins of web pages that may ask, besides the service's own, such as `https://ide.example`.
    pub allowed_origins: Arc<[String]>,
    /// Whether each request has a line in the log.
    pub logs_requests: bool,
    /// How slow callers may be.
    pub connections: ConnectionLimits,
    /// The MCP server, where it is switched on.
    pub mcp: Option<Arc<Mcp>>,
    /// Whether the doors for clients of other vendors' registries of skills are there.
    pub has_compat: bool,
    /// What share links begin with, which may be nothing, where there are any.
    pub shares: Option<Arc<str>>,
    /// The longest time for which a signed token can be issued, in seconds.
    pub token_seconds_max: u64,
}

/// The service's own routes, with what happens around each.
pub fn router(app: App) -> Router {
    routes::router(&app)
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::no_method)
        // Handlers bound their bodies themselves, each with its own limit.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(app.clone(), enter))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app)
}

/// Comes before the handler of each route: no foreign page and no ambiguous head gets there. One layer for both checks,
/// because each layer costs half a microsecond.
async fn enter(State(app): State<App>, request: Request, next: Next) -> Response {
    match guard::same_origin(&app, &request).and_then(|()| head::check(&request)) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

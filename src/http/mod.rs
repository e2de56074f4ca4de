//! REST. Each handler extracts, calls one operation of [`ops`](crate::ops), and wraps.
//!
//! [`routes`] has all routes on one screen, and `docs/API.md` describes each.
//!
//! | A request passes | which |
//! | --- | --- |
//! | [`connection`] | accepts connections, and lets one give way when there are too many |
//! | [`middleware`] | gives each request an id, a line in the log and a record; refuses foreign pages and ambiguous heads |
//! | [`extract`] | reads caller, tree, parameters, conditions and body, each checked before a handler sees it |
//! | the folder of its route | calls one operation of [`ops`](crate::ops) |
//! | [`answer`] | writes the answer; [`answer::problem`] alone knows HTTP status codes of failures |
//!
//! What becomes known of the request on this way is noted in [`request_log`].

mod answer;
mod compat;
pub mod connection;
mod devbox;
mod extract;
mod mcp;
mod methods;
mod middleware;
pub mod openapi;
mod packages;
mod request_log;
mod routes;
mod runners;
mod service;
mod shares;
mod skills;
mod tree;
mod users;
mod workspaces;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;

pub use self::routes::operations;
use crate::access::Access;
use crate::config::{ConnectionLimits, SkillRules};
use crate::mcp::Mcp;
use crate::ops::Service;

/// The state that every handler gets. A request is given it for each layer and handler that it passes, so it is one pointer.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

/// The parts of [`App`].
pub struct AppParts {
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
    /// What the doors for clients of other vendors' registries of skills do about skills with warnings, where they are there.
    pub compat: Option<SkillRules>,
    /// What share links begin with, which may be nothing, where there are any.
    pub shares: Option<Arc<str>>,
    /// The longest time for which a signed token can be issued, in seconds.
    pub token_seconds_max: u64,
}

impl From<AppParts> for App {
    fn from(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

/// The service's own routes, with what happens around each.
pub fn router(app: App) -> Router {
    routes::router(&app)
        .fallback(answer::problem::no_route)
        .method_not_allowed_fallback(answer::problem::no_method)
        .layer(from_fn_with_state(app.clone(), middleware::observe::observe))
        .with_state(app)
}

//! REST: one screen of routes. Each handler extracts, calls one operation of [`ops`](crate::ops), and wraps.
//!
//! `docs/API.md` describes every route; [`problem`] is the only file that knows HTTP status codes of failures.

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
mod object;
mod observe;
pub mod openapi;
mod packages;
mod page;
mod problem;
mod registry;
mod request_log;
mod request_span;
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
use axum::routing::{MethodRouter, any, delete, get, post, put};
use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;

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

/// Every operation: method, path, handler.
///
/// `{u}`, `{a}`, `{s}` are user, agent and skill. The routes below [`tree_routes`] exist for both kinds of trees.
pub fn router(app: App) -> Router {
    let skill = "/v1/skills/{u}/{a}/{s}";
    let mcp = if app.mcp.is_some() { mcp_routes() } else { Router::new() };
    let compat = if app.has_compat { compat_routes() } else { Router::new() };
    let shares = if app.shares.is_some() { share_routes() } else { Router::new() };
    let devboxes = if app.service.devbox_table().is_some() { devbox_routes() } else { Router::new() };
    Router::new()
        .route("/", get(openapi::root))
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/metrics", get(meta::metrics))
        .route("/openapi.json", get(openapi::json))
        .route("/docs", get(openapi::html))
        .route("/v1/info", get(meta::info))
        .route("/v1/whoami", get(whoami::whoami))
        .route("/v1/tokens", get(tokens::list).post(tokens::issue).delete(tokens::revoke_all))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .route("/v1/audit", get(audit::list))
        .route("/v1/registry", get(registry::list))
        .route("/v1/registry/rebuild", post(registry::rebuild))
        .route("/v1/packages/{version}", get(packages::get).put(packages::put).head(packages::head))
        .route("/v1/users", get(users::list::list))
        .route("/v1/users/{u}", get(users::one::one).delete(users::remove::remove))
        .route("/v1/agents", get(users::agents::list))
        .route(
            "/v1/agents/{a}/policy",
            get(users::policy::show).put(users::policy::set).delete(users::policy::unset),
        )
        .route("/v1/runs", get(users::runs::list))
        .route("/v1/usage", get(users::usage::list))
        .route("/ws/{u}", get(runners::connect::connect))
        .route("/v1/runners/{u}", get(runners::manage::list))
        .route("/v1/runners/{u}/{runner}", delete(runners::manage::revoke))
        .route("/v1/runners/{u}/{runner}/choose", post(runners::manage::choose))
        .route("/v1/runners/{u}/{runner}/cut", post(runners::manage::cut))
        .route("/v1/transfers/{transfer}", get(runners::transfer::fetch).put(runners::transfer::send))
        .route("/v1/transfers/{transfer}/received", get(runners::transfer::received))
        .route("/v1/skills/{u}/{a}/upload", post(skills::upload::upload))
        .route("/v1/skills/{u}/{a}/list", get(skills::list::list))
        .route("/v1/skills/{u}/{a}/catalog", get(skills::catalog::catalog))
        .route(skill, delete(skills::remove::remove))
        .route(&format!("{skill}/reset"), post(skills::reset::reset))
        .route(&format!("{skill}/download"), get(skills::download::download))
        .route(&format!("{skill}/diff"), get(skills::diff::diff))
        .route(&format!("{skill}/versions"), get(skills::versions::list))
        .route(
            &format!("{skill}/versions/{{v}}"),
            get(skills::versions::one).delete(skills::versions::remove),
        )
        .route(
            &format!("{skill}/versions/{{v}}/pin"),
            put(skills::versions::pin).delete(skills::versions::unpin),
        )
        .route(&format!("{skill}/versions/{{v}}/download"), get(skills::version_download::download))
        .route(&format!("{skill}/rollback"), post(skills::versions::rollback))
        .route(&format!("{skill}/promote"), post(skills::promote::promote))
        .route(&format!("{skill}/pull"), post(skills::promote::pull))
        .route("/v1/sandbox", get(sandbox::list::list).delete(sandbox::remove::all))
        .route("/v1/sandbox/{u}", get(sandbox::list::list).delete(sandbox::remove::of_user))
        .route("/v1/sandbox/{u}/{a}", get(sandbox::usage::usage).delete(sandbox::remove::one))
        .route("/v1/sandbox/{u}/{a}/info", get(sandbox::info::info))
        .route("/v1/sandbox/{u}/{a}/prepare", post(sandbox::prepare::prepare))
        .route("/v1/sandbox/{u}/{a}/snapshots", get(sandbox::snapshots::list).post(sandbox::snapshots::take))
        .route(
            "/v1/sandbox/{u}/{a}/snapshots/{snapshot}",
            get(sandbox::snapshots::one).delete(sandbox::snapshots::remove),
        )
        .route("/v1/sandbox/{u}/{a}/snapshots/{snapshot}/restore", post(sandbox::restore::restore))
        .route("/v1/sandbox/{u}/{a}/snapshots/{snapshot}/fork", post(sandbox::restore::fork))
        .route("/v1/ports/{token}/", any(tree::ports::pass::of_link))
        .route("/v1/ports/{token}/{*path}", any(tree::ports::pass::of_link))
        .merge(devboxes)
        .merge(mcp)
        .merge(compat)
        .merge(shares)
        .merge(tree_routes(skill))
        .merge(tree_routes("/v1/sandbox/{u}/{a}"))
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

/// The MCP server, where it is switched on.
fn mcp_routes() -> Router<App> {
    Router::new().route("/mcp", post(mcp::own)).route("/mcp/{u}/{a}", post(mcp::named))
}

/// The doors for clients of other vendors' registries of skills, where they are switched on.
fn compat_routes() -> Router<App> {
    Router::new()
        .route("/compat/anthropic/a/{a}/{*path}", any(compat::anthropic::serve))
        .route("/compat/anthropic/u/{u}/a/{a}/{*path}", any(compat::anthropic::serve))
        .route("/compat/openai/a/{a}/v1/{*path}", any(compat::openai::serve))
        .route("/compat/openai/u/{u}/a/{a}/v1/{*path}", any(compat::openai::serve))
}

/// Links by which installers read skills, where they are switched on.
fn share_routes() -> Router<App> {
    Router::new()
        .route("/v1/shares/{u}/{a}", get(shares::manage::list).post(shares::manage::make))
        .route("/v1/shares/{u}/{a}/{share}", delete(shares::manage::revoke))
        .route("/s/{share}/", any(shares::read::serve))
        .route("/s/{share}/{*path}", any(shares::read::serve))
}

/// The devbox dialect, where it is switched on.
fn devbox_routes() -> Router<App> {
    Router::new()
        .route("/api/v1/devbox", post(devbox::life::create))
        .route("/api/v1/devbox/{name}", get(devbox::life::info).delete(devbox::life::delete))
        .route("/api/v1/devbox/{name}/pause", post(devbox::life::pause))
        .route("/api/v1/devbox/{name}/stop", post(devbox::life::stop))
        .route("/api/v1/devbox/{name}/resume", post(devbox::life::resume))
        .route("/api/v1/devbox/{name}/exec", post(devbox::exec::exec))
        .route("/api/v1/devbox/{name}/files/upload", post(devbox::files::upload))
        .route("/api/v1/devbox/{name}/files/download", get(devbox::files::download))
}

fn tree_routes(tree: &str) -> Router<App> {
    let routes: [(&str, MethodRouter<App>); 27] = [
        ("files", get(tree::files::files)),
        ("content", get(tree::content::content)),
        ("edit", put(tree::edit::edit)),
        ("events", get(tree::events::events)),
        ("execute", post(tree::execute::execute)),
        ("exec", post(tree::exec::exec).get(tree::exec::list::list)),
        ("exec/{exec_id}", get(tree::exec::one::get).delete(tree::exec::one::delete)),
        ("exec/{exec_id}/commit", post(tree::exec::decide::commit)),
        ("exec/{exec_id}/discard", post(tree::exec::decide::discard)),
        ("exec/{exec_id}/stdin", post(tree::exec::stdin::stdin)),
        ("exec/{exec_id}/signal", post(tree::exec::signal::signal)),
        ("terminal", get(tree::terminal::terminal)),
        ("ports", get(tree::ports::list).post(tree::ports::link)),
        ("ports/{port}/", any(tree::ports::pass::of_tree)),
        ("ports/{port}/{*path}", any(tree::ports::pass::of_tree)),
        ("replace", post(tree::replace::replace)),
        ("patch", post(tree::patch::patch)),
        ("copy", post(tree::copy::copy)),
        ("glob", get(tree::glob::glob)),
        ("grep", post(tree::grep::grep)),
        ("stat", get(tree::stat::stat)),
        ("dir", get(tree::dir::dir)),
        ("mkdir", post(tree::mkdir::mkdir)),
        ("move", post(tree::rename::rename)),
        ("file", delete(tree::remove::remove)),
        ("archive", get(tree::archive::get).put(tree::archive::put)),
        (
            "raw/{*path}",
            get(tree::raw::get).put(tree::raw::put).delete(tree::raw::delete).head(tree::raw::head),
        ),
    ];
    routes
        .into_iter()
        .fold(Router::new(), |router, (name, methods)| router.route(&format!("{tree}/{name}"), methods))
}

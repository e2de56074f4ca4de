//! `ANY T/ports/{port}/{path}` and `ANY /v1/ports/{token}/{path}`: one request on its way to a server in a sandbox.
//!
//! Each request has a connection of its own. Bodies go both ways as they come, and nothing of them is kept. A WebSocket is
//! carried as bytes once both sides have agreed on it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use policy::{AgentId, UserId};
use tokio::time::Instant;

use super::paced::{Activity, Answered, Link, Sent};
use super::relay::relay;
use super::target::Target;
use super::{answer_head, request_head};
use crate::access::{Caller, Role, now};
use crate::http::answer::bare;
use crate::http::answer::problem::{Code, Problem};
use crate::http::extract::body;
use crate::http::extract::{ChangingRequest, Local};
use crate::http::{App, request_log};
use crate::ops::Error;
use crate::ops::ports::Reached;

/// Largest head of an answer, in bytes, and how many headers it may have.
const HEAD_BYTES: usize = 64 * 1024;
const HEADERS: usize = 128;
/// Where a browser says what a script is for (Service Workers, section 4.5).
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// A caller's way to one port.
struct Visit {
    user: UserId,
    agent: AgentId,
    port: u16,
    target: Target,
    /// Whether it comes by a link, which the server is not told.
    is_link: bool,
    /// When the right to it expires.
    until: Option<Instant>,
}

pub(in crate::http) async fn of_tree(
    State(app): State<App>,
    Local(ChangingRequest { tree }): Local<ChangingRequest>,
    request: Request,
) -> Result<Response, Problem> {
    let target = Target::of(&request)?;
    let id = tree.local()?;
    let (user, agent) = (id.user().clone(), id.agent().clone());
    let visit = Visit { user, agent, port: target.port()?, target, is_link: false, until: None };
    pass(&app, visit, request).await
}

pub(in crate::http) async fn of_link(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let target = Target::of(&request)?;
    let link = app.access.link(&target.name).map_err(|_| {
        request_log::refused();
        Problem::new(Code::Unauthenticated, "this link does not count, or no longer: ask for another one")
    })?;
    let role = Role::User { user: link.user.clone(), agent: Some(link.agent.clone()) };
    request_log::caller(&Caller { role, token: format!("link:{}", link.id) });
    request_log::tree(&link.user, &link.agent, None);
    if is_preflight(&request) {
        let mut response = bare(StatusCode::NO_CONTENT);
        answer_head::allow_pages(response.headers_mut());
        return Ok(response);
    }
    let left = Duration::from_secs(link.expires.saturating_sub(now()));
    let until = Some(Instant::now() + left);
    let visit = Visit { user: link.user, agent: link.agent, port: link.port, target, is_link: true, until };
    pass(&app, visit, request).await
}

/// Whether a browser asks what a page may send (<https://fetch.spec.whatwg.org/#cors-preflight-request>).
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(axum::http::header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Passes a request on, and the answer back.
async fn pass(app: &App, visit: Visit, mut request: Request) -> Result<Response, Problem> {
    if request.headers().contains_key(&SERVICE_WORKER) {
        let message = "a page of a sandbox can have no service worker: it would be one of this origin";
        return Err(Problem::new(Code::Denied, message));
    }
    let limits = app.service.port_limits().clone();
    let (head_patience, idle) =
        (Duration::from_millis(limits.head_ms), Duration::from_millis(limits.idle_ms));
    let Visit { user, agent, port, target, is_link, until } = visit;
    let broken = |_| broken(port);
    let Reached { stream, permit } = app.service.reach(&user, &agent, port).await?;

    let is_websocket = request_head::asks_for_websocket(request.method(), request.headers());
    let upgrading = is_websocket.then(|| hyper::upgrade::on(&mut request));
    let (parts, sent_body) = request.into_parts();
    let prefix = (!is_link).then_some(target.prefix.as_str());
    let head = request_head::head(parts.method, target.rest.clone(), &parts.headers, port, prefix);
    let activity = Activity::new();
    let sent = hyper::Request::from_parts(head, Sent { body: sent_body, activity: activity.clone() });

    let (mut sender, connection) = client().handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = tokio::spawn(async move {
        // What it fails of is told to the sender.
        let _ = connection.with_upgrades().await;
    });
    let link = Link { connection, _permit: permit };
    let answered = tokio::select! {
        answered = sender.send_request(sent) => answered.map_err(broken)?,
        () = activity.silent_for(head_patience) => {
            return Err(Error::PortSilent { port, seconds: head_patience.as_secs() }.into());
        }
    };

    let status = answered.status();
    let host = format!("localhost:{port}");
    let headers = answer_head::head(status, answered.headers(), &target.prefix, &host, is_link);
    let body = match (status.as_u16(), upgrading) {
        (101, Some(upgrading)) => {
            let stop = app.service.until_stopped();
            tokio::spawn(async move {
                tokio::select! {
                    () = carry(upgrading, answered, link, idle, until) => {}
                    () = stop.cancelled() => {}
                }
            });
            Body::empty()
        }
        (200..=599, _) => Body::new(Answered::new(answered.into_body(), idle, until, link)),
        _ => return Err(Error::PortBroken { port }.into()),
    };
    let mut response = (status, body).into_response();
    *response.headers_mut() = headers;
    Ok(response)
}

/// What is said when a request could not be passed on: the body came too slowly, or the server broke off.
fn broken(port: u16) -> Problem {
    if request_log::is_slow() { body::broken() } else { Error::PortBroken { port }.into() }
}

/// Carries a WebSocket's bytes when both connections have become one.
async fn carry(
    upgrading: hyper::upgrade::OnUpgrade,
    answered: hyper::Response<Incoming>,
    link: Link,
    idle: Duration,
    until: Option<Instant>,
) {
    let of_server = hyper::upgrade::on(answered);
    // A caller that goes away before it has the answer lets its half fail.
    if let Ok((caller, server)) = tokio::try_join!(upgrading, of_server) {
        relay(TokioIo::new(caller), TokioIo::new(server), idle, until).await;
    }
    drop(link);
}

fn client() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    builder
}

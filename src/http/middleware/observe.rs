//! The steps around every request: an id, the checks of its head, a line in the log, figures, perhaps a span, and for changes an audit
//! record.
//!
//! They are one layer, because each layer around all routes costs a request some allocations: the handler and the layers below it
//! are copied in each.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use http_body::Body as _;
use policy::Scope;

use crate::audit::record::now;
use crate::audit::{Effect, Entry, UNANSWERED};
use crate::http::App;
use crate::http::answer::problem::{self, Failed, Problem};
use crate::http::compat::failure;
use crate::http::devbox::dialect;
use crate::http::middleware::guard;
use crate::http::middleware::head;
use crate::http::middleware::request_span::RequestSpan;
use crate::http::middleware::slow_body::{Pace, SlowBody};
use crate::http::request_log::{self, Noted, RequestLog};
use crate::telemetry::context;

/// The name under which requests to no route are counted.
const NO_ROUTE: &str = "none";

/// Answers a request, and tells of it.
pub(in crate::http) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let method = word(request.method());
    let facts = Arc::new(RequestLog::new(request.headers(), matched.is_some() && is_change(method, route)));
    let traced = RequestSpan::begin(&app, request.headers(), method, route, &facts);
    let request = paced(request, &app, &facts);

    // In a box, because what it takes to answer a request is some kilobytes, and each of these steps would move them.
    let answering = Box::pin(answer(&app, &facts, method, route, request, next));
    let answering = context::within(traced.as_ref().map(|traced| traced.context), answering);
    let response = request_log::scope_of(Arc::clone(&facts), answering).await;
    let response = dialect::translated(route, response);
    let mut response = failure::translated(route, &facts.id, response);

    let code = response.extensions().get::<Failed>().map(|failed| failed.0);
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    app.service.metrics().answered(route, method, status, code, took);
    if let Some(traced) = traced {
        traced.answered(status, code);
    }
    if app.logs_requests {
        facts.tell(|noted| log(&facts, noted, method, route, status, took));
    }
    if let Ok(value) = HeaderValue::try_from(facts.id.as_str()) {
        response.headers_mut().insert(request_log::REQUEST_ID, value);
    }
    response
}

/// Answers a request, a change not without room for a record about it.
async fn answer(
    app: &App,
    facts: &Arc<RequestLog>,
    method: &'static str,
    route: &str,
    request: Request,
    next: Next,
) -> Response {
    let action = || format!("{method} {route}");
    let audit = app.service.audit();
    let slot = match facts.is_change.then(|| audit.reserve()).transpose() {
        Ok(slot) => slot,
        Err(error) => return Problem::from(error).into_response(),
    };
    let slot = slot.map(|mut slot| {
        let (left, of_left) = (Arc::clone(facts), action());
        slot.expect(move || {
            let noted = left.noted();
            (noted.account(), entry(&left, noted, of_left, None))
        });
        slot
    });
    let response = guarded(app, request, next).await;
    let Some(slot) = slot else {
        if facts.is_refused() {
            let noted = facts.noted();
            audit.note_refused(&noted.account(), entry(facts, noted, action(), Some(&response)));
        }
        return response;
    };
    let noted = facts.noted();
    let account = noted.account();
    if noted.caller.is_none() {
        // An unknown caller did nothing; a bounded number of such requests is recorded.
        slot.release();
        if noted.is_refused {
            audit.note_refused(&account, entry(facts, noted, action(), Some(&response)));
        }
        return response;
    }
    let effect = effect(&noted, &response);
    match slot.charge(&account, effect, entry(facts, noted, action(), Some(&response))).await {
        Ok(()) => response,
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Has the handler answer, where no foreign page and no ambiguous head asks, and answers for one that panics.
async fn guarded(app: &App, request: Request, next: Next) -> Response {
    let answering = async {
        match guard::same_origin(app, &request).and_then(|()| head::check(&request)) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        }
    };
    AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(problem::panicked)
}

/// Tells by its answer whether a request for a change may have changed something. A run may, however it ended.
fn effect(noted: &Noted, response: &Response) -> Effect {
    // Limits on the disk are judged before anything is changed.
    let is_quota = response.extensions().get::<Failed>().is_some_and(|failed| failed.0 == "quota");
    let changed_nothing = response.status().is_client_error() || is_quota;
    if changed_nothing && noted.program.is_none() { Effect::Nothing } else { Effect::Change }
}

/// Tells whether a request may change something, by what it asks for and not by what comes of it.
fn is_change(method: &str, route: &str) -> bool {
    // A terminal is a `GET` only because a WebSocket begins with one, a search a `POST` only because it has a body. What is
    // passed on to a server in a sandbox changes nothing that is the service's.
    let is_passed_on = route.contains("/ports/{");
    // A part of the agent's request, which is the change: the runner's connection carries its bytes.
    let is_transfer = route.starts_with("/v1/transfers/");
    // Whether a message changes something is known when it is read: each such call has a record of its own.
    let is_message = matches!(route, "/mcp" | "/mcp/{u}/{a}");
    // Who has a share link reads by it, whatever the method, and anybody reads a catalog that needs none.
    let is_share = route.starts_with("/s/") || route.starts_with("/catalog/");
    let reads = matches!(method, "GET" | "HEAD" | "OPTIONS")
        || is_message
        || route.ends_with("/grep")
        || is_passed_on
        || is_transfer
        || is_share;
    !reads || route.ends_with("/terminal")
}

fn paced(request: Request, app: &App, facts: &Arc<RequestLog>) -> Request {
    if request.body().is_end_stream() {
        return request;
    }
    let pace = Pace {
        idle: Duration::from_millis(app.connections.body_idle_ms),
        bytes_per_second: app.connections.body_bytes_per_second,
    };
    let is_coming = !request.headers().contains_key(axum::http::header::EXPECT);
    request.map(|body| Body::new(SlowBody::new(body, pace, is_coming, Arc::clone(facts))))
}

/// The record of a request; without an answer when its caller had left.
fn entry(facts: &RequestLog, noted: Noted, action: String, response: Option<&Response>) -> Entry {
    let code = response.and_then(|response| response.extensions().get::<Failed>()).map(|failed| failed.0);
    let outcome = if response.is_some() { code.unwrap_or("ok") } else { UNANSWERED };
    let (role, token) = noted.caller.map(|caller| (caller.role.word().to_owned(), caller.token)).unzip();
    let (action, door) = match noted.stands_for {
        Some((action, door)) => (action.to_owned(), Some(door.to_owned())),
        None => (action, None),
    };
    let more = noted.paths_total.saturating_sub(noted.paths.len());
    Entry {
        time: now(),
        request: Some(facts.id.clone()),
        caller_request: facts.caller_id.clone(),
        role,
        token,
        user: noted.user.map(|user| user.to_string()),
        action,
        door,
        tree: noted.tree,
        to: noted.to,
        snapshot: noted.snapshot,
        scope: noted.scope.filter(|scope| *scope == Scope::Baseline).map(|scope| scope.to_string()),
        paths: noted.paths.into_iter().map(Into::into).collect(),
        more_paths: u64::try_from(more).unwrap_or(u64::MAX),
        agent: noted.agent.map(|agent| agent.to_string()),
        before: noted.before,
        after: noted.after,
        dry_run: noted.dry_run,
        program: noted.program,
        run: noted.run,
        issued: noted.issued,
        outcome: outcome.to_owned(),
        status: response.map(|response| response.status().as_u16()),
        ..Entry::default()
    }
}

/// One line a request. No query, body or token, and no path but the route's template.
fn log(facts: &RequestLog, noted: &Noted, method: &str, route: &str, status: u16, took: Duration) {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    tracing::info!(
        target: "filesecbox::request",
        request_id = %facts.id,
        caller_request_id = facts.caller_id,
        method,
        route,
        status,
        took_us,
        user = noted.user.as_ref().map(tracing::field::display),
        role = noted.caller.as_ref().map(|caller| caller.role.word()),
        token = noted.caller.as_ref().map(|caller| caller.token.as_str()),
        "answered"
    );
}

/// The methods that routes have; any other is counted as one.
fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_change_by_what_it_is_for() {
        for (method, route, expected) in [
            ("GET", "/v1/sandbox/{u}/{a}/files", false),
            ("HEAD", "/v1/sandbox/{u}/{a}/raw/{*path}", false),
            ("POST", "/v1/sandbox/{u}/{a}/grep", false),
            ("GET", "/v1/sandbox/{u}/{a}/terminal", true),
            ("POST", "/v1/sandbox/{u}/{a}/exec", true),
            ("POST", "/v1/sandbox/{u}/{a}/ports", true),
            ("POST", "/v1/sandbox/{u}/{a}/ports/{port}/{*path}", false),
            ("DELETE", "/v1/ports/{token}/{*path}", false),
            ("PUT", "/v1/transfers/{transfer}", false),
            ("POST", "/mcp/{u}/{a}", false),
            ("POST", "/mcp", false),
            ("POST", "/s/{share}/{*path}", false),
            ("POST", "/catalog/{a}/{*path}", false),
            ("DELETE", "/catalog/{a}/", false),
            ("POST", "/v1/shares/{u}/{a}", true),
            ("PUT", "/v1/sandbox/{u}/{a}/raw/{*path}", true),
            ("DELETE", "/v1/skills/{u}/{a}/{s}", true),
            ("other", "/v1/skills/{u}/{a}/{s}", true),
        ] {
            assert_eq!(is_change(method, route), expected, "{method} {route}");
        }
    }
}

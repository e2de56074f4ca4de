//! The envelope `{code, message, data}`, in which `code` is the status, and the statuses of failures.
//!
//! Adapters repeat a request that got 502, 503 or 504, for half a minute: only what a repetition helps gets such a status.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem, Sentence};
use crate::http::answer::status;

/// The beginning of the paths of the dialect.
const ROUTES: &str = "/api/v1/devbox";
/// How long adapters repeat a request, in seconds.
const REPEATED_SECONDS: u64 = 30;

#[derive(Serialize)]
struct Envelope<T> {
    code: u16,
    message: &'static str,
    data: T,
}

/// Answers with `data`.
pub(super) fn success(data: impl Serialize) -> Answer {
    let envelope = Envelope { code: StatusCode::OK.as_u16(), message: "ok", data };
    let body = serde_json::to_vec(&envelope)
        .map_err(|error| Problem::invalid(format!("the answer cannot be written as JSON: {error}")))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Says a failure of a route of the dialect in the dialect; any other answer stays as it is.
pub(in crate::http) fn translated(route: &str, mut response: Response) -> Response {
    // Which methods a route has is the service's own word.
    if !route.starts_with(ROUTES) || response.status() == StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let Some(Sentence(message)) = response.extensions_mut().remove::<Sentence>() else { return response };
    let status = status(&response);
    let (mut parts, _) = response.into_parts();
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = json!({ "code": status.as_u16(), "message": message, "data": Value::Null });
    Response::from_parts(parts, body.to_string().into())
}

/// The status of a failure whose service's own one `response` has.
fn status(response: &Response) -> StatusCode {
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS if is_soon(response) => StatusCode::SERVICE_UNAVAILABLE,
        // What did not answer in time may have begun: it is not to be begun again.
        StatusCode::GATEWAY_TIMEOUT => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    }
}

/// Tells whether another try may succeed while adapters still try.
fn is_soon(response: &Response) -> bool {
    let seconds = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    seconds.and_then(|seconds| seconds.parse::<u64>().ok()).is_none_or(|seconds| seconds <= REPEATED_SECONDS)
}

/// The statuses that a failure with the code may have in the dialect.
pub(in crate::http) fn statuses(code: Code) -> Vec<StatusCode> {
    match status::of(code) {
        StatusCode::TOO_MANY_REQUESTS => {
            vec![StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE]
        }
        StatusCode::GATEWAY_TIMEOUT => vec![StatusCode::INTERNAL_SERVER_ERROR],
        status => vec![status],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(problem: Problem) -> (u16, Value) {
        let response = translated("/api/v1/devbox/{name}", problem.into_response());
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_failure_is_repeated_only_where_that_may_help() {
        for (problem, status) in [
            (Problem::busy("busy", 1), 503),
            (Problem::busy("busy", 30), 503),
            (Problem::busy("full", 60), 429),
            (Problem::new(Code::Disconnected, "stopping"), 503),
            (Problem::new(Code::Timeout, "late"), 500),
            (Problem::new(Code::Conflict, "paused"), 409),
            (Problem::new(Code::NotFound, "not found"), 404),
        ] {
            let (told, body) = told(problem).await;
            assert_eq!(told, status, "{body}");
            assert_eq!(body["code"], status);
            assert!(body["message"].is_string() && body["data"].is_null(), "{body}");
        }
    }

    #[test]
    fn other_routes_keep_their_own_envelope() {
        let response = translated("/v1/info", Problem::busy("busy", 1).into_response());
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

//! Failures in the words of the vendors, whose clients choose an exception by status and repeat what they may.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::request::Door;
use crate::http::answer::problem::{Code, Failed, Sentence};
use crate::http::answer::status;

/// The header by which a server says whether a request is to be repeated.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The header in which clients of one vendor look for the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Says a failure of a route of a door in the words of its vendor, and gives each of its answers the id of its request. Any
/// other answer stays as it is.
pub(in crate::http) fn translated(route: &str, id: &str, mut response: Response) -> Response {
    let Some(door) = Door::of(route) else { return response };
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let failed = response.extensions().get::<Failed>().and_then(|failed| Code::parse(failed.0));
    let sentence = response.extensions_mut().remove::<Sentence>();
    let (Some(code), Some(Sentence(message))) = (failed, sentence) else { return response };
    let status = status_of(code);
    let (mut parts, _) = response.into_parts();
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    if is_final(code) {
        parts.headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    let body = match door {
        Door::Anthropic => anthropic(code, &message, id),
        Door::OpenAi => openai(code, status, &message),
    };
    Response::from_parts(parts, body.to_string().into())
}

fn anthropic(code: Code, message: &str, id: &str) -> Value {
    let kind = match status_of(code) {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    let details = json!({ "error_code": code.word() });
    let error = json!({ "type": kind, "message": message, "details": details });
    json!({ "type": "error", "error": error, "request_id": id })
}

fn openai(code: Code, status: StatusCode, message: &str) -> Value {
    let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code.word() } })
}

/// The status of a failure: that of the service, but for what the vendors have no other status for than "bad request".
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::BadArchive
        | Code::PathEscape
        | Code::Unsupported
        | Code::UnsupportedMedia
        | Code::AlreadyExists => StatusCode::BAD_REQUEST,
        code => status::of(code),
    }
}

/// Tells whether clients would repeat a request that no repetition helps: they repeat all that is 409 or from 500 on.
fn is_final(code: Code) -> bool {
    let status = status_of(code);
    status == StatusCode::CONFLICT || status == StatusCode::INSUFFICIENT_STORAGE
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;
    use crate::http::answer::problem::Problem;

    async fn told(route: &str, problem: Problem) -> (u16, Option<String>, Value) {
        let response = translated(route, "1-2", problem.into_response());
        let (parts, body) = response.into_parts();
        let retry = parts.headers.get(SHOULD_RETRY).map(|value| value.to_str().unwrap().to_owned());
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (parts.status.as_u16(), retry, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn each_code_has_the_status_and_type_by_which_clients_choose_an_exception() {
        for (code, status, kind, is_final) in [
            (Code::Invalid, 400, "invalid_request_error", false),
            (Code::BadArchive, 400, "invalid_request_error", false),
            (Code::AlreadyExists, 400, "invalid_request_error", false),
            (Code::Unauthenticated, 401, "authentication_error", false),
            (Code::Denied, 403, "permission_error", false),
            (Code::NotFound, 404, "not_found_error", false),
            (Code::TooSlow, 408, "timeout_error", false),
            (Code::Conflict, 409, "invalid_request_error", true),
            (Code::TooLarge, 413, "request_too_large", false),
            (Code::Busy, 429, "rate_limit_error", false),
            (Code::Internal, 500, "api_error", false),
            (Code::Quota, 507, "api_error", true),
            (Code::Disconnected, 503, "overloaded_error", false),
            (Code::Timeout, 504, "timeout_error", false),
        ] {
            let retry = is_final.then(|| "false".to_owned());
            let (told_status, told_retry, body) =
                told("/compat/anthropic/a/{a}/{*path}", Problem::new(code, "m")).await;
            assert_eq!((told_status, &told_retry), (status, &retry), "{code:?}");
            assert_eq!(body["error"]["type"], kind, "{code:?}");
            assert_eq!(body["error"]["details"]["error_code"], code.word());
            assert_eq!((&body["type"], &body["request_id"]), (&json!("error"), &json!("1-2")));
            let (told_status, told_retry, body) =
                told("/compat/openai/a/{a}/v1/{*path}", Problem::new(code, "m")).await;
            assert_eq!((told_status, told_retry), (status, retry), "{code:?}");
            assert_eq!(body["error"]["code"], code.word());
        }
        assert_eq!(told("/v1/info", Problem::new(Code::Conflict, "m")).await.2["status"], "error");
    }
}

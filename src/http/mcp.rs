//! `POST /mcp/{u}/{a}` and `POST /mcp`

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;

use super::answer::Answer;
use super::extract::{Known, McpRequest, NoParams};
use crate::http::App;
use crate::http::answer::problem::{Code, Problem};
use crate::http::extract::body;
use crate::mcp::MESSAGE_BYTES_MAX;
use crate::mcp::message::{self, Refused, VALUES_MAX};

/// A message about the workspace that the path names.
pub(super) async fn named(
    State(app): State<App>,
    message: McpRequest,
    _: NoParams,
    request: Request,
) -> Answer {
    answer(&app, message, request).await
}

/// A message about the workspace of the token's user.
pub(super) async fn own(
    State(app): State<App>,
    _: Known,
    _: NoParams,
    message: McpRequest,
    request: Request,
) -> Answer {
    answer(&app, message, request).await
}

async fn answer(app: &App, McpRequest { mcp, target }: McpRequest, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let bytes = body::collect(app, body, MESSAGE_BYTES_MAX).await?;
    match message::check(&bytes) {
        Ok(()) => {}
        Err(Refused::Batch) => {
            return Ok((StatusCode::BAD_REQUEST, Json(message::refused_batch())).into_response());
        }
        Err(Refused::Values) => {
            let message =
                format!("the message has more than {VALUES_MAX} values: send fewer and longer ones");
            return Err(Problem::new(Code::TooLarge, message).with("limit_values", VALUES_MAX));
        }
    }
    let mut answer = mcp.answer(target, Request::from_parts(parts, bytes)).await.map(Body::new);
    // The SDK does not say so of the sentences with which it refuses.
    if answer.status().is_client_error() {
        answer
            .headers_mut()
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    Ok(answer)
}

//! `GET` and `PUT /v1/transfers/{transfer}`, `GET /v1/transfers/{transfer}/received`: connections that runners open for large files.
//!
//! The token of a transfer is all that a runner needs and has: it opens nothing else. `docs/RUNNER.md` specifies what is said.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use sandbox::{Direction, TransferError, TransferUnderWay};
use serde::{Deserialize, Serialize};

use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::{Answer, bare, success};
use crate::http::extract::body;
use crate::http::extract::{NoParams, Params, bearer};
use crate::http::{App, request_log};

/// The name of a transfer and the token that came with it.
pub(in crate::http) struct TransferRequest {
    id: String,
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct From {
    from: u64,
}

#[derive(Serialize)]
struct Received {
    bytes: u64,
}

impl FromRequestParts<App> for TransferRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(id) = Path::<String>::from_request_parts(parts, app).await.map_err(|_| unknown())?;
        let token = bearer(&parts.headers).unwrap_or_default().to_owned();
        Ok(Self { id, token })
    }
}

impl TransferRequest {
    /// The transfer, whose memory counts for its user.
    async fn open(&self, app: &App, direction: Direction) -> Result<Arc<TransferUnderWay>, Problem> {
        let found = app.service.runners().transfers.find(&self.id, &self.token, direction);
        let transfer = found.ok_or_else(unknown)?;
        request_log::user(transfer.user());
        if !transfer.is_charged() {
            let held =
                app.service.admission().hold_bytes(Some(transfer.user()), transfer.memory_bytes()).await?;
            transfer.charge(Box::new(held));
        }
        Ok(transfer)
    }
}

/// A wrong token is told nothing else than a transfer that is not there.
fn unknown() -> Problem {
    Problem::new(Code::NotFound, "there is no such transfer for this token, or it is over")
}

impl std::convert::From<TransferError> for Problem {
    fn from(error: TransferError) -> Self {
        let code = match error {
            TransferError::Offset(_) | TransferError::Overtaken => Code::Conflict,
            // None of them ever goes on.
            TransferError::Lost | TransferError::TooOften | TransferError::Over => Code::NotFound,
            TransferError::TooMany => Code::TooLarge,
            TransferError::TooFew => Code::Invalid,
            TransferError::Broken => return body::broken(),
        };
        Self::new(code, error.to_string())
    }
}

pub(in crate::http) async fn fetch(
    State(app): State<App>,
    request: TransferRequest,
    Params(From { from }): Params<From>,
) -> Answer {
    let given = request.open(&app, Direction::Fetch).await?.give(from).await?;
    let mut response = bare(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would take more than is kept for a runner whose connection is cut.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    *response.body_mut() = Body::from_stream(given);
    Ok(response)
}

pub(in crate::http) async fn send(
    State(app): State<App>,
    request: TransferRequest,
    Params(From { from }): Params<From>,
    body: Request,
) -> Answer {
    let transfer = request.open(&app, Direction::Send).await?;
    transfer.take(from, body.into_body().into_data_stream()).await?;
    success("File received.")
}

pub(in crate::http) async fn received(
    State(app): State<App>,
    request: TransferRequest,
    _: NoParams,
) -> Answer {
    let bytes = request.open(&app, Direction::Send).await?.received().await?;
    success(Received { bytes })
}

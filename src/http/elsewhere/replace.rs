//! `POST /v1/sandbox/{u}/{a}/replace`

use axum::extract::State;
use axum::http::HeaderMap;

use super::{Answer, Elsewhere};
use crate::http::request::{JsonBody, NoParams, path_of};
use crate::http::tree::edited_elsewhere;
use crate::http::tree::replace::Body;
use crate::http::{App, conditional};

pub(super) async fn replace(
    State(app): State<App>,
    tree: Elsewhere,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let path = path_of(&tree.id, Some(&body.path))?;
    let mode = conditional::of_untagged_change(&headers)?;
    let limit = app.service.file_limits.text_bytes;
    let edited = tree.backend.replace(&path, body.edits(), mode, limit).await?;
    edited_elsewhere(&path, edited)
}

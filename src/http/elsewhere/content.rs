//! `GET /v1/sandbox/{u}/{a}/content`

use axum::extract::State;
use axum::http::HeaderMap;

use super::{Answer, Elsewhere};
use crate::http::request::{Params, path_of};
use crate::http::tree::content::{About, Query, answer};
use crate::http::{App, conditional};
use crate::ops::files::LineRange;

pub(super) async fn content(
    State(app): State<App>,
    tree: Elsewhere,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Answer {
    let path = path_of(&tree.id, query.path.as_deref())?;
    conditional::of_untagged_read(&headers)?;
    let range = LineRange { start: query.start, end: query.end };
    let limit = app.service.file_limits.text_bytes;
    let (text, encoding, size) = tree.backend.read_text(&path, range, limit).await?;
    answer(text, About { encoding, size, layer: None })
}

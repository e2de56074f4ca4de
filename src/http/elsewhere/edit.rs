//! `PUT /v1/sandbox/{u}/{a}/edit`

use axum::extract::{Request, State};

use super::{Answer, Elsewhere};
use crate::http::request::{Params, path_of};
use crate::http::tree::edit::{Query, encoding};
use crate::http::tree::edited_elsewhere;
use crate::http::{App, body, conditional};
use crate::ops::files::LineRange;

pub(super) async fn edit(
    State(app): State<App>,
    tree: Elsewhere,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let path = path_of(&tree.id, query.path.as_deref())?;
    let mode = conditional::of_untagged_change(request.headers())?;
    let encoding = encoding(query.encoding.as_deref())?;
    let limit = app.service.file_limits.text_bytes;
    let body = body::collect_text(&app, request.into_body(), limit).await?;
    let range = LineRange { start: query.start, end: query.end };
    let edited = tree.backend.edit(&path, range, body, encoding, mode, limit).await?;
    edited_elsewhere(&path, edited)
}

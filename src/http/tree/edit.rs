//! `PUT T/edit?path&start&end&encoding`

use axum::extract::{Request, State};
use serde::Deserialize;
use storage::encoding::TextEncoding;

use super::written;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::answer::problem::Problem;
use crate::http::extract::{Params, TreeRequest};
use crate::http::extract::{body, conditional};
use crate::ops::texts::{LineRange, NewText};

/// The answer of a success.
pub(super) const UPDATED: &str = "File updated successfully.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    pub(in crate::http) start: Option<u64>,
    pub(in crate::http) end: Option<u64>,
    pub(in crate::http) encoding: Option<String>,
}

pub(in crate::http) async fn edit(
    State(app): State<App>,
    tree: TreeRequest,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let place = tree.file(query.path.as_deref()).await?;
    let condition = conditional::of_change(request.headers())?;
    let encoding = encoding(query.encoding.as_deref())?;
    let body = body::collect_text(&app, request.into_body(), app.service.file_limits().text_bytes).await?;
    let range = LineRange { start: query.start, end: query.end };
    let new = NewText { range, text: body, encoding };
    let edited = place.tree.edit(&place.path, new, condition).await?;
    written(UPDATED, &place, edited)
}

/// Reads the name of an encoding.
pub(in crate::http) fn encoding(name: Option<&str>) -> Result<Option<TextEncoding>, Problem> {
    let encoding = name.map(str::parse::<TextEncoding>).transpose();
    encoding.map_err(|error| Problem::invalid(error.to_string()))
}

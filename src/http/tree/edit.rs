//! `PUT T/edit?path&start&end&encoding`

use axum::extract::{Request, State};
use serde::Deserialize;
use storage::encoding::TextEncoding;

use super::written;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::problem::Problem;
use crate::http::request::{Params, TreeRequest, path_of};
use crate::http::{body, conditional};
use crate::ops::files::LineRange;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    path: Option<String>,
    start: Option<u64>,
    end: Option<u64>,
    encoding: Option<String>,
}

pub(in crate::http) async fn edit(
    State(app): State<App>,
    tree: TreeRequest,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let path = path_of(&tree.id, query.path.as_deref())?;
    let condition = conditional::of_change(request.headers())?;
    let encoding = query.encoding.map(|name| name.parse::<TextEncoding>()).transpose();
    let encoding = encoding.map_err(|error| Problem::invalid(error.to_string()))?;
    let body = body::collect_text(request.into_body(), app.service.file_limits.text_bytes).await?;
    let range = LineRange { start: query.start, end: query.end };
    let (edited, encoding) =
        app.service.edit(tree.id, path.clone(), range, body, encoding, condition).await?;
    written("File updated successfully.", &path, &edited, Some(encoding))
}

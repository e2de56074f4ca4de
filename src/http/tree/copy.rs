//! `POST T/copy`

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;

use super::written;
use crate::http::answer::{Answer, success};
use crate::http::extract::{JsonBody, JsonLimit, NoParams, TreeRequest, path_of};
use crate::http::{App, conditional};
use crate::ops::files::Copy;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    from: String,
    to: String,
    #[serde(default)]
    overwrite: bool,
    #[serde(default)]
    recursive: bool,
}

impl JsonLimit for Body {}

pub(in crate::http) async fn copy(
    State(app): State<App>,
    tree: TreeRequest,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let from = path_of(&tree.id, Some(&body.from))?;
    let to = path_of(&tree.id, Some(&body.to))?;
    let condition = conditional::of_change(&headers)?;
    let copy = Copy { from, to: to.clone(), overwrite: body.overwrite, recursive: body.recursive, condition };
    match app.service.copy(tree.id, copy).await? {
        Some(file) => written("Copied.", &to, &file, None),
        None => success("Copied."),
    }
}

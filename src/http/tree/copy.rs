//! `POST T/copy`

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;

use super::written;
use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::conditional;
use crate::http::extract::{JsonBody, JsonLimit, Local, NoParams, TreeRequest};
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
    Local(tree): Local<TreeRequest>,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let (from, to) = tree.entries(&body.from, &body.to).await?;
    let condition = conditional::of_change(&headers)?;
    let Body { overwrite, recursive, .. } = body;
    let copy = Copy { from: from.path, to: to.path.clone(), overwrite, recursive, condition };
    match app.service.copy(from.tree.local()?.clone(), copy).await? {
        Some(file) => written("Copied.", &to, file.into()),
        None => success("Copied."),
    }
}

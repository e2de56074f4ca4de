//! `POST T/move`

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;

use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::conditional;
use crate::http::extract::{JsonBody, JsonLimit, Local, NoParams, TreeRequest};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    from: String,
    to: String,
    #[serde(default)]
    overwrite: bool,
}

impl JsonLimit for Body {}

pub(in crate::http) async fn rename(
    State(app): State<App>,
    Local(tree): Local<TreeRequest>,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let (from, to) = tree.entries(&body.from, &body.to).await?;
    let condition = conditional::of_change(&headers)?;
    app.service.rename(from.tree.local()?.clone(), from.path, to.path, body.overwrite, condition).await?;
    success("Moved.")
}

//! `DELETE T/file?path&recursive`

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;

use crate::http::answer::{Answer, success};
use crate::http::request::{Params, TreeRequest, path_of};
use crate::http::{App, conditional};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    #[serde(default)]
    pub(in crate::http) recursive: bool,
}

pub(in crate::http) async fn remove(
    State(app): State<App>,
    tree: TreeRequest,
    headers: HeaderMap,
    Params(query): Params<Query>,
) -> Answer {
    let path = path_of(&tree.id, query.path.as_deref())?;
    let condition = conditional::of_change(&headers)?;
    app.service.remove(tree.id, path, query.recursive, condition).await?;
    success("Removed.")
}

//! `DELETE T/file?path&recursive`

use axum::http::HeaderMap;
use serde::Deserialize;

use crate::http::answer::{Answer, success};
use crate::http::extract::conditional;
use crate::http::extract::{Params, Place, TreeRequest};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    #[serde(default)]
    pub(in crate::http) recursive: bool,
}

pub(in crate::http) async fn remove(
    tree: TreeRequest,
    headers: HeaderMap,
    Params(query): Params<Query>,
) -> Answer {
    removed(tree.entry(query.path.as_deref()).await?, query.recursive, &headers).await
}

/// Removes what is at `path`, on the condition that the request names.
pub(super) async fn removed(place: Place, recursive: bool, headers: &HeaderMap) -> Answer {
    let condition = conditional::of_change(headers)?;
    place.tree.remove(&place.path, recursive, condition).await?;
    success("Removed.")
}

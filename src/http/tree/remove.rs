//! `DELETE T/file?path&recursive`

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;

use crate::http::answer::{Answer, success};
use crate::http::extract::{Params, Place, TreeRequest};
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
    let place = tree.entry(&app, query.path.as_deref()).await?;
    removed(&app, place, query.recursive, &headers).await
}

/// Removes what is at `path`, on the condition that the request names.
pub(super) async fn removed(app: &App, place: Place, recursive: bool, headers: &HeaderMap) -> Answer {
    let condition = conditional::of_change(headers)?;
    let Place { id, path, backend, .. } = place;
    match backend {
        Some(backend) => {
            conditional::none(&condition)?;
            backend.remove(&path, recursive).await?;
        }
        None => app.service.remove(id, path, recursive, condition).await?,
    }
    success("Removed.")
}

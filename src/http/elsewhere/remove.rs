//! `DELETE /v1/sandbox/{u}/{a}/file` and `DELETE /v1/sandbox/{u}/{a}/raw/{path}`

use axum::extract::RawPathParams;
use axum::http::HeaderMap;
use policy::RelPath;

use super::{Answer, Elsewhere};
use crate::http::answer::success;
use crate::http::conditional;
use crate::http::request::{Params, path_of};
use crate::http::tree::{raw, remove};

pub(super) async fn by_query(
    tree: Elsewhere,
    headers: HeaderMap,
    Params(query): Params<remove::Query>,
) -> Answer {
    let path = path_of(&tree.id, query.path.as_deref())?;
    removed(&tree, &path, &headers, query.recursive).await
}

pub(super) async fn by_path(
    tree: Elsewhere,
    params: RawPathParams,
    headers: HeaderMap,
    Params(query): Params<raw::DeleteQuery>,
) -> Answer {
    let path = raw::path(&tree.id, &params)?;
    removed(&tree, &path, &headers, query.recursive).await
}

async fn removed(tree: &Elsewhere, path: &RelPath, headers: &HeaderMap, recursive: bool) -> Answer {
    conditional::none(headers)?;
    tree.backend.remove(path, recursive).await?;
    success("Removed.")
}

//! `GET /v1/sandbox/{u}/{a}/stat`

use super::{Answer, Elsewhere};
use crate::http::answer::success;
use crate::http::request::{Params, dir_of};
use crate::http::tree::EntryFacts;
use crate::http::tree::stat::{Facts, Query};

pub(super) async fn stat(tree: Elsewhere, Params(query): Params<Query>) -> Answer {
    let path = dir_of(&tree.id, query.path.as_deref())?;
    let info = tree.backend.stat(&path).await?;
    success(Facts { path: path.to_string(), facts: EntryFacts::elsewhere(&info) })
}

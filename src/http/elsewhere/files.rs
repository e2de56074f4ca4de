//! `GET /v1/sandbox/{u}/{a}/files`

use axum::extract::State;

use super::{Answer, Elsewhere};
use crate::http::answer::success_with;
use crate::http::request::{Params, dir_of};
use crate::http::tree::EntryFacts;
use crate::http::tree::files::{Detailed, Query, depth};
use crate::http::{App, page};

pub(super) async fn files(State(app): State<App>, tree: Elsewhere, Params(query): Params<Query>) -> Answer {
    let dir = dir_of(&tree.id, query.path.as_deref())?;
    let limits = &app.service.file_limits;
    let met = tree.backend.walk(&dir, depth(&query)?, limits.tree_entries).await?;
    let most = limits.list_entries;
    let page = page::cut(met, |entry| entry.0.as_str(), query.limit, query.cursor.as_deref(), most)?;
    let met = page.elements.into_iter();
    if !query.detail {
        return success_with(met.map(|(path, _)| path).collect::<Vec<_>>(), page.beside);
    }
    let detailed =
        met.map(|(path, entry)| Detailed { path, facts: EntryFacts::listed(entry.kind, entry.size) });
    success_with(detailed.collect::<Vec<_>>(), page.beside)
}

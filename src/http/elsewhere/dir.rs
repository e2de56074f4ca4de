//! `GET /v1/sandbox/{u}/{a}/dir`

use axum::extract::State;

use super::{Answer, Elsewhere};
use crate::http::App;
use crate::http::request::{Params, dir_of};
use crate::http::tree::EntryFacts;
use crate::http::tree::dir::{Listed, Query, answer};

pub(super) async fn dir(State(app): State<App>, tree: Elsewhere, Params(query): Params<Query>) -> Answer {
    let path = dir_of(&tree.id, query.path.as_deref())?;
    let entries = tree.backend.list_dir(&path).await?.into_iter();
    let listed =
        entries.map(|entry| Listed { facts: EntryFacts::listed(entry.kind, entry.size), name: entry.name });
    answer(listed.collect(), &query, app.service.file_limits.list_entries)
}

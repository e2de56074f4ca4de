//! `GET T/files?path&depth&detail&limit&cursor`

use axum::extract::State;
use serde::{Deserialize, Serialize};
use storage::Kind;
use storage::tree::Walked;

use super::EntryFacts;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::page;
use crate::http::problem::Problem;
use crate::http::request::{Params, TreeRequest, dir_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    path: Option<String>,
    depth: Option<usize>,
    #[serde(default)]
    detail: bool,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Detailed {
    path: String,
    #[serde(flatten)]
    facts: EntryFacts,
}

pub(in crate::http) async fn files(
    State(app): State<App>,
    request: TreeRequest,
    Params(query): Params<Query>,
) -> Answer {
    let dir = dir_of(&request.id, query.path.as_deref())?;
    if query.depth == Some(0) {
        return Err(Problem::invalid("`depth` is 1 or more"));
    }
    let depth = query.depth.unwrap_or(usize::MAX);
    let mut files = app.service.walk(request.id, dir, depth, query.detail).await?;
    files.retain(|entry| matches!(entry.kind, Kind::File | Kind::Symlink));
    let most = app.service.file_limits.list_entries;
    let page = page::cut(files, |entry| entry.path.as_str(), query.limit, query.cursor.as_deref(), most)?;
    entries(page.elements, query.detail, page.beside)
}

/// Answers with entries that were met: their paths, or with `detail` what is known of each.
pub(super) fn entries(met: Vec<Walked>, detail: bool, beside: impl Serialize) -> Answer {
    if !detail {
        let paths: Vec<String> = met.into_iter().map(|entry| entry.path.into()).collect();
        return success_with(paths, beside);
    }
    let detailed = met.into_iter().filter_map(|entry| {
        let facts = EntryFacts::new(entry.stat.as_ref()?, entry.layer);
        Some(Detailed { path: entry.path.into(), facts })
    });
    success_with(detailed.collect::<Vec<_>>(), beside)
}

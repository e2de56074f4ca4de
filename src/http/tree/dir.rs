//! `GET T/dir?path&limit&cursor`

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::EntryFacts;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::page;
use crate::http::request::{Params, TreeRequest, dir_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    pub(in crate::http) limit: Option<usize>,
    pub(in crate::http) cursor: Option<String>,
}

#[derive(Serialize)]
pub(in crate::http) struct Listed {
    pub(in crate::http) name: String,
    #[serde(flatten)]
    pub(in crate::http) facts: EntryFacts,
}

pub(in crate::http) async fn dir(
    State(app): State<App>,
    tree: TreeRequest,
    Params(query): Params<Query>,
) -> Answer {
    let path = dir_of(&tree.id, query.path.as_deref())?;
    let children = app.service.list_dir(tree.id, path).await?;
    // Names that no path can hold have no stat, and nobody could ask for them.
    let listed = children.into_iter().filter_map(|(child, stat)| {
        let name = child.name.into_string().ok()?;
        Some(Listed { name, facts: EntryFacts::new(&stat?, child.layer) })
    });
    answer(listed.collect(), &query, app.service.file_limits.list_entries)
}

/// Answers with a page of what was listed, or with all of it when that is no more than `most`.
pub(in crate::http) fn answer(listed: Vec<Listed>, query: &Query, most: usize) -> Answer {
    let page =
        page::cut(listed, |entry: &Listed| entry.name.as_str(), query.limit, query.cursor.as_deref(), most)?;
    success_with(page.elements, page.beside)
}

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
    path: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(flatten)]
    facts: EntryFacts,
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
    let most = app.service.file_limits.list_entries;
    let page = page::cut(
        listed.collect(),
        |entry: &Listed| entry.name.as_str(),
        query.limit,
        query.cursor.as_deref(),
        most,
    )?;
    success_with(page.elements, page.beside)
}

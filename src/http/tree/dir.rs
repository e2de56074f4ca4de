//! `GET T/dir?path&limit&cursor&layer&version`

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::entry_facts::EntryFacts;
use super::files::bytes;
use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{Params, SeenLayer, TreeRequest};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    pub(in crate::http) limit: Option<usize>,
    pub(in crate::http) cursor: Option<String>,
    pub(in crate::http) layer: Option<SeenLayer>,
    pub(in crate::http) version: Option<String>,
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
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    let place = tree.dir(query.path.as_deref()).await?;
    let most = app.service.file_limits().list_entries;
    let entries = place.tree.list_dir(&place.path).await?;
    made(app.service.admission(), bytes(entries.len(), true), move || {
        let page =
            page::cut(entries, |entry| entry.name.as_str(), query.limit, query.cursor.as_deref(), most)?;
        let listed = page.elements.into_iter();
        let listed = listed.map(|entry| Listed { name: entry.name, facts: entry.facts.into() });
        success_with(listed.collect::<Vec<_>>(), page.beside)
    })
    .await
}

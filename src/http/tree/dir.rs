//! `GET T/dir?path&limit&cursor&layer&version`

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use storage::files::Entry;

use super::EntryFacts;
use super::files::bytes;
use crate::http::App;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{Params, Place, SeenLayer, TreeRequest};
use crate::http::page;

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
    let tree = tree.seeing(&app, query.layer, query.version.as_deref()).await?;
    let place = tree.dir(&app, query.path.as_deref()).await?;
    let seen = place.seen();
    let Place { id, path, backend, .. } = place;
    let most = app.service.file_limits().list_entries;
    if let Some(backend) = backend {
        let entries = backend.list_dir(&path).await?;
        let bytes = bytes(entries.len(), true);
        let answer = move || {
            let listed = entries
                .into_iter()
                .map(|entry| Listed { facts: EntryFacts::listed(entry.kind, entry.size), name: entry.name });
            answer(listed.collect(), &query, most)
        };
        return made(app.service.admission(), bytes, answer).await;
    }
    let (service, tree) = (Arc::clone(&app.service), id);
    let entries = app.service.list_with_links(seen, path).await?;
    made(app.service.admission(), bytes(entries.len(), true), move || {
        // Names that no path can hold have no stat, and no request could ask for them.
        let listed = entries.into_iter().filter_map(|Entry { child, stat, target }| {
            let name = child.name.into_string().ok()?;
            let stat = stat?;
            let facts = EntryFacts::new(&stat, child.layer).pointing(target);
            Some(Listed { name, facts: facts.owned(service.owner_seen(&tree, &stat)) })
        });
        answer(listed.collect(), &query, most)
    })
    .await
}

/// Answers with a page of what was listed, or with all of it when that is no more than `most`.
pub(in crate::http) fn answer(listed: Vec<Listed>, query: &Query, most: usize) -> Answer {
    let page =
        page::cut(listed, |entry: &Listed| entry.name.as_str(), query.limit, query.cursor.as_deref(), most)?;
    success_with(page.elements, page.beside)
}

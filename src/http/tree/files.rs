//! `GET T/files?path&depth&detail&limit&cursor&layer&version`

use axum::extract::State;
use serde::{Deserialize, Serialize};
use storage::Kind;

use super::entry_facts::EntryFacts;
use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{Above, Params, SeenLayer, TreeRequest};
use crate::ops::tree::facts::Walked;

/// About what an entry takes in an answer, in bytes: its path alone, and with all that is known of it.
const PATH_BYTES: usize = 50;
const DETAILED_BYTES: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    pub(in crate::http) depth: Option<usize>,
    #[serde(default)]
    pub(in crate::http) detail: bool,
    pub(in crate::http) limit: Option<usize>,
    pub(in crate::http) cursor: Option<String>,
    pub(in crate::http) layer: Option<SeenLayer>,
    pub(in crate::http) version: Option<String>,
}

#[derive(Serialize)]
pub(in crate::http) struct Detailed {
    pub(in crate::http) path: String,
    #[serde(flatten)]
    pub(in crate::http) facts: EntryFacts,
}

/// How many levels are meant.
pub(in crate::http) fn depth(query: &Query) -> Result<usize, Problem> {
    match query.depth {
        Some(0) => Err(Problem::invalid("`depth` is 1 or more")),
        depth => Ok(depth.unwrap_or(usize::MAX)),
    }
}

pub(in crate::http) async fn files(
    State(app): State<App>,
    request: TreeRequest,
    Params(query): Params<Query>,
) -> Answer {
    let request = request.seeing(query.layer, query.version.as_deref()).await?;
    let place = request.dir(query.path.as_deref()).await?;
    let most = app.service.file_limits().list_entries;
    let files = place.tree.walk(&place.path, depth(&query)?, query.detail).await?;
    made(app.service.admission(), bytes(files.len(), query.detail), move || {
        let page = page::cut(files, |entry| entry.path.as_str(), query.limit, query.cursor.as_deref(), most)?;
        entries(page.elements, &place.above, query.detail, page.beside)
    })
    .await
}

/// About how large an answer with `entries` entries is, in bytes.
pub(in crate::http) fn bytes(entries: usize, detail: bool) -> usize {
    entries.saturating_mul(if detail { DETAILED_BYTES } else { PATH_BYTES })
}

/// The path of an entry in a list of paths: of a directory, with a final `/`.
fn path(entry: &Walked, above: &Above) -> String {
    let mut path = above.path(entry.path.as_str());
    if entry.kind == Kind::Directory {
        path.push('/');
    }
    path
}

/// Answers with entries that were met: their paths, or with `detail` what is known of each.
pub(super) fn entries(met: Vec<Walked>, above: &Above, detail: bool, beside: impl Serialize) -> Answer {
    if !detail {
        let paths: Vec<String> = met.iter().map(|entry| path(entry, above)).collect();
        return success_with(paths, beside);
    }
    let detailed = met.into_iter().filter_map(|entry| {
        Some(Detailed { path: above.path(entry.path.as_str()), facts: entry.facts?.into() })
    });
    success_with(detailed.collect::<Vec<_>>(), beside)
}

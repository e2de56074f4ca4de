//! `GET T/files?path&depth&detail&limit&cursor`

use axum::extract::State;
use serde::{Deserialize, Serialize};
use storage::Kind;
use storage::tree::Walked;

use super::EntryFacts;
use crate::http::App;
use crate::http::answer::{Answer, Nothing, success_with};
use crate::http::problem::{Code, Problem};
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
struct Beside {
    /// Send it as `cursor` to go on; null at the end.
    next: Option<String>,
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
    if query.depth == Some(0) || query.limit == Some(0) {
        return Err(Problem::invalid("`depth` and `limit` are 1 or more"));
    }
    let depth = query.depth.unwrap_or(usize::MAX);
    let walked = app.service.walk(request.id, dir, depth, query.detail).await?;
    let mut files: Vec<Walked> =
        walked.into_iter().filter(|entry| matches!(entry.kind, Kind::File | Kind::Symlink)).collect();
    let entries_max = app.service.file_limits.list_entries;
    let Some(limit) = query.limit else {
        if query.cursor.is_some() {
            return Err(Problem::invalid("`cursor` goes with `limit`"));
        }
        if files.len() > entries_max {
            let message = format!("the tree has more than {entries_max} files: send `limit`, or `path`");
            return Err(Problem::new(Code::TooLarge, message).with("limit_entries", entries_max));
        }
        return answer(files, query.detail, Nothing {});
    };
    if let Some(cursor) = &query.cursor {
        let seen = files.partition_point(|entry| entry.path.as_str() <= cursor.as_str());
        files.drain(..seen);
    }
    let limit = limit.min(entries_max);
    let next =
        (files.len() > limit).then(|| files.get(limit - 1).map(|entry| entry.path.to_string())).flatten();
    files.truncate(limit);
    answer(files, query.detail, Beside { next })
}

fn answer(files: Vec<Walked>, detail: bool, beside: impl Serialize) -> Answer {
    if !detail {
        let paths: Vec<String> = files.into_iter().map(|entry| entry.path.into()).collect();
        return success_with(paths, beside);
    }
    let detailed = files.into_iter().filter_map(|entry| {
        let facts = EntryFacts::new(entry.stat.as_ref()?, entry.layer);
        Some(Detailed { path: entry.path.into(), facts })
    });
    success_with(detailed.collect::<Vec<_>>(), beside)
}

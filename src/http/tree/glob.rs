//! `GET T/glob?pattern&path&type&hidden&detail&limit&cursor&layer&version`

use axum::extract::State;
use serde::{Deserialize, Serialize};
use storage::search::{GlobQuery, Globbed, Kinds, Patterns, Stop};

use super::files::{bytes, entries};
use super::patterns;
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, made};
use crate::http::extract::{Local, Params, SeenLayer, TreeRequest};
use crate::ops::tree::facts::Walked;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pattern: Option<String>,
    path: Option<String>,
    #[serde(default, rename = "type")]
    kinds: Kinds,
    hidden: Option<bool>,
    #[serde(default)]
    detail: bool,
    limit: Option<usize>,
    cursor: Option<String>,
    layer: Option<SeenLayer>,
    version: Option<String>,
}

#[derive(Serialize)]
struct Beside {
    truncated: bool,
    /// Why; null for a whole answer.
    stopped_by: Option<Stop>,
    /// Send it as `cursor` to go on.
    next: Option<String>,
}

pub(in crate::http) async fn glob(
    State(app): State<App>,
    Local(tree): Local<TreeRequest>,
    Params(query): Params<Query>,
) -> Answer {
    let pattern = query.pattern.ok_or_else(|| Problem::invalid("the parameter `pattern` is missing"))?;
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    let place = tree.dir(query.path.as_deref()).await?;
    let seen = place.tree.local_seen()?;
    let include = patterns(&place, &[pattern])?;
    let most = app.service.file_limits().list_entries;
    if query.limit == Some(0) {
        return Err(Problem::invalid("`limit` is 1 or more"));
    }
    let wanted = GlobQuery {
        hidden: query.hidden.unwrap_or_else(|| include.names_hidden()),
        include,
        exclude: Patterns::new::<&str>(&[])?,
        path: place.path,
        kinds: query.kinds,
        after: query.cursor,
        limit: query.limit.unwrap_or(most).min(most),
        look: query.detail,
    };
    let Globbed { entries: found, stop, next } = app.service.glob(seen, wanted).await?;
    let beside = Beside { truncated: stop.is_some(), stopped_by: stop, next };
    made(app.service.admission(), bytes(found.len(), query.detail), move || {
        entries(found.into_iter().map(Walked::from).collect(), &place.above, query.detail, beside)
    })
    .await
}

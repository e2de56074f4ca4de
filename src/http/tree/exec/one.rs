//! `GET` and `DELETE T/exec/{exec_id}`

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use exec::{Encoding, ExecResult};
use serde::{Deserialize, Serialize};
use storage::Absorbed;

use super::events;
use super::list::Summary;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{NamedRun, NoParams, Params};
use crate::http::problem::Problem;
use crate::http::streamed::Form;
use crate::http::tree::execute::is_nothing;
use crate::ops::run::changes::Changes;
use crate::ops::run::confined::Confined;

/// How long a killed run may take to be told as ended.
const END_WAIT: Duration = Duration::from_secs(5);
/// Where a reader of server-sent events says which one it had last.
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    after: Option<u64>,
    follow: Option<String>,
    #[serde(default)]
    encoding: Encoding,
}

#[derive(Default, Serialize)]
struct Beside {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ExecResult<Confined>>,
    #[serde(skip_serializing_if = "is_nothing")]
    absorbed: Absorbed,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

#[derive(Serialize)]
struct Killed {
    exec_id: String,
    /// Whether nothing of it runs any more.
    ended: bool,
}

pub(in crate::http) async fn get(
    State(app): State<App>,
    run: NamedRun,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Answer {
    let follow = match query.follow.as_deref() {
        None | Some("false" | "0") => false,
        Some("" | "true" | "1") => true,
        Some(other) => {
            return Err(Problem::invalid(format!("`follow` is `{other}`: send `true` or `false`")));
        }
    };
    let recorded = app.service.table.find(&run.tree, &run.id)?;
    let form = Form::of(&headers);
    if form.is_stream() {
        let had = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()?.parse().ok());
        let after = query.after.or(had).unwrap_or(0);
        return Ok(events::answer(form, recorded.follow(after)?, query.encoding, follow));
    }
    if query.after.is_some() {
        return Err(Problem::invalid(
            "`after` goes with `Accept: text/event-stream` or `application/x-ndjson`",
        ));
    }
    let beside = if follow || recorded.exit().is_some() {
        let outcome = recorded.outcome().await?;
        Beside { result: Some(outcome.result), absorbed: outcome.absorbed, changes: outcome.changes }
    } else {
        Beside::default()
    };
    success_with(Summary::of(&recorded), beside)
}

pub(in crate::http) async fn delete(State(app): State<App>, run: NamedRun, _: NoParams) -> Answer {
    let recorded = app.service.table.find(&run.tree, &run.id)?;
    recorded.kill();
    let ended = tokio::time::timeout(END_WAIT, recorded.outcome()).await.is_ok();
    let sentence =
        if ended { "the run has ended, with all its processes" } else { "the run is being killed" };
    success_with(sentence, Killed { exec_id: run.id.to_string(), ended })
}

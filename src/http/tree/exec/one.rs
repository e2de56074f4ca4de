//! `GET` and `DELETE T/exec/{exec_id}`

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use egress::Reached;
use exec::{Encoding, ExecResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::Absorbed;

use super::events;
use super::list::{Run, Summary};
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::streamed::Form;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{NamedRun, NoParams, Params};
use crate::http::tree::execute::is_nothing;
use crate::http::tree::walls::{Told, Walls};
use crate::ops::Error;
use crate::ops::run::changes::Changes;

/// How long a killed run may take to be told as ended.
const END_WAIT: Duration = Duration::from_secs(5);
const UNNAMED: &str = "the run has no name, so its events are not kept: its caller gets the result, and you can list and kill it";
/// Where a reader of server-sent events says which one it had last.
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    after: Option<u64>,
    follow: Option<String>,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    enforcement: Told,
}

#[derive(Default, Serialize)]
struct Beside {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ExecResult<Value>>,
    #[serde(skip_serializing_if = "is_nothing")]
    absorbed: Absorbed,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<Reached>,
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
    let walls = Walls::of(&app, query.enforcement);
    let unnamed = app.service.unnamed_run(run.tree.id(), &run.id);
    if let Some(unnamed) = unnamed {
        let is_plain = !follow && !Form::of(&headers).is_stream();
        if is_plain {
            return success_with(Summary::of(&Run::Unnamed(unnamed), &walls), Beside::default());
        }
        return Err(Error::NotNow(UNNAMED).into());
    }
    let recorded = app.service.named_run(run.tree.id(), &run.id)?;
    let form = Form::of(&headers);
    if form.is_stream() {
        let had = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()?.parse().ok());
        let after = query.after.or(had).unwrap_or(0);
        return Ok(events::answer(form, recorded.follow(after)?, query.encoding, follow, walls));
    }
    if query.after.is_some() {
        return Err(Problem::invalid(
            "`after` goes with `Accept: text/event-stream` or `application/x-ndjson`",
        ));
    }
    let beside = if follow || recorded.exit().is_some() {
        let outcome = recorded.outcome().await?;
        Beside {
            result: Some(walls.result(outcome.result)),
            absorbed: outcome.absorbed,
            changes: outcome.changes,
            reached: outcome.reached,
        }
    } else {
        Beside::default()
    };
    success_with(Summary::of_named(&recorded, &walls), beside)
}

pub(in crate::http) async fn delete(State(app): State<App>, run: NamedRun, _: NoParams) -> Answer {
    let ended = match app.service.unnamed_run(run.tree.id(), &run.id) {
        Some(unnamed) => {
            unnamed.kill();
            tokio::time::timeout(END_WAIT, unnamed.ended()).await.is_ok()
        }
        None => {
            let recorded = app.service.named_run(run.tree.id(), &run.id)?;
            recorded.kill();
            tokio::time::timeout(END_WAIT, recorded.outcome()).await.is_ok()
        }
    };
    let sentence =
        if ended { "the run has ended, with all its processes" } else { "the run is being killed" };
    success_with(sentence, Killed { exec_id: run.id.to_string(), ended })
}

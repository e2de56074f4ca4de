//! `POST T/exec`, and below it what is asked of runs that have names.

pub(in crate::http) mod decide;
mod events;
pub(in crate::http) mod list;
pub(in crate::http) mod one;
pub(in crate::http) mod signal;
pub(in crate::http) mod stdin;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egress::Reached;
use exec::{Encoding, Network, Tier};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use storage::Absorbed;

use self::list::Summary;
use super::execute::is_nothing;
use super::run_skills::{skills, workspace};
use super::terminal::TERM;
use super::walls::{Told, Walls};
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::streamed::Form;
use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::bounded;
use crate::http::extract::object::Word;
use crate::http::extract::{JsonBody, JsonLimit, Params, TreeRequest, dir_of};
use crate::http::{App, request_log};
use crate::ops::run::changes::Changes;
use crate::ops::run::id::ExecId;
use crate::ops::run::record::Purpose;
use crate::ops::run::session::{BeganRun, Recording};
use crate::ops::run::{Command, Commit, RunRequest};

/// A run as a caller describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ExecSpec {
    command: Option<String>,
    #[serde(default, deserialize_with = "bounded::texts")]
    args: Vec<String>,
    shell: Option<String>,
    dir: Option<String>,
    #[serde(default, deserialize_with = "bounded::named_texts")]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    stdin_base64: Option<String>,
    #[serde(default)]
    stdin_open: bool,
    #[serde(default)]
    tty: bool,
    timeout_ms: Option<u64>,
    isolation: Option<Word<Tier>>,
    network: Option<Word<Network>>,
    #[serde(default)]
    encoding: Word<Encoding>,
    #[serde(default)]
    changes: bool,
    #[serde(default)]
    reached: bool,
    #[serde(default)]
    commit: Word<Commit>,
    skills: Option<bounded::Skills>,
    #[serde(default)]
    workspace: bool,
    // Only whether they are there matters; a tree of values would take 16 times the bytes of its text.
    limits: Option<IgnoredAny>,
    exec_id: Option<String>,
}

impl JsonLimit for ExecSpec {
    /// The longest input and the longest arguments, of which JSON spells some characters in two.
    fn bytes_max(app: &App) -> usize {
        let limits = app.service.run_limits();
        limits.stdin_bytes.saturating_add(limits.arguments_bytes).saturating_mul(2).saturating_add(64 * 1024)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    #[serde(default)]
    background: bool,
    #[serde(default)]
    enforcement: Told,
}

#[derive(Serialize)]
struct Beside {
    #[serde(skip_serializing_if = "Option::is_none")]
    exec_id: Option<String>,
    #[serde(skip_serializing_if = "is_nothing")]
    absorbed: Absorbed,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<Reached>,
}

pub(in crate::http) async fn exec(
    State(app): State<App>,
    TreeRequest { tree, .. }: TreeRequest,
    Params(query): Params<Query>,
    headers: HeaderMap,
    JsonBody(spec): JsonBody<ExecSpec>,
) -> Answer {
    refuse_what_is_not_there(&spec)?;
    let form = Form::of(&headers);
    let walls = Walls::of(&app, query.enforcement);
    let id = spec.exec_id.as_deref().map(ExecId::parse).transpose()?;
    request_log::program(spec.command.as_deref().unwrap_or("bash"));
    let command = match (spec.command, spec.shell) {
        (Some(name), None) => Command::Program { name, args: spec.args },
        (None, Some(line)) if spec.args.is_empty() => Command::Shell(line),
        (None, Some(_)) => return Err(Problem::invalid("`args` goes with `command`, not with `shell`")),
        (None, None) => return Err(Problem::invalid("send `command` (and `args`), or `shell`")),
        (Some(_), Some(_)) => return Err(Problem::invalid("send `command` or `shell`, not both")),
    };
    let stdin = stdin(spec.stdin, spec.stdin_base64)?;
    let mut env = spec.env;
    if spec.tty {
        env.entry("TERM".to_owned()).or_insert_with(|| TERM.to_owned());
    }
    let run = RunRequest {
        command,
        dir: dir_of(tree.id(), spec.dir.as_deref().unwrap_or_default())?,
        env,
        stdin,
        skills: if spec.workspace { workspace(tree.id())? } else { skills(tree.id(), spec.skills)? },
        timeout_ms: spec.timeout_ms,
        isolation: spec.isolation.map(|Word(tier)| tier),
        network: spec.network.map(|Word(network)| network),
        encoding: spec.encoding.0,
        tty: spec.tty,
        changes: spec.changes,
        reached: spec.reached,
        commit: spec.commit.0,
    };
    let is_asking = spec.commit.0 == Commit::Ask;
    let is_remembered =
        query.background || id.is_some() || form.is_stream() || spec.stdin_open || spec.tty || is_asking;
    if !is_remembered {
        let outcome = app.service.run(tree.to_run_in(), run).await?;
        return success_with(
            walls.result(outcome.result),
            Beside {
                exec_id: None,
                absorbed: outcome.absorbed,
                changes: outcome.changes,
                reached: outcome.reached,
            },
        );
    }
    let encoding = run.encoding;
    let purpose = if query.background { Purpose::Background } else { Purpose::Attached };
    let recording = Recording { id, purpose, stdin_open: spec.stdin_open, is_streamed: form.is_stream() };
    let begun = app.service.begin(tree.to_run_in(), run, recording).await?;
    request_log::run(&begun.recorded.id);
    if form.is_stream() {
        return Ok(events::answer(form, begun.follow()?, encoding, true, walls));
    }
    let BeganRun { recorded, is_new, .. } = begun;
    if query.background {
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        return Ok((status, success(Summary::of_named(&recorded, &walls))?).into_response());
    }
    let outcome = recorded.outcome().await?;
    let exec_id = Some(recorded.id.to_string());
    success_with(
        walls.result(outcome.result),
        Beside { exec_id, absorbed: outcome.absorbed, changes: outcome.changes, reached: outcome.reached },
    )
}

fn stdin(text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, Problem> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(Problem::invalid("send `stdin` or `stdin_base64`, not both")),
        (text, None) => Ok(text.map(String::into_bytes)),
        (None, Some(base64)) => {
            let decoded = STANDARD.decode(base64);
            decoded
                .map(Some)
                .map_err(|error| Problem::invalid(format!("`stdin_base64` is not base64: {error}")))
        }
    }
}

/// A reserved field, which this version does not support, is refused, never ignored.
fn refuse_what_is_not_there(spec: &ExecSpec) -> Result<(), Problem> {
    match spec.limits {
        Some(_) => {
            Err(Problem::new(Code::Unsupported, "`limits` is not supported by this version: leave it out"))
        }
        None => Ok(()),
    }
}

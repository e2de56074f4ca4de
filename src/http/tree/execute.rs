//! `POST T/execute?command&timeout_ms&skills&enforcement`

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use exec::{Encoding, ExecResult};
use policy::RelPath;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::Absorbed;

use super::run_skills::{listed, skills};
use super::walls::{Told, Walls};
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::body;
use crate::http::extract::{Params, TreeRequest, parse_json};
use crate::http::{App, request_log};
use crate::ops::run::{Command, Commit, RunRequest};

/// Largest body, in bytes: arguments have their own limit, this one is for JSON around them.
const BODY_BYTES_MAX: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    command: Option<String>,
    timeout_ms: Option<u64>,
    /// As `skills` of `exec`: `all`, or ids between commas.
    skills: Option<String>,
    #[serde(default)]
    enforcement: Told,
}

#[derive(Serialize)]
struct Beside {
    result: ExecResult<Value>,
    #[serde(skip_serializing_if = "is_nothing")]
    absorbed: Absorbed,
}

pub(super) fn is_nothing(absorbed: &Absorbed) -> bool {
    *absorbed == Absorbed::default()
}

pub(in crate::http) async fn execute(
    State(app): State<App>,
    TreeRequest { tree, .. }: TreeRequest,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let name = query.command.ok_or_else(|| Problem::invalid("the parameter `command` is missing"))?;
    request_log::program(&name);
    let body = body::collect(&app, request.into_body(), BODY_BYTES_MAX).await?;
    let args: Vec<String> = if body.is_empty() { Vec::new() } else { parse_json(&body)? };
    let run = RunRequest {
        command: Command::Program { name, args },
        dir: RelPath::root(),
        env: BTreeMap::new(),
        stdin: None,
        timeout_ms: query.timeout_ms,
        isolation: None,
        skills: skills(tree.id(), query.skills.map(listed).transpose()?)?,
        network: None,
        encoding: Encoding::Text,
        changes: false,
        reached: false,
        tty: false,
        commit: Commit::Now,
    };
    let outcome = app.service.run(tree.to_run_in(), run).await?;
    let mut text = format!("Exit Code: {}\nOutput:\n{}", outcome.result.exit_code, outcome.result.output);
    if let Some(hint) = &outcome.result.hint {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{end}[{hint}]"));
    }
    let walls = Walls::of(&app, query.enforcement);
    success_with(text, Beside { result: walls.result(outcome.result), absorbed: outcome.absorbed })
}

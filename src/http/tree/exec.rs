//! `POST T/exec`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use exec::{Encoding, ExecResult, Network, Tier};
use policy::{SkillId, TreeId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use storage::Absorbed;

use super::execute::is_nothing;
use crate::http::answer::{Answer, success_with};
use crate::http::problem::{Code, Problem};
use crate::http::request::{JsonBody, TreeRequest, dir_of};
use crate::http::{App, bounded, facts};
use crate::ops::run::{Command, RunRequest, Skills};

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
    timeout_ms: Option<u64>,
    isolation: Option<Tier>,
    network: Option<Network>,
    #[serde(default)]
    encoding: Encoding,
    skills: Option<bounded::Skills>,
    // Only whether they are there matters; a tree of values would take 16 times the bytes of its text.
    limits: Option<IgnoredAny>,
    exec_id: Option<IgnoredAny>,
}

#[derive(Serialize)]
struct Beside {
    #[serde(skip_serializing_if = "is_nothing")]
    absorbed: Absorbed,
}

pub(in crate::http) async fn exec(
    State(app): State<App>,
    tree: TreeRequest,
    headers: HeaderMap,
    JsonBody(spec): JsonBody<ExecSpec>,
) -> Answer {
    refuse_what_is_not_there(&headers, &spec)?;
    facts::program(spec.command.as_deref().unwrap_or("bash"));
    let command = match (spec.command, spec.shell) {
        (Some(name), None) => Command::Program { name, args: spec.args },
        (None, Some(line)) if spec.args.is_empty() => Command::Shell(line),
        (None, Some(_)) => return Err(Problem::invalid("`args` goes with `command`, not with `shell`")),
        (None, None) => return Err(Problem::invalid("send `command` (and `args`), or `shell`")),
        (Some(_), Some(_)) => return Err(Problem::invalid("send `command` or `shell`, not both")),
    };
    let run = RunRequest {
        command,
        dir: dir_of(&tree.id, spec.dir.as_deref())?,
        env: spec.env,
        stdin: spec.stdin.map(String::into_bytes),
        skills: skills(&tree.id, spec.skills)?,
        timeout_ms: spec.timeout_ms,
        isolation: spec.isolation,
        network: spec.network,
        encoding: spec.encoding,
    };
    let outcome = app.service.run(tree.id, run).await?;
    let data: ExecResult = outcome.result;
    success_with(data, Beside { absorbed: outcome.absorbed })
}

fn skills(id: &TreeId, wanted: Option<bounded::Skills>) -> Result<Skills, Problem> {
    if wanted.is_some() && !matches!(id, TreeId::Workspace(..)) {
        return Err(Problem::invalid(
            "`skills` goes with a command in a workspace: one in a skill sees that skill",
        ));
    }
    match wanted {
        None => Ok(Skills::None),
        Some(bounded::Skills::Word(word)) if word == "all" => Ok(Skills::All),
        Some(bounded::Skills::Word(_)) => {
            Err(Problem::invalid("`skills` is a list of skill ids, or \"all\""))
        }
        Some(bounded::Skills::List(list)) => {
            let parsed: Result<Vec<SkillId>, _> = list.iter().map(|text| SkillId::parse(text)).collect();
            Ok(Skills::Named(parsed.map_err(crate::ops::Error::from)?))
        }
    }
}

/// What the interface reserves and this version does not do is refused, never ignored.
fn refuse_what_is_not_there(headers: &HeaderMap, spec: &ExecSpec) -> Result<(), Problem> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let streams = accept.contains("text/event-stream") || accept.contains("application/x-ndjson");
    let reserved = [
        ("limits", spec.limits.is_some()),
        ("exec_id", spec.exec_id.is_some()),
        ("a streamed answer", streams),
    ];
    match reserved.into_iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(Problem::new(
            Code::Unsupported,
            format!("{what} is not supported by this version: leave it out"),
        )),
        None => Ok(()),
    }
}

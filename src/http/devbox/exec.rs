//! `POST /api/v1/devbox/{name}/exec`

use std::time::SystemTime;

use axum::extract::State;
use exec::{Encoding, ExecResult};
use policy::{Refusal, RelPath};
use serde::{Deserialize, Serialize};

use super::CONTAINER;
use super::dialect::success;
use super::life::namespace;
use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::{nanoseconds, rfc3339};
use crate::http::extract::bounded;
use crate::http::extract::{DevboxRequest, JsonBody, JsonLimit, NoParams};
use crate::http::{App, request_log};
use crate::ops::Error;
use crate::ops::run::{Command, Commit, RunRequest, Skills};
use crate::ops::tree::Tree;

/// The deadline of a command without one, in seconds.
const SECONDS: u64 = 30;
/// The latest deadline, in seconds. That of the service may be earlier.
const SECONDS_MAX: u64 = 600;
/// The exit code of a command that its deadline ended, as timeout(1) has it.
const TIMED_OUT: i32 = 124;
/// What the number of a signal is added to, as shells do it.
const SIGNALLED: i32 = 128;
/// Options of a shell that have the next argument be its script. A login shell would read profiles, of which a run has none.
const SCRIPT_OPTIONS: [&str; 3] = ["-c", "-lc", "-cl"];
/// The script of a shell that becomes the program which its further arguments name.
const STARTING: &str = r#"exec -- "$0" "$@""#;

/// A command as an adapter describes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Asked {
    #[serde(deserialize_with = "bounded::texts")]
    command: Vec<String>,
    stdin: Option<String>,
    timeout_seconds: Option<u64>,
}

impl JsonLimit for Asked {
    /// The longest input and the longest arguments, of which JSON spells some characters in two.
    fn bytes_max(app: &App) -> usize {
        let limits = app.service.run_limits();
        limits.stdin_bytes.saturating_add(limits.arguments_bytes).saturating_mul(2).saturating_add(64 * 1024)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ran<'a> {
    pod_name: &'a str,
    namespace: &'a str,
    container: &'a str,
    command: &'a [String],
    exit_code: i32,
    stdout: String,
    stderr: String,
    executed_at: String,
    /// The deadline that was in force.
    timeout_seconds: u64,
    /// Whether it ended the command.
    timed_out: bool,
    /// Whether output was dropped.
    truncated: bool,
    /// Advice about what a wall or a limit did.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

pub(in crate::http) async fn exec(
    State(app): State<App>,
    DevboxRequest { name, devboxes }: DevboxRequest,
    _: NoParams,
    JsonBody(asked): JsonBody<Asked>,
) -> Answer {
    let seconds = asked.timeout_seconds.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(Problem::invalid(format!("`timeoutSeconds` is {seconds}: send 1 to {SECONDS_MAX}")));
    }
    let command = command(&asked.command)?;
    request_log::program(asked.command.first().map_or("", String::as_str));
    let inside = devboxes.enter(&name)?;
    let tree = Tree::of(&app.service, devboxes.workspace(&name));
    tree.note_use().await?;
    let timeout_ms = seconds * 1000;
    let timeout_seconds =
        timeout_ms.min(app.service.run_limits_of(&devboxes.agent).timeout_ms).div_ceil(1000);
    let executed_at = rfc3339(nanoseconds(SystemTime::now()));
    let run = |command| RunRequest {
        command,
        dir: RelPath::root(),
        env: inside.env.clone(),
        stdin: asked.stdin.clone().map(String::into_bytes),
        timeout_ms: Some(timeout_ms),
        isolation: None,
        skills: Skills::None,
        network: None,
        encoding: Encoding::Text,
        changes: false,
        reached: false,
        tty: false,
        commit: Commit::Now,
    };
    let ran = app.service.run(tree.to_run_in(), run(command)).await;
    let ran = match ran {
        // Nothing was run: callers start few programs, and those start the rest that the profile has.
        Err(Error::Refused(Refusal::CommandNotAllowed { .. })) => {
            app.service.run(tree.to_run_in(), run(started(&asked.command))).await
        }
        ran => ran,
    };
    let result = match ran {
        Err(Error::Removed) => {
            let message = "the devbox was paused, stopped or deleted while the command ran: resume it, and run the command again";
            return Err(Problem::new(Code::Conflict, message));
        }
        ran => ran?.result,
    };
    drop(inside);
    success(Ran {
        pod_name: name.as_str(),
        namespace: namespace(&app),
        container: CONTAINER,
        command: &asked.command,
        exit_code: exit_code(&result),
        stdout: result.stdout,
        stderr: result.stderr,
        executed_at,
        timeout_seconds,
        timed_out: result.timed_out,
        truncated: result.truncated,
        hint: result.hint,
    })
}

/// The command that an argument list means. A shell with nothing but a script is a line for the shell, which may name temporary
/// files; everything else is given to its program as it is.
fn command(argv: &[String]) -> Result<Command, Problem> {
    match argv {
        [] => Err(Problem::invalid("`command` is empty: send a program and its arguments")),
        [shell, option, script]
            if matches!(shell.as_str(), "sh" | "bash") && SCRIPT_OPTIONS.contains(&option.as_str()) =>
        {
            Ok(Command::Shell(script.clone()))
        }
        [name, args @ ..] => Ok(Command::Program { name: name.clone(), args: args.to_vec() }),
    }
}

/// The command that has a shell start a program in its own place, with arguments that the shell does not read.
fn started(argv: &[String]) -> Command {
    let script = ["-c".to_owned(), STARTING.to_owned()];
    Command::Program {
        name: "bash".to_owned(),
        args: script.into_iter().chain(argv.iter().cloned()).collect(),
    }
}

/// The exit code as a shell would tell it.
fn exit_code<E>(result: &ExecResult<E>) -> i32 {
    if result.timed_out {
        return TIMED_OUT;
    }
    let number = |name: &str| (1..).take(31).find(|number| policy::signal::name(*number) == Some(name));
    result.signal.as_deref().and_then(number).map_or(result.exit_code, |number| SIGNALLED + number)
}

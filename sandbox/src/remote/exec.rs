//! Commands on a runner.

use std::time::{Duration, Instant};

use super::answer::Answer;
use super::link::{Call, Link};
use crate::process::HeadTail;
use crate::wire::response::Failed;
use crate::wire::{Data, Request, Response, request, response};
use crate::{Error, ErrorKind, ExecResult, ExecSpec, OUTPUT_BYTES_MAX, Program, Result};

/// The deadline of a command that is given none.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);
/// The longest deadline that founding runners know; longer ones they take for a minute.
const FOUNDING_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// How much longer than its deadline a command may take to be told.
pub(super) const BEYOND: Duration = Duration::from_secs(15);
/// The longest sentence of a runner that is repeated, in characters.
const MESSAGE_CHARACTERS: usize = 300;

/// Runs a command to its end. A caller who leaves has it killed, on runners that know how.
pub(super) async fn exec(link: &Link, spec: ExecSpec) -> Result<ExecResult> {
    let begun = Instant::now();
    let timeout = spec.timeout.unwrap_or(TIMEOUT);
    let timeout = if link.is_exact() { timeout } else { timeout.min(FOUNDING_TIMEOUT_MAX) };
    let most = spec.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let request = Request::Exec(request(link, spec, timeout)?);
    let call =
        Call { operation: "exec", request: &request, patience: timeout + BEYOND, output_bytes_max: most };
    let Answer { response, stdout, stderr, .. } = link.call(call).await?;
    match response {
        Response::ExecResult(told) => {
            let duration = begun.elapsed();
            // The second generation tells no deadline that passed.
            let has_passed = !link.is_exact() && told.exit_code == -1 && duration >= timeout;
            let told = response::ExecResult { timed_out: told.timed_out || has_passed, ..told };
            Ok(result(told, (stdout, stderr), duration))
        }
        Response::Error(told) => Err(failure(link, &told)),
        _ => Err(refused(ErrorKind::Internal, "the runner answered something else than was asked")),
    }
}

pub(super) fn refused(kind: ErrorKind, message: &str) -> Error {
    Error::new(kind, "exec", message)
}

/// The command as a runner is asked for it.
pub(super) fn request(link: &Link, spec: ExecSpec, timeout: Duration) -> Result<request::Exec> {
    let (command, args, shell) = match spec.program {
        Program::Argv { program, arguments } => {
            (String::new(), std::iter::once(program).chain(arguments).collect(), false)
        }
        Program::Shell(script) => (script, Vec::new(), true),
    };
    let mut env = Vec::new();
    for (name, value) in spec.environment {
        // One text on the wire, so that a `=` in a name would begin the value.
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = format!("`{}` is no variable that could be passed", name.escape_debug());
            return Err(refused(ErrorKind::Invalid, &message));
        }
        env.push(format!("{name}={value}"));
    }
    let whole = i64::try_from(timeout.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
    let asked = request::Exec {
        command,
        args,
        shell,
        dir: spec.directory.map(String::from).unwrap_or_default(),
        env,
        // None or less than one means a minute to a runner.
        timeout: whole.max(1),
        ..request::Exec::default()
    };
    if link.is_exact() {
        return Ok(request::Exec {
            timeout_ms: Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            stdin_data: (!spec.stdin.is_empty()).then(|| Data(spec.stdin.clone())),
            output_bytes_max: Some(spec.output_bytes_max.min(OUTPUT_BYTES_MAX) as u64),
            ..asked
        });
    }
    let stdin = String::from_utf8(spec.stdin.into()).map_err(|_| {
        refused(
            ErrorKind::Unsupported,
            "this runner takes only UTF-8 as standard input: replace it with a newer one",
        )
    })?;
    Ok(request::Exec { stdin, ..asked })
}

pub(super) fn result(
    told: response::ExecResult,
    (mut stdout, mut stderr): (HeadTail, HeadTail),
    duration: Duration,
) -> ExecResult {
    // Founding runners tell all of it here, the others ahead.
    stdout.push(told.stdout.as_bytes());
    stderr.push(told.stderr.as_bytes());
    let ((stdout, stdout_dropped), (stderr, stderr_dropped)) = (stdout.finish(), stderr.finish());
    ExecResult {
        stdout,
        stderr,
        stdout_dropped_bytes: told.stdout_dropped.saturating_add(stdout_dropped),
        stderr_dropped_bytes: told.stderr_dropped.saturating_add(stderr_dropped),
        exit_code: told.exit_code.clamp(-1, 255),
        signal: told.signal.map(|signal| sentence(&signal)),
        timed_out: told.timed_out,
        duration,
        hint: told.hint.map(|hint| sentence(&hint)),
    }
}

/// Why no command ran. Founding runners tell every failure to start one as `EIO`, with the paths of their machine.
fn failure(link: &Link, told: &Failed) -> Error {
    if link.is_exact() {
        return refused(told.kind(false), &sentence(&told.message));
    }
    match told.kind(false) {
        ErrorKind::Internal if told.message.contains("no such file or directory") => {
            refused(ErrorKind::NotFound, "there is no such program or directory")
        }
        kind => refused(kind, "the runner did not start the command"),
    }
}

/// A runner's text, short and in one line.
pub(super) fn sentence(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(MESSAGE_CHARACTERS).collect()
}

//! *Shell*: runs a command.

mod export;
mod quote;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::parse;
use super::{Context, Refusal, Report, Tool, truncate};
use crate::text::shown;
use sandbox::{ErrorKind, ExecResult, ExecSpec};

pub use export::{exports, parse_environment};
pub use quote::{shell_escape, shell_quote};

/// How long a command may take unless said otherwise, in seconds.
pub const TIMEOUT_DEFAULT_SECONDS: u64 = 120;
/// How long it may take at most, in seconds.
pub const TIMEOUT_MAX_SECONDS: u64 = 600;
/// The most bytes of each output stream that are shown: 64 KiB, the first and the last half.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// The end of the text of a command that changes its directory.
pub const CD_TIP: &str =
    "\n\nTip: `cd` lasts for this command only; use the tool Cd to change the current directory.";
/// Longest command, in bytes: below what one argument of a program may have.
const COMMAND_BYTES_MAX: usize = 120 * 1024;

/// The tool *Shell*.
#[derive(Clone, Copy, Debug)]
pub struct Shell;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default)]
    command: String,
    #[serde(default)]
    timeout: Option<u64>,
}

#[async_trait]
impl Tool for Shell {
    fn name(&self) -> &'static str {
        "Shell"
    }

    fn description(&self) -> &'static str {
        "Run a shell command in the current directory, to its end. A `cd` in it does not outlast it: use the tool Cd. \
         Variables that a line exports with plain values are there for later commands. Output beyond 64 KB of a stream is \
         left out in its middle."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "The command, for sh" },
                "timeout": { "type": "integer", "minimum": 1, "maximum": TIMEOUT_MAX_SECONDS, "description": "Seconds after which it is killed; 120 by default" }
            },
            "required": ["command"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        Ok(self.report(context, arguments).await?.text)
    }

    fn data_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "exit_code": { "type": ["integer", "null"], "description": "Null when a signal or the deadline ended it" },
                "signal": { "type": ["string", "null"], "description": "The signal that ended it" },
                "timed_out": { "type": "boolean" },
                "stdout": { "type": "string" },
                "stderr": { "type": "string" },
                "truncated": { "type": "boolean", "description": "Whether the middle of a stream is left out" },
                "duration_ms": { "type": "integer", "minimum": 0 }
            },
            "required": ["exit_code", "signal", "timed_out", "stdout", "stderr", "truncated", "duration_ms"]
        }))
    }

    async fn report(&self, context: &Context<'_>, arguments: &str) -> Result<Report, Refusal> {
        let Parameters { command, timeout } = parse(arguments)?;
        let command = command.trim();
        check(command)?;
        let timeout = timeout.unwrap_or(TIMEOUT_DEFAULT_SECONDS);
        if !(1..=TIMEOUT_MAX_SECONDS).contains(&timeout) {
            return Err(Refusal(format!("timeout is {timeout} s: 1 to {TIMEOUT_MAX_SECONDS} are possible")));
        }
        let session = context.session;
        let mut spec = ExecSpec::shell(command);
        spec.directory = Some(session.directory());
        spec.environment = session.environment();
        spec.timeout = Some(Duration::from_secs(timeout));
        spec.output_bytes_max = OUTPUT_BYTES_MAX;
        let (result, note) = exec(context, spec).await?;
        if result.is_success() {
            for variable in exports(command) {
                // What the shell would have had to work out is not known here.
                if let Some((name, value)) = variable.split_once('=')
                    && !value.contains(['$', '`'])
                {
                    session.export(name, value);
                }
            }
        }
        let text = format!("{note}{}", render(command, &result, timeout));
        Ok(Report { text, data: Some(data(&result)) })
    }
}

/// Runs a command; the text tells when that took forgetting the session's variables.
async fn exec(context: &Context<'_>, spec: ExecSpec) -> Result<(ExecResult, String), Refusal> {
    let (sandbox, user) = (context.sandbox, context.session.user());
    let mut outcome = sandbox.exec(user, spec.clone()).await;
    let mut note = String::new();
    // A variable that this sandbox does not let users set would else make every further command fail.
    if let Err(refused) = &outcome
        && refused.kind() == ErrorKind::Invalid
        && !spec.environment.is_empty()
    {
        let without = ExecSpec { environment: BTreeMap::new(), ..spec };
        let again = sandbox.exec(user, without).await;
        if again.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Invalid) {
            note = format!("(exported variables were forgotten: {})\n", refused.message());
            context.session.forget_exports();
            outcome = again;
        }
    }
    match outcome {
        Ok(result) => Ok((result, note)),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Refusal::new("this sandbox runs no commands"))
        }
        // Which program or argument is refused, and by which rule, is in the backend's own words.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => {
            Err(Refusal(error.message().to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// How a command ended, as data.
fn data(result: &ExecResult) -> Value {
    let is_ended_by_itself = result.signal.is_none() && !result.timed_out;
    json!({
        "exit_code": is_ended_by_itself.then_some(result.exit_code),
        "signal": result.signal,
        "timed_out": result.timed_out,
        "stdout": result.stdout_text(),
        "stderr": result.stderr_text(),
        "truncated": result.stdout_dropped_bytes > 0 || result.stderr_dropped_bytes > 0,
        "duration_ms": u64::try_from(result.duration.as_millis()).unwrap_or(u64::MAX),
    })
}

fn check(command: &str) -> Result<(), Refusal> {
    if command.is_empty() {
        return Err(Refusal::new("command is required"));
    }
    if command.len() > COMMAND_BYTES_MAX {
        return Err(Refusal(format!(
            "the command has {} bytes, at most {COMMAND_BYTES_MAX} are possible: write a script with Edit and run that",
            command.len()
        )));
    }
    let is_refused = |character: &char| character.is_control() && !matches!(character, '\n' | '\t' | '\r');
    if let Some(character) = command.chars().find(is_refused) {
        return Err(Refusal(format!(
            "the command has a control character (U+{:04X}): remove it",
            u32::from(character)
        )));
    }
    Ok(())
}

/// The text that a model reads of a command that ended.
#[must_use]
pub fn render(command: &str, result: &ExecResult, timeout_seconds: u64) -> String {
    let name = shown(&truncate(command, 200));
    let mut text = stream(&result.stdout_text(), result.stdout_dropped_bytes);
    let errors = stream(&result.stderr_text(), result.stderr_dropped_bytes);
    if !errors.is_empty() {
        text.push_str(if text.is_empty() { "[stderr] " } else { "\n[stderr] " });
        text.push_str(&errors);
    }
    let heading = if result.timed_out {
        Some(format!("[TIMEOUT after {}s] {name}", allowed_seconds(result.duration, timeout_seconds)))
    } else if let Some(signal) = &result.signal {
        Some(format!("[KILLED by {signal}] {name}"))
    } else if result.exit_code != 0 {
        Some(format!("[EXIT {}] {name}", result.exit_code))
    } else {
        None
    };
    let mut text = match (heading, text.is_empty()) {
        (Some(heading), true) => heading,
        (Some(heading), false) => format!("{heading}\n{text}"),
        (None, true) => "Command executed successfully (no output)".to_owned(),
        (None, false) => text,
    };
    if let Some(hint) = result.hint.as_deref().filter(|_| !result.timed_out) {
        text.push_str(&format!("\n[{}]", shown(hint)));
    }
    if command.lines().any(|line| matches!(line.split_whitespace().next(), Some("cd" | "pushd"))) {
        text.push_str(CD_TIP);
    }
    text
}

/// The deadline that ended a command, in seconds: a backend may allow less than was asked for.
fn allowed_seconds(took: Duration, asked: u64) -> u64 {
    match took.as_secs() {
        // Not told.
        0 => asked,
        took => took.min(asked),
    }
}

/// A stream without final newlines; what was left out is told where it is missing.
fn stream(text: &str, dropped_bytes: u64) -> String {
    let text = text.trim_end_matches(['\n', '\r']);
    if dropped_bytes == 0 {
        return text.to_owned();
    }
    let (first, last) = text.split_at(text.floor_char_boundary(text.len() / 2));
    format!("{first}\n... [{dropped_bytes} bytes left out] ...\n{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(stdout: &'static str, stderr: &'static str, exit_code: i32) -> ExecResult {
        ExecResult {
            stdout: bytes::Bytes::from_static(stdout.as_bytes()),
            stderr: bytes::Bytes::from_static(stderr.as_bytes()),
            stdout_dropped_bytes: 0,
            stderr_dropped_bytes: 0,
            exit_code,
            signal: None,
            timed_out: false,
            duration: Duration::ZERO,
            hint: None,
        }
    }

    #[test]
    fn how_a_command_ended_stands_first() {
        assert_eq!(render("true", &ended("", "", 0), 120), "Command executed successfully (no output)");
        assert_eq!(render("x", &ended("a\n", "b\n", 0), 120), "a\n[stderr] b");
        assert_eq!(render("x", &ended("", "b\n", 3), 120), "[EXIT 3] x\n[stderr] b");
        assert_eq!(render("false", &ended("", "", 1), 120), "[EXIT 1] false");
        let late = ExecResult { timed_out: true, exit_code: -1, ..ended("part\n", "", -1) };
        assert_eq!(render("sleep 9", &late, 2), "[TIMEOUT after 2s] sleep 9\npart");
        let capped = ExecResult { duration: Duration::from_millis(300_040), ..late.clone() };
        assert!(render("sleep 900", &capped, 600).starts_with("[TIMEOUT after 300s]"));
        let told = ExecResult { hint: Some("`perl` may not run here".into()), ..ended("", "", 126) };
        assert!(render("perl", &told, 600).ends_with("\n[`perl` may not run here]"));
        let killed = ExecResult { signal: Some("SIGKILL".into()), ..ended("", "", -1) };
        assert_eq!(render("x", &killed, 2), "[KILLED by SIGKILL] x");
        assert!(render("cd a && ls", &ended("x", "", 0), 2).contains("Tip: `cd`"));
        let long = ExecResult { stdout_dropped_bytes: 7, ..ended("aabb", "", 0) };
        assert_eq!(render("x", &long, 2), "aa\n... [7 bytes left out] ...\nbb");
    }

    #[test]
    fn commands_with_control_characters_or_of_endless_length_are_refused() {
        for bad in ["", "a\u{1b}[2J", "a\0b", &"x".repeat(COMMAND_BYTES_MAX + 1)] {
            assert!(check(bad).is_err());
        }
        assert!(check("printf '%s\\n' 你好\n\tls").is_ok());
    }
}

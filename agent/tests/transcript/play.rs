//! One conversation as data: every call and every answer, the same over every backend.
//!
//! `steps.jsonl` has a step a line: `put` writes a file, `tool` makes a call, and `text` and `is_error` are what must be
//! answered, byte by byte but for where the workspace is. Steps of `Shell` need a sandbox that runs commands.
//! With `FILESECBOX_RECORD=1` the answers are written anew, to be looked at before they are kept.

use agent::tools::{Context, Search, Session, Toolbox};
use sandbox::{Sandbox, SandboxExt, UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const STEPS: &str = include_str!("steps.jsonl");

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Step {
    #[serde(skip_serializing_if = "Option::is_none")]
    put: Option<String>,
    /// The file's text, `times` times.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// As JSON; a text is sent as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// How many steps were made, and how many needed commands that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Played {
    pub(crate) calls: usize,
    pub(crate) skipped: usize,
}

/// Plays the conversation as `user`, whose workspace is empty, and compares every answer.
pub(crate) async fn play(sandbox: &dyn Sandbox, user: &UserId, search: Search, has_commands: bool) -> Played {
    let session = Session::open(sandbox, user.clone()).await.unwrap();
    let context = Context { search, ..Context::new(sandbox, &session) };
    let toolbox = Toolbox::standard();
    let mut played = Played { calls: 0, skipped: 0 };
    let (mut wrong, mut recorded) = (Vec::new(), String::new());
    for (number, line) in STEPS.lines().enumerate() {
        let mut step: Step = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if let Some(path) = &step.put {
            let path = session.workspace().join(path).unwrap();
            let content = step.content.as_deref().unwrap_or_default().repeat(step.times.unwrap_or(1));
            sandbox.mkdir_all(user, &path.parent().unwrap(), 0o755).await.unwrap();
            sandbox.write(user, &path, content.into()).await.unwrap();
        }
        if let Some(tool) = &step.tool {
            if tool == "Shell" && !has_commands {
                played.skipped += 1;
                recorded.push_str(line);
                recorded.push('\n');
                continue;
            }
            let arguments = match step.arguments.as_ref() {
                Some(Value::String(raw)) => raw.clone(),
                Some(arguments) => arguments.to_string().replace("$WORKSPACE", session.workspace().as_str()),
                None => String::new(),
            };
            let output = toolbox.call(&context, tool, &arguments).await;
            let text = output.text.replace(session.workspace().as_str(), "$WORKSPACE");
            played.calls += 1;
            if (Some(&text), output.is_error) != (step.text.as_ref(), step.is_error) {
                wrong.push(format!(
                    "step {}: {line}\n  answered (error: {}): {text:?}",
                    number + 1,
                    output.is_error
                ));
            }
            (step.text, step.is_error) = (Some(text), output.is_error);
        }
        recorded.push_str(&serde_json::to_string(&step).unwrap());
        recorded.push('\n');
    }
    let is_recording = std::env::var_os("FILESECBOX_RECORD").is_some();
    if is_recording && has_commands {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/transcript/steps.jsonl"),
            recorded,
        )
        .unwrap();
    }
    assert!(
        is_recording || wrong.is_empty(),
        "{} of {} answers differ:\n{}",
        wrong.len(),
        played.calls,
        wrong.join("\n")
    );
    played
}

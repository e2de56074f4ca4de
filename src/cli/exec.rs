//! `filesecbox exec`, against a running service.

use std::io::{Read, Write};
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Outcome;
use super::client::ClientError;
use super::target::{Tree, say};

/// Most of standard input that is sent, in bytes; the service may take less.
const STDIN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Exit codes of this program for what has none of its own, as timeout(1) and shells have them.
const TIMED_OUT: u8 = 124;
const KILLED: u8 = 137;

/// Runs a command in a workspace or a skill, writes what it wrote, and exits as it did
#[derive(Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    tree: Tree,
    /// Working directory in the tree
    #[arg(long, value_name = "PATH")]
    dir: Option<String>,
    /// End the command after so many milliseconds
    #[arg(long, value_name = "MILLISECONDS")]
    timeout_ms: Option<u64>,
    /// Skills that a command in the workspace sees: `all`, or ids between commas
    #[arg(long, value_name = "all|ID,…")]
    skills: Option<String>,
    /// Give the command the standard input of this program
    #[arg(long, short = 'i')]
    stdin: bool,
    /// Print the answer of the service as JSON instead
    #[arg(long)]
    json: bool,
    /// A line of shell, instead of a program
    #[arg(long, value_name = "LINE", conflicts_with = "command", required_unless_present = "command")]
    shell: Option<String>,
    /// The program and its arguments, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Deserialize)]
struct Ended {
    #[serde(default)]
    stdout_base64: String,
    #[serde(default)]
    stderr_base64: String,
    exit_code: i32,
    timed_out: bool,
    hint: Option<String>,
}

pub(super) fn run(args: ExecArgs) -> Outcome {
    let client = args.tree.client()?;
    let body = args.body()?.to_string();
    let url = client.url(&args.tree.route(&["exec"]), &[]);
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let response = client.post(&url, "application/json", Some(bytes), body.as_bytes())?;
    if args.json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(ExitCode::SUCCESS);
    }
    let ended: Ended = client.data(response)?;
    let foreign = |_| ClientError::Foreign { server: client.server.clone() };
    std::io::stdout().write_all(&STANDARD.decode(&ended.stdout_base64).map_err(foreign)?)?;
    std::io::stderr().write_all(&STANDARD.decode(&ended.stderr_base64).map_err(foreign)?)?;
    if let Some(hint) = &ended.hint {
        writeln!(std::io::stderr(), "filesecbox: {hint}")?;
    }
    Ok(match (u8::try_from(ended.exit_code), ended.timed_out) {
        (_, true) => ExitCode::from(TIMED_OUT),
        (Ok(code), false) => ExitCode::from(code),
        (Err(_), false) => ExitCode::from(KILLED),
    })
}

impl ExecArgs {
    /// The body of the request.
    fn body(&self) -> std::io::Result<Value> {
        let mut body = Map::new();
        body.insert("encoding".to_owned(), json!("base64"));
        match (&self.shell, self.command.split_first()) {
            (Some(line), _) => drop(body.insert("shell".to_owned(), json!(line))),
            (None, Some((program, args))) => {
                body.insert("command".to_owned(), json!(program));
                body.insert("args".to_owned(), json!(args));
            }
            (None, None) => {}
        }
        body.extend(self.dir.as_ref().map(|dir| ("dir".to_owned(), json!(dir))));
        body.extend(self.timeout_ms.map(|timeout| ("timeout_ms".to_owned(), json!(timeout))));
        body.extend(self.skills.as_deref().map(|skills| {
            let ids: Vec<&str> = skills.split(',').collect();
            ("skills".to_owned(), if skills == "all" { json!("all") } else { json!(ids) })
        }));
        if self.stdin {
            let mut bytes = Vec::new();
            std::io::stdin().take(STDIN_BYTES_MAX).read_to_end(&mut bytes)?;
            body.insert("stdin_base64".to_owned(), json!(STANDARD.encode(bytes)));
        }
        Ok(Value::Object(body))
    }
}

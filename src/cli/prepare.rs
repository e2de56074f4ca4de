//! `filesecbox prepare`, against a running service.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Outcome;
use super::client::{Client, ClientError};
use super::target::{Owner, say};

/// Most bytes of a file that are sent; the service may take less.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Brings a workspace to the state that a round of a conversation needs, and tells each step
#[derive(Args)]
pub(super) struct PrepareArgs {
    #[command(flatten)]
    target: Owner,
    /// The purpose of the round
    #[arg(long, value_enum, default_value = "run")]
    mode: Mode,
    /// A selected version of a skill; may be there several times
    #[arg(long = "skill", short, value_name = "SKILL=VERSION", value_parser = selected)]
    skills: Vec<(String, String)>,
    /// A file with the script of the sandbox; `-` is standard input
    #[arg(long, value_name = "FILE")]
    entrypoint: Option<PathBuf>,
    /// A file for `user_files`; may be there several times
    #[arg(long = "file", short, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A step of the service's configuration that comes first; may be there several times
    #[arg(long, value_name = "NAME")]
    bootstrap: Vec<String>,
    /// The time of each script
    #[arg(long, value_name = "SECONDS")]
    timeout_seconds: Option<u32>,
    /// Print the answer of the service as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Run,
    ToolCall,
    EditDebug,
}

#[derive(Deserialize)]
struct Prepared {
    workdir: Option<String>,
    skills: Vec<Skill>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Skill {
    name: String,
    skill_md_path: String,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    outcome: String,
    duration_ms: u64,
    log: String,
}

fn selected(text: &str) -> Result<(String, String), String> {
    let (skill, version) = text.rsplit_once('=').ok_or("write SKILL=VERSION")?;
    Ok((skill.to_owned(), version.to_owned()))
}

pub(super) fn run(args: PrepareArgs) -> Outcome {
    let client = args.target.client()?;
    let url = client.url(&["v1", "sandbox", &args.target.user, &args.target.agent, "prepare"], &[]);
    let body = args.body()?.to_string();
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let response = client.post(&url, "application/json", Some(bytes), body.as_bytes())?;
    if args.json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(ExitCode::SUCCESS);
    }
    tell(&client, response)?;
    Ok(ExitCode::SUCCESS)
}

fn tell(client: &Client, response: ureq::http::Response<ureq::Body>) -> Result<(), ClientError> {
    let Prepared { workdir, skills, steps } = client.data(response)?;
    for Step { name, outcome, duration_ms, log } in steps {
        say(&format!("{name}: {outcome} ({duration_ms} ms)"));
        for line in log.lines() {
            say(&format!("    {}", line.escape_debug()));
        }
    }
    for Skill { name, skill_md_path } in skills {
        say(&format!("skill {}: {}", name.escape_debug(), skill_md_path.escape_debug()));
    }
    if let Some(workdir) = workdir {
        say(&format!("ready in {}", workdir.escape_debug()));
    }
    Ok(())
}

impl PrepareArgs {
    /// The body of the request.
    fn body(&self) -> Result<Value, ClientError> {
        let skills = self.skills.iter();
        let skills = skills.map(|(skill, version)| json!({ "skill_id": skill, "version_id": version }));
        let entrypoint = match &self.entrypoint {
            Some(path) => String::from_utf8_lossy(&bytes_of(path)?).into_owned(),
            None => String::new(),
        };
        let mut files = Vec::new();
        for path in &self.files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push(json!({ "name": name, "content_base64": STANDARD.encode(bytes_of(path)?) }));
        }
        Ok(json!({
            "mode": match self.mode { Mode::Run => "run", Mode::ToolCall => "tool_call", Mode::EditDebug => "edit_debug" },
            "skills": skills.collect::<Vec<_>>(),
            "entrypoint": entrypoint,
            "files": files,
            "bootstrap": self.bootstrap,
            "timeout_seconds": self.timeout_seconds,
        }))
    }
}

/// Reads a file, or standard input.
#[expect(clippy::disallowed_methods, reason = "a file that the caller names; nothing stored")]
fn bytes_of(path: &std::path::Path) -> Result<Vec<u8>, ClientError> {
    let failed = |source| ClientError::File { path: path.display().to_string(), source };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        return Ok(bytes);
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > FILE_BYTES_MAX {
        let path = path.display().to_string();
        return Err(ClientError::TooLarge { path, bytes: length, limit: FILE_BYTES_MAX });
    }
    Ok(bytes)
}

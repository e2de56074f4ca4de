//! `filesecbox prepare`, against a running service.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
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

/// One line of the answer as it comes.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Told {
    Step { name: String },
    Progress { name: String, done: u64, of: u64 },
    StepEnded { step: Step },
    Prepared { result: Prepared },
    Failed { code: String, data: String },
}

pub(super) fn run(args: PrepareArgs) -> Outcome {
    let client = args.target.client()?;
    let segments = ["v1", "sandbox", &args.target.user, &args.target.agent, "prepare"];
    let url = client.url(&segments, if args.json { &[] } else { &[("stream", "true")] });
    let body = args.body()?.to_string();
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let response = client.post(&url, "application/json", Some(bytes), body.as_bytes())?;
    if args.json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(ExitCode::SUCCESS);
    }
    let bar = bar(args.steps());
    let told = tell(&client, response, &bar);
    bar.finish_and_clear();
    told?;
    Ok(ExitCode::SUCCESS)
}

/// Tells each step when it has ended, and shows on `bar` which one is under way.
fn tell(
    client: &Client,
    response: ureq::http::Response<ureq::Body>,
    bar: &ProgressBar,
) -> Result<(), ClientError> {
    for told in client.lines::<Told>(response) {
        match told? {
            Told::Step { name } => bar.set_message(name),
            Told::Progress { name, done, of } => bar.set_message(format!("{name} {done}/{of}")),
            Told::StepEnded { step: Step { name, outcome, duration_ms, log } } => {
                bar.inc(1);
                bar.suspend(|| {
                    say(&format!("{name}: {outcome} ({duration_ms} ms)"));
                    for line in log.lines() {
                        say(&format!("    {}", line.escape_debug()));
                    }
                });
            }
            Told::Prepared { result: Prepared { workdir, skills } } => {
                bar.finish_and_clear();
                for Skill { name, skill_md_path } in skills {
                    say(&format!("skill {}: {}", name.escape_debug(), skill_md_path.escape_debug()));
                }
                if let Some(workdir) = workdir {
                    say(&format!("ready in {}", workdir.escape_debug()));
                }
                return Ok(());
            }
            Told::Failed { code, data } => return Err(ClientError::Refused { message: data, code }),
        }
    }
    Err(client.broke_off())
}

/// A bar on a terminal, and nothing elsewhere; shown after a moment, so that short rounds stay quiet.
fn bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl PrepareArgs {
    /// How many steps the round has: those of its mode, and those that it skips and tells.
    fn steps(&self) -> u64 {
        let (has_skills, is_run) = (!self.skills.is_empty(), matches!(self.mode, Mode::Run));
        let deploys = usize::from(is_run || has_skills);
        let others = usize::from(!self.files.is_empty()) + usize::from(self.entrypoint.is_some());
        let scans = match self.mode {
            // The script of each version, and looking for skills.
            Mode::Run if has_skills => self.skills.len() + 1,
            Mode::Run | Mode::ToolCall => 0,
            Mode::EditDebug => 1,
        };
        u64::try_from(self.bootstrap.len() + deploys + others + scans).unwrap_or(u64::MAX)
    }

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

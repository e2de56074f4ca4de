//! `filesecbox skill upload|list|download|rm`, against a running service.

use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::Outcome;
use super::client::{Client, ClientError};

#[derive(Subcommand)]
pub(super) enum SkillCommand {
    /// Upload a skill archive (ZIP)
    Upload {
        #[command(flatten)]
        target: Target,
        /// The owner of the skills: `baseline` for all users of the agent, `overlay` for one user
        #[arg(long, value_enum, default_value = "overlay")]
        scope: Scope,
        /// Encoding of names that the archive does not mark
        #[arg(long, default_value = "auto", value_name = "auto|utf-8|gbk")]
        charset: String,
        /// The archive
        file: PathBuf,
    },
    /// List the skills that a user sees
    List {
        #[command(flatten)]
        target: Target,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Download a skill as a user sees it
    Download {
        #[command(flatten)]
        target: Target,
        /// The skill's id
        skill: String,
        /// Where to; `-` is standard output [default: SKILL.zip]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Remove a skill: hide it from one user, or take it from all
    Rm {
        #[command(flatten)]
        target: Target,
        /// The owner to remove from: `baseline` for all users of the agent, `overlay` for one user
        #[arg(long, value_enum, default_value = "overlay")]
        scope: Scope,
        /// The skill's id
        skill: String,
    },
}

/// Which service, user and agent.
#[derive(Args)]
pub(super) struct Target {
    /// Address of the service
    #[arg(long, env = "FILESECBOX_SERVER", default_value = "http://127.0.0.1:8003", value_name = "URL")]
    server: String,
    /// Token, when the service wants one
    #[arg(long, env = "FILESECBOX_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The user
    #[arg(long, short, env = "FILESECBOX_USER")]
    user: String,
    /// The agent
    #[arg(long, short, env = "FILESECBOX_AGENT")]
    agent: String,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Scope {
    Baseline,
    Overlay,
}

impl Scope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Overlay => "overlay",
        }
    }
}

#[derive(Deserialize)]
struct Listed {
    skill_id: String,
    name: String,
    description: String,
    status: String,
}

pub(super) fn run(command: SkillCommand) -> Outcome {
    match command {
        SkillCommand::Upload { target, scope, charset, file } => upload(&target, scope, &charset, &file)?,
        SkillCommand::List { target, json } => list(&target, json)?,
        SkillCommand::Download { target, skill, output } => download(&target, &skill, output.as_deref())?,
        SkillCommand::Rm { target, scope, skill } => {
            let client = target.client();
            let url = client.url(&target.route(&[&skill]), &[("scope", scope.as_str())]);
            say(&client.data::<String>(client.delete(&url)?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Target {
    fn client(&self) -> Client {
        Client::new(&self.server, self.token.clone())
    }

    fn route<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["v1", "skills", self.user.as_str(), self.agent.as_str()], rest].concat()
    }
}

fn upload(target: &Target, scope: Scope, charset: &str, path: &Path) -> Result<(), ClientError> {
    let client = target.client();
    let at_path = |source| ClientError::File { path: path.display().to_string(), source };
    #[expect(clippy::disallowed_methods, reason = "a file of the person at the command line")]
    let file = File::open(path).map_err(at_path)?;
    let bytes = file.metadata().map_err(at_path)?.len();
    let name = path.file_name().map(|name| name.to_string_lossy().replace(['"', '\r', '\n'], "_"));
    let name = name.unwrap_or_default();

    // RFC 7578: one part, between two boundaries that no ZIP holds by chance.
    let boundary = format!("filesecbox-{:016x}{:016x}", random(), random());
    let head = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         content-type: application/zip\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let total = bytes + u64::try_from(head.len() + tail.len()).unwrap_or(0);
    let bar = progress(Some(bytes));
    let body = Cursor::new(head).chain(bar.wrap_read(file)).chain(Cursor::new(tail));
    let url = client.url(&target.route(&["upload"]), &[("scope", scope.as_str()), ("charset", charset)]);
    let sent = client.post(&url, &format!("multipart/form-data; boundary={boundary}"), total, body);
    bar.finish_and_clear();
    say(&client.data::<String>(sent?)?);
    Ok(())
}

fn random() -> u64 {
    getrandom::u64().unwrap_or(0x5EED)
}

fn list(target: &Target, json: bool) -> Result<(), ClientError> {
    let client = target.client();
    let response = client.get(&client.url(&target.route(&["list"]), &[]))?;
    if json {
        let data: serde_json::Value = client.data(response)?;
        say(&format!("{data:#}"));
        return Ok(());
    }
    let skills: Vec<Listed> = client.data(response)?;
    for Listed { skill_id, name, description, status } in skills {
        let label = if name == skill_id { skill_id } else { format!("{skill_id} ({name})") };
        let first = description.lines().next().unwrap_or_default();
        say(&format!("{status:<12} {label}: {first}"));
    }
    Ok(())
}

fn download(target: &Target, skill: &str, output: Option<&Path>) -> Result<(), ClientError> {
    let client = target.client();
    let response = client.get(&client.url(&target.route(&[skill, "download"]), &[]))?;
    let bytes = response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    let named = PathBuf::from(format!("{}.zip", skill.replace('/', "_")));
    let path = output.unwrap_or(&named);
    let at_path = |source| ClientError::File { path: path.display().to_string(), source };
    let bar = progress(bytes);
    let mut from = bar.wrap_read(response.into_body().into_reader());
    if path == Path::new("-") {
        let mut stdout = std::io::stdout().lock();
        std::io::copy(&mut from, &mut stdout).and_then(|_| stdout.flush()).map_err(at_path)?;
        return Ok(());
    }
    // Under another name until it is whole: a broken transfer leaves no archive that looks complete.
    let partial = path.with_extension("zip.part");
    #[expect(clippy::disallowed_methods, reason = "a file of the person at the command line")]
    let mut file = File::create(&partial).map_err(at_path)?;
    std::io::copy(&mut from, &mut file).map_err(at_path)?;
    std::fs::rename(&partial, path).map_err(at_path)?;
    bar.finish_and_clear();
    say(&format!("Saved {}", path.display()));
    Ok(())
}

/// A bar on a terminal, and nothing elsewhere; shown after a moment, so that short transfers stay quiet.
fn progress(bytes: Option<u64>) -> ProgressBar {
    let bar = bytes.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[expect(clippy::print_stdout, reason = "the command line speaks to a person")]
fn say(line: &str) {
    println!("{line}");
}

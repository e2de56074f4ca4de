//! `filesecbox skill upload|list|download|rm`, against a running service.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::Outcome;
use super::client::ClientError;
use super::folder::Folder;
use super::target::Owner;

#[derive(Subcommand)]
pub(super) enum SkillCommand {
    /// Upload skills: an archive (ZIP, tar, tar.gz, tar.zst), or a folder, which is packed on the way
    Upload {
        #[command(flatten)]
        target: Owner,
        /// The owner of the skills: `baseline` for all users of the agent, `overlay` for one user
        #[arg(long, value_enum, default_value = "overlay")]
        scope: Scope,
        /// Encoding of names that the archive does not mark
        #[arg(long, default_value = "auto", value_name = "auto|utf-8|gbk")]
        charset: String,
        /// Publish nothing; tell what would be
        #[arg(long)]
        dry_run: bool,
        /// The archive or the folder
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,
    },
    /// List the skills that a user sees
    List {
        #[command(flatten)]
        target: Owner,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Download a skill as a user sees it
    Download {
        #[command(flatten)]
        target: Owner,
        /// The skill's id
        skill: String,
        /// Where to; `-` is standard output [default: SKILL.zip]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Remove a skill: hide it from one user, or take it from all
    Rm {
        #[command(flatten)]
        target: Owner,
        /// The owner to remove from: `baseline` for all users of the agent, `overlay` for one user
        #[arg(long, value_enum, default_value = "overlay")]
        scope: Scope,
        /// The skill's id
        skill: String,
    },
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
        SkillCommand::Upload { target, scope, charset, dry_run, path } => {
            upload(&target, scope, &charset, dry_run, &path)?;
        }
        SkillCommand::List { target, json } => list(&target, json)?,
        SkillCommand::Download { target, skill, output } => download(&target, &skill, output.as_deref())?,
        SkillCommand::Rm { target, scope, skill } => {
            let client = target.client()?;
            let url = client.url(&target.skills(&[&skill]), &[("scope", scope.as_str())]);
            say(&client.data::<String>(client.delete(&url)?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer of an upload, as far as it is shown.
#[derive(Deserialize)]
struct Uploaded {
    data: String,
    result: UploadOutcome,
}

#[derive(Deserialize)]
struct UploadOutcome {
    skills: Vec<UploadedSkill>,
    skipped: Vec<Skipped>,
    skipped_total: usize,
    doubtful: Vec<Doubt>,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct UploadedSkill {
    skill_id: String,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Skipped {
    path: String,
    reason: String,
}

#[derive(Deserialize)]
struct Doubt {
    skill_id: String,
    doubt: String,
}

fn upload(
    target: &Owner,
    scope: Scope,
    charset: &str,
    dry_run: bool,
    path: &Path,
) -> Result<(), ClientError> {
    let client = target.client()?;
    let dry_run = if dry_run { "true" } else { "false" };
    let query = [("scope", scope.as_str()), ("charset", charset), ("dry_run", dry_run)];
    let url = client.url(&target.skills(&["upload"]), &query);
    let at_path = |source| ClientError::File { path: path.display().to_string(), source };
    let sent = if path.metadata().map_err(at_path)?.is_dir() {
        let folder = Folder::look(path)?;
        client.check_upload(path, folder.bytes)?;
        let form = Form::new(&format!("{}.tar", folder.name), "application/x-tar");
        let bar = progress(Some(folder.bytes));
        let mut packing = folder.pack()?;
        let sent = client.post(&url, &form.content_type(), None, form.around(bar.wrap_read(&mut packing)));
        bar.finish_and_clear();
        if let Some(failure) = packing.failure() {
            return Err(failure);
        }
        sent
    } else {
        #[expect(clippy::disallowed_methods, reason = "a file of the person at the command line")]
        let file = File::open(path).map_err(at_path)?;
        let bytes = file.metadata().map_err(at_path)?.len();
        client.check_upload(path, bytes)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let form = Form::new(&name, "application/octet-stream");
        let bar = progress(Some(bytes));
        let total = bytes + form.bytes();
        let sent = client.post(&url, &form.content_type(), Some(total), form.around(bar.wrap_read(file)));
        bar.finish_and_clear();
        sent
    };
    let Uploaded { data, result } = client.whole(sent?)?;
    say(&data);
    result.tell();
    Ok(())
}

impl UploadOutcome {
    /// Says what a person should know, apart from the result.
    fn tell(&self) {
        for warning in &self.warnings {
            note(&format!("warning: {warning}"));
        }
        for Doubt { skill_id, doubt } in &self.doubtful {
            note(&format!("{skill_id}: {doubt}"));
        }
        for UploadedSkill { skill_id, warnings } in &self.skills {
            warnings.iter().for_each(|warning| note(&format!("{skill_id}: warning: {warning}")));
        }
        for Skipped { path, reason } in &self.skipped {
            note(&format!("skipped: {path} ({})", reason.replace('_', " ")));
        }
        if self.skipped_total > self.skipped.len() {
            note(&format!("skipped: {} more", self.skipped_total - self.skipped.len()));
        }
    }
}

/// A form of one part named `file`, between two boundaries that no archive holds by chance (RFC 7578).
struct Form {
    boundary: String,
    head: String,
    tail: String,
}

impl Form {
    fn new(file_name: &str, content_type: &str) -> Self {
        let boundary = format!("filesecbox-{:016x}{:016x}", random(), random());
        let file_name = file_name.replace(['"', '\r', '\n'], "_");
        let head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{file_name}\"\r\n\
             content-type: {content_type}\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        Self { boundary, head, tail }
    }

    fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// The bytes around the file.
    fn bytes(&self) -> u64 {
        u64::try_from(self.head.len() + self.tail.len()).unwrap_or(0)
    }

    fn around<'a>(&'a self, file: impl Read + 'a) -> impl Read + 'a {
        self.head.as_bytes().chain(file).chain(self.tail.as_bytes())
    }
}

fn random() -> u64 {
    getrandom::u64().unwrap_or(0x5EED)
}

fn list(target: &Owner, json: bool) -> Result<(), ClientError> {
    let client = target.client()?;
    let response = client.get(&client.url(&target.skills(&["list"]), &[]))?;
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

fn download(target: &Owner, skill: &str, output: Option<&Path>) -> Result<(), ClientError> {
    let client = target.client()?;
    let response = client.get(&client.url(&target.skills(&[skill, "download"]), &[]))?;
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

#[expect(clippy::print_stderr, reason = "the command line speaks to a person")]
fn note(line: &str) {
    eprintln!("{line}");
}

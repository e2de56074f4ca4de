//! `filesecbox audit`: reading the audit log, also while the service runs.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use storage::Dir;

use super::{Outcome, ServeArgs};
use crate::audit::key::Key;
use crate::audit::record::{Head, Record};
use crate::audit::seals::Removed;
use crate::audit::verify::{self, Report, Sealing};

#[derive(Subcommand)]
pub(super) enum AuditCommand {
    /// Tell whether every record is there and is what it was; exits with 1 when not
    Verify(VerifyArgs),
    /// Print the last records, oldest first
    Tail(TailArgs),
}

#[derive(Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// A record that must be in the log, as an earlier `verify` printed it
    #[arg(long, value_name = "NUMBER:HASH", value_parser = head)]
    contains: Option<Head>,
}

#[derive(Args)]
pub(super) struct TailArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// How many
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    lines: u32,
    /// As JSON, one record a line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &AuditCommand) -> Outcome {
    match command {
        AuditCommand::Verify(args) => verify(args),
        AuditCommand::Tail(args) => tail(args),
    }
}

fn open(args: &ServeArgs) -> Result<Dir, Box<dyn std::error::Error>> {
    let path = args.config()?.root.join(".filesecbox/audit");
    Dir::ambient_open(&path).map_err(|error| format!("no audit log below the data directory: {error}").into())
}

/// The key of the seals; `None` where no service has made one.
fn key(args: &ServeArgs) -> Result<Option<Key>, Box<dyn std::error::Error>> {
    let path = args.config()?.root.join(".filesecbox/keys");
    Ok(Dir::ambient_open(&path).ok().map(|keys| Key::read(&keys)).transpose()?.flatten())
}

fn verify(args: &VerifyArgs) -> Outcome {
    let key = key(&args.serve)?;
    let report = verify::read(&open(&args.serve)?, key.as_ref(), args.contains.as_ref(), &mut |_| {})?;
    let is_whole = report.broken.is_empty() && report.contains != Some(false);
    tell(&report, &mut io::stdout())?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "records  {} in {} files", report.records, report.files)?;
    tell_beginning(report, out)?;
    writeln!(out, "head     {}:{}", report.head.seq, report.head.hash)?;
    for torn in &report.sealed {
        writeln!(out, "torn     {} bytes by a crash, told by the start that followed", torn.bytes)?;
    }
    if report.open_end_bytes > 0 {
        let bytes = report.open_end_bytes;
        writeln!(out, "open     {bytes} bytes behind the last record: being written, or torn by a crash")?;
    }
    match report.contains {
        Some(true) => writeln!(out, "contains the record that was asked for")?,
        Some(false) => writeln!(out, "BROKEN   the record that was asked for is not in the log")?,
        None => {}
    }
    for broken in &report.broken {
        writeln!(out, "BROKEN   {broken}")?;
    }
    if report.broken.is_empty() {
        writeln!(out, "the chain is whole")?;
    }
    Ok(())
}

/// Tells where the log begins, what was before, and since when a missing file is noticed.
fn tell_beginning(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let Some(Sealing { since, files, removed }) = &report.sealing else {
        if report.first > 1 {
            writeln!(out, "first    {} (older files are gone)", report.first)?;
        }
        return writeln!(out, "seals    none: whether a whole file is missing at either end cannot be told");
    };
    if report.first > 1 && removed.files > 0 {
        let Removed { files, records, bytes, at, .. } = removed;
        let gone = format!("{files} files with {records} records and {bytes} bytes");
        writeln!(
            out,
            "first    {} (older files are gone: the service removed {gone}, the last at {at})",
            report.first
        )?;
    } else if report.first > 1 && report.first < *since {
        writeln!(out, "first    {} (older files are gone: before there were seals)", report.first)?;
    } else if report.first > 1 {
        writeln!(out, "first    {} (the records before it are missing)", report.first)?;
    }
    writeln!(out, "seals    {files} files, from record {since} on")
}

fn tail(args: &TailArgs) -> Outcome {
    let most = usize::try_from(args.lines)?;
    let mut last: VecDeque<Record> = VecDeque::new();
    let report = verify::read(&open(&args.serve)?, None, None, &mut |record| {
        if last.len() >= most {
            last.pop_front();
        }
        last.push_back(record.clone());
    })?;
    let mut out = io::stdout().lock();
    for record in &last {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(record)?)?;
        } else {
            writeln!(out, "{}", line(record))?;
        }
    }
    if !report.broken.is_empty() {
        return Err("the log is broken: `filesecbox audit verify` tells where".into());
    }
    Ok(ExitCode::SUCCESS)
}

/// A record for a person.
fn line(record: &Record) -> String {
    let entry = &record.entry;
    let mut line = format!("{} {} {} {}", record.seq, entry.time, entry.outcome, entry.action);
    let facts = [
        ("role", &entry.role),
        ("token", &entry.token),
        ("user", &entry.user),
        ("tree", &entry.tree),
        ("scope", &entry.scope),
        ("program", &entry.program),
        ("issued", &entry.issued),
        ("request", &entry.request),
        ("caller_request", &entry.caller_request),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            line.push_str(&format!(" {name}={value}"));
        }
    }
    for path in &entry.paths {
        line.push_str(&format!(" path={}", path.shown()));
    }
    if entry.suppressed > 0 {
        line.push_str(&format!(" suppressed={}", entry.suppressed));
    }
    line
}

fn head(text: &str) -> Result<Head, String> {
    let wrong =
        || format!("`{text}` is no record: write `NUMBER:HASH`, as `filesecbox audit verify` prints it");
    let (seq, hash) = text.split_once(':').ok_or_else(wrong)?;
    let seq = seq.parse().map_err(|_| wrong())?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| Head { seq, hash: hash.to_ascii_lowercase() }).ok_or_else(wrong)
}

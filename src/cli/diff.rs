//! `filesecbox diff`, against a running service.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::Outcome;
use super::target::{Owner, say};

/// Shows what a user changed in a skill, as a patch
#[derive(Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    owner: Owner,
    /// The skill's id
    skill: String,
    /// Print the answer of the service as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Changed {
    path: String,
    change: String,
    diff: Option<String>,
    #[serde(default)]
    omitted: Option<String>,
}

pub(super) fn run(args: &DiffArgs) -> Outcome {
    let client = args.owner.client()?;
    let response = client.get(&client.url(&args.owner.skill(&args.skill, "diff"), &[]))?;
    if args.json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    for Changed { path, change, diff, omitted } in client.data::<Vec<Changed>>(response)? {
        match diff {
            Some(diff) => out.write_all(diff.as_bytes())?,
            // Neither git nor patch(1) minds a line between two files.
            None => writeln!(out, "{change} {path} ({})", omitted.unwrap_or_default())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

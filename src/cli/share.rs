//! `filesecbox share make|list|revoke`, against a running service.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Outcome;
use super::client::ClientError;
use super::target::{Owner, say};
use super::token::seconds;

#[derive(Subcommand)]
pub(super) enum ShareCommand {
    /// Print a link by which installers read skills without a token; it is told only once
    Make {
        #[command(flatten)]
        target: Owner,
        /// The skills of all users of the agent, instead of what the user sees
        #[arg(long)]
        baseline: bool,
        /// How long it counts: a number of seconds, or with `s`, `m`, `h` or `d` [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        ttl: Option<u64>,
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
        /// These skills [default: all]
        #[arg(value_name = "SKILL")]
        skills: Vec<String>,
    },
    /// List the links of a user and agent that count
    List {
        #[command(flatten)]
        target: Owner,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a link
    Revoke {
        #[command(flatten)]
        target: Owner,
        /// The id of the link, as the list and logs have it
        id: String,
    },
}

#[derive(Deserialize)]
struct Made {
    data: String,
    id: String,
}

#[derive(Deserialize)]
struct Share {
    id: String,
    view: String,
    skills: Option<Vec<String>>,
    note: Option<String>,
    made_by: String,
    expires_at: Option<String>,
}

pub(super) fn run(command: ShareCommand) -> Outcome {
    match command {
        ShareCommand::Make { target, baseline, ttl, note, skills } => {
            let skills = Some(skills).filter(|skills| !skills.is_empty());
            let view = if baseline { "baseline" } else { "user" };
            let wanted = json!({ "view": view, "skills": skills, "ttl_seconds": ttl, "note": note });
            make(&target, &wanted)?;
        }
        ShareCommand::List { target, json } => list(&target, json)?,
        ShareCommand::Revoke { target, id } => {
            let client = target.client()?;
            let url = client.url(&["v1", "shares", &target.user, &target.agent, &id], &[]);
            say(&client.data::<String>(client.delete(&url)?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make(target: &Owner, wanted: &Value) -> Result<(), ClientError> {
    let client = target.client()?;
    let url = client.url(&["v1", "shares", &target.user, &target.agent], &[]);
    let body = wanted.to_string();
    let length = u64::try_from(body.len()).ok();
    let made: Made = client.whole(client.post(&url, "application/json", length, body.as_bytes())?)?;
    let whole = if made.data.starts_with('/') {
        format!("{}{}", target.server.server.trim_end_matches('/'), made.data)
    } else {
        made.data
    };
    say(&whole);
    tell(&format!("The link `{}` counts until it is revoked or expires.", made.id));
    Ok(())
}

/// Beside the link, which another program may read.
#[expect(clippy::print_stderr, reason = "the command line speaks to a person")]
fn tell(line: &str) {
    eprintln!("{line}");
}

fn list(target: &Owner, json: bool) -> Result<(), ClientError> {
    let client = target.client()?;
    let response = client.get(&client.url(&["v1", "shares", &target.user, &target.agent], &[]))?;
    if json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(());
    }
    for share in client.data::<Vec<Share>>(response)? {
        let Share { id, view, skills, note, made_by, expires_at } = share;
        let skills = skills.map_or_else(|| "all skills".to_owned(), |skills| skills.join(", "));
        let until = expires_at.map_or_else(|| "until revoked".to_owned(), |time| format!("until {time}"));
        let note = note.map_or_else(String::new, |note| format!(" ({note})"));
        say(&format!("{id}  {view}: {skills}, by {made_by}, {until}{note}"));
    }
    Ok(())
}

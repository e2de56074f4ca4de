//! `filesecbox rollback`, against a running service.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::Outcome;
use super::target::{Owner, say};

/// Goes back to a former version of an application's skill, for all users; without a version, lists those that are kept
#[derive(Args)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    owner: Owner,
    /// The skill's id
    skill: String,
    /// The version, as the list has it
    version: Option<String>,
}

#[derive(Deserialize)]
struct Kept {
    version: String,
    current: bool,
    replaced_at: Option<String>,
}

pub(super) fn run(args: &RollbackArgs) -> Outcome {
    let client = args.owner.client()?;
    if let Some(version) = &args.version {
        let url = client.url(&args.owner.skill(&args.skill, "rollback"), &[("version", version)]);
        say(&client.data::<String>(client.post(&url, "application/json", Some(0), std::io::empty())?)?);
        return Ok(ExitCode::SUCCESS);
    }
    let response = client.get(&client.url(&args.owner.skill(&args.skill, "versions"), &[]))?;
    for Kept { version, current, replaced_at } in client.data::<Vec<Kept>>(response)? {
        let when = match (current, replaced_at) {
            (true, _) => "current".to_owned(),
            (false, at) => format!("replaced {}", at.as_deref().unwrap_or("at an unknown time")),
        };
        say(&format!("{version}  {when}"));
    }
    Ok(ExitCode::SUCCESS)
}

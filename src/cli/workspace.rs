//! `filesecbox workspace list|usage|rm`, against a running service.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::Value;

use super::Outcome;
use super::client::{Client, ClientError};
use super::target::{Server, say};

#[derive(Subcommand)]
pub(super) enum WorkspaceCommand {
    /// List workspaces: of one user, or of all
    List {
        #[command(flatten)]
        server: Server,
        /// The user [default: all]
        #[arg(long, short, env = "FILESECBOX_USER")]
        user: Option<String>,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell what a workspace, its home, its snapshots and the skills of its user take on the disk
    Usage {
        #[command(flatten)]
        server: Server,
        /// The user
        #[arg(long, short, env = "FILESECBOX_USER")]
        user: String,
        /// The agent
        #[arg(long, short, env = "FILESECBOX_AGENT")]
        agent: String,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a workspace and its home, or those of a user with all agents; skills stay
    Rm {
        #[command(flatten)]
        server: Server,
        /// The user
        #[arg(long, short)]
        user: String,
        /// The agent [default: all]
        #[arg(long, short)]
        agent: Option<String>,
        /// Kill what runs there first
        #[arg(long)]
        force: bool,
        /// Remove the snapshots too
        #[arg(long)]
        snapshots: bool,
    },
}

#[derive(Deserialize)]
struct Listed {
    user: String,
    agent: String,
    snapshots: u64,
    runs: u64,
    terminals: u64,
    last_used_at: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    taken: Taken,
    taken_by_snapshots: Taken,
    skills: Vec<OfSkill>,
}

#[derive(Deserialize)]
struct OfSkill {
    skill_id: String,
    #[serde(flatten)]
    taken: Taken,
}

#[derive(Deserialize)]
struct Taken {
    bytes: u64,
    files: u64,
}

pub(super) fn run(command: WorkspaceCommand) -> Outcome {
    match command {
        WorkspaceCommand::List { server, user, json } => list(&server.client()?, user.as_deref(), json)?,
        WorkspaceCommand::Usage { server, user, agent, json } => {
            usage(&server.client()?, &user, &agent, json)?;
        }
        WorkspaceCommand::Rm { server, user, agent, force, snapshots } => {
            let client = server.client()?;
            let mut segments = vec!["v1", "sandbox", user.as_str()];
            segments.extend(agent.as_deref());
            let flags = [("force", force), ("snapshots", snapshots)];
            let flags: Vec<(&str, &str)> =
                flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (*name, "true")).collect();
            say(&client.data::<String>(client.delete(&client.url(&segments, &flags))?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(client: &Client, user: Option<&str>, json: bool) -> Result<(), ClientError> {
    let mut segments = vec!["v1", "sandbox"];
    segments.extend(user);
    let response = client.get(&client.url(&segments, &[]))?;
    if json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(());
    }
    for listed in client.data::<Vec<Listed>>(response)? {
        let Listed { user, agent, snapshots, runs, terminals, last_used_at } = listed;
        let used = last_used_at.as_deref().unwrap_or("unknown");
        say(&format!("{used:<24} {user}/{agent}: runs {runs}, terminals {terminals}, snapshots {snapshots}"));
    }
    Ok(())
}

fn usage(client: &Client, user: &str, agent: &str, json: bool) -> Result<(), ClientError> {
    let response = client.get(&client.url(&["v1", "sandbox", user, agent], &[]))?;
    if json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(());
    }
    let Usage { taken, taken_by_snapshots, skills } = client.data(response)?;
    let line = |what: &str, taken: &Taken| {
        say(&format!("{:>14} bytes {:>8} files  {what}", taken.bytes, taken.files));
    };
    line("workspace and home", &taken);
    line("snapshots", &taken_by_snapshots);
    for OfSkill { skill_id, taken } in skills {
        line(&format!("skill {skill_id}"), &taken);
    }
    Ok(())
}

//! `filesecbox user list|show|delete`, against a running service.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::Value;

use super::Outcome;
use super::client::{Client, ClientError};
use super::target::{Server, say};

/// Users of one page.
const PAGE: &str = "1000";

#[derive(Subcommand)]
pub(super) enum UserCommand {
    /// List the users of whom there is anything
    List {
        #[command(flatten)]
        server: Server,
    },
    /// Tell what there is of a user, agent by agent
    Show {
        #[command(flatten)]
        server: Server,
        /// The user
        user: String,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove everything of a user, everywhere: runs, workspaces, homes, snapshots, changes of skills
    Delete {
        #[command(flatten)]
        server: Server,
        /// The user
        user: String,
        /// Do it; without, only tell what there is
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Deserialize)]
struct Listed {
    user: String,
}

#[derive(Deserialize)]
struct Facts {
    agents: Vec<OfAgent>,
}

#[derive(Deserialize)]
struct OfAgent {
    agent: String,
    skills: u64,
    workspace: bool,
    snapshots: u64,
    runs: u64,
    last_used_at: Option<String>,
}

pub(super) fn run(command: UserCommand) -> Outcome {
    match command {
        UserCommand::List { server } => list(&server.client()?)?,
        UserCommand::Show { server, user, json } => show(&server.client()?, &user, json)?,
        UserCommand::Delete { server, user, yes: false } => {
            show(&server.client()?, &user, false)?;
            say("Nothing was removed: add `--yes` to remove all of it.");
            return Ok(ExitCode::FAILURE);
        }
        UserCommand::Delete { server, user, yes: true } => {
            let client = server.client()?;
            let answer = client.delete(&client.url(&["v1", "users", &user], &[]))?;
            say(&client.data::<String>(answer)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(client: &Client) -> Result<(), ClientError> {
    let mut after: Option<String> = None;
    loop {
        let mut query = vec![("limit", PAGE)];
        query.extend(after.as_deref().map(|after| ("cursor", after)));
        let users: Vec<Listed> = client.data(client.get(&client.url(&["v1", "users"], &query))?)?;
        // The cursor is the last user of the page before.
        let Some(last) = users.last().map(|listed| listed.user.clone()) else { return Ok(()) };
        users.iter().for_each(|listed| say(&listed.user));
        after = Some(last);
    }
}

fn show(client: &Client, user: &str, json: bool) -> Result<(), ClientError> {
    let response = client.get(&client.url(&["v1", "users", user], &[]))?;
    if json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(());
    }
    for OfAgent { agent, skills, workspace, snapshots, runs, last_used_at } in
        client.data::<Facts>(response)?.agents
    {
        let used = last_used_at.as_deref().unwrap_or("unknown");
        let workspace = if workspace { "yes" } else { "no" };
        say(&format!(
            "{used:<24} {agent}: skills {skills}, workspace {workspace}, snapshots {snapshots}, runs {runs}"
        ));
    }
    Ok(())
}

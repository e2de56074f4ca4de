//! `filesecbox runner list|choose|cut|revoke`, against a running service.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::Value;

use super::Outcome;
use super::client::{Client, ClientError};
use super::target::{Server, say};

#[derive(Subcommand)]
pub(super) enum RunnerCommand {
    /// List the machines that a user lends
    List {
        #[command(flatten)]
        server: Server,
        /// The user
        user: String,
        /// Print the answer of the service as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a machine answer for the user's workspaces
    Choose(OfUser),
    /// End the connection of a machine, which may come back
    Cut(OfUser),
    /// Forget a machine, end its connection, and refuse its token for runners of this user
    Revoke(OfUser),
}

#[derive(Args)]
pub(super) struct OfUser {
    #[command(flatten)]
    server: Server,
    /// The user
    user: String,
    /// The name of the machine
    runner: String,
}

#[derive(Deserialize)]
struct Machine {
    name: String,
    active: bool,
    since: Option<String>,
    workspace: Option<String>,
    isolation: Option<String>,
}

pub(super) fn run(command: RunnerCommand) -> Outcome {
    match command {
        RunnerCommand::List { server, user, json } => list(&server.client()?, &user, json)?,
        RunnerCommand::Choose(of) => of.post("choose")?,
        RunnerCommand::Cut(of) => of.post("cut")?,
        RunnerCommand::Revoke(of) => {
            let client = of.server.client()?;
            let answer = client.delete(&client.url(&["v1", "runners", &of.user, &of.runner], &[]))?;
            say(&client.data::<String>(answer)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl OfUser {
    fn post(&self, what: &str) -> Result<(), ClientError> {
        let client = self.server.client()?;
        let url = client.url(&["v1", "runners", &self.user, &self.runner, what], &[]);
        let answer = client.post(&url, "application/json", Some(0), std::io::empty())?;
        say(&client.data::<String>(answer)?);
        Ok(())
    }
}

fn list(client: &Client, user: &str, json: bool) -> Result<(), ClientError> {
    let response = client.get(&client.url(&["v1", "runners", user], &[]))?;
    if json {
        say(&format!("{:#}", client.data::<Value>(response)?));
        return Ok(());
    }
    for Machine { name, active, since, workspace, isolation } in client.data::<Vec<Machine>>(response)? {
        let mark = if active { "*" } else { " " };
        say(&match since {
            Some(since) => {
                let isolation = isolation.filter(|told| !told.is_empty());
                format!(
                    "{mark} {name}: connected since {since}, in {}, commands held by {}",
                    workspace.unwrap_or_default(),
                    isolation.as_deref().unwrap_or("what it does not say")
                )
            }
            None => format!("{mark} {name}: away"),
        });
    }
    Ok(())
}

//! Which service, user, agent and tree a command is about, and speaking to a person.

use std::path::PathBuf;

use clap::Args;

use super::client::{Client, ClientError};

/// Which service.
#[derive(Args)]
pub(super) struct Server {
    /// Address of the service
    #[arg(long, env = "FILESECBOX_SERVER", default_value = "http://127.0.0.1:8003", value_name = "URL")]
    pub(super) server: String,
    /// Token, when the service wants one
    #[arg(long, env = "FILESECBOX_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(super) token: Option<String>,
    /// A file of certificates (PEM) to trust for `https://`, instead of those that this host trusts
    #[arg(long, env = "FILESECBOX_CA_FILE", value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

/// Which service, user and agent.
#[derive(Args)]
pub(super) struct Owner {
    #[command(flatten)]
    pub(super) server: Server,
    /// The user
    #[arg(long, short, env = "FILESECBOX_USER")]
    pub(super) user: String,
    /// The agent
    #[arg(long, short, env = "FILESECBOX_AGENT")]
    pub(super) agent: String,
}

/// Which tree: the workspace, or a skill.
#[derive(Args)]
pub(super) struct Tree {
    #[command(flatten)]
    owner: Owner,
    /// In this skill, instead of the workspace
    #[arg(long, short)]
    skill: Option<String>,
}

impl Server {
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        Client::new(&self.server, self.token.clone(), self.ca_file.as_deref())
    }
}

impl Owner {
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        self.server.client()
    }

    /// The segments of a route of the user's skills.
    pub(super) fn skills<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["v1", "skills", self.user.as_str(), self.agent.as_str()], rest].concat()
    }

    /// The segments of a route of one skill.
    pub(super) fn skill<'a>(&'a self, skill: &'a str, route: &'a str) -> Vec<&'a str> {
        vec!["v1", "skills", &self.user, &self.agent, skill, route]
    }
}

impl Tree {
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        self.owner.client()
    }

    /// The segments of a route of the tree.
    pub(super) fn route<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let Owner { user, agent, .. } = &self.owner;
        let tree = match &self.skill {
            Some(skill) => vec!["v1", "skills", user, agent, skill],
            None => vec!["v1", "sandbox", user, agent],
        };
        [tree.as_slice(), rest].concat()
    }
}

#[expect(clippy::print_stdout, reason = "the command line speaks to a person")]
pub(super) fn say(line: &str) {
    println!("{line}");
}

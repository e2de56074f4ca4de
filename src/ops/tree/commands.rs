//! The conditions of commands, and preparing a workspace. Commands are run by `run`.

use policy::{DiskLimits, Profile, RelPath, RunLimits, SessionLimits, TreeId};
use storage::WorkspaceId;

use super::{Location, Tree};
use crate::ops::agents::{Effective, Source};
use crate::ops::error::Result;
use crate::ops::preparations::Wanted;
use crate::ops::prepare::Prepared;

/// The shell of this service's own trees.
const SHELL: &str = "bash";
/// The name of this service where others have that of a backend.
const LOCAL: &str = "local";

/// The conditions of a command.
#[derive(Debug)]
pub struct Conditions {
    /// The last part of the path of the shell that runs scripts.
    pub shell: String,
    /// The name of the backend that runs commands; of this service, `local`.
    pub backend: String,
    /// Bounds on runs.
    pub runs: RunLimits,
    /// Bounds on runs in the background and on terminals.
    pub sessions: SessionLimits,
    /// What the service knows of commands that it runs itself.
    pub own: Option<OwnConditions>,
}

/// The conditions of a command that this service runs.
#[derive(Debug)]
pub struct OwnConditions {
    /// The confinement.
    pub tier: exec::Tier,
    /// How far the whitelist reaches below the command itself.
    pub profile: Profile,
    /// The programs that a caller may start with the agent, as far as the host has them. None while the agent's policy cannot be
    /// read.
    pub commands: Vec<String>,
    /// The network that a command may reach at most.
    pub network: exec::Network,
    /// What the tree may take on the disk.
    pub disk: DiskLimits,
}

impl Tree {
    /// The conditions of a command in the tree.
    ///
    /// # Errors
    /// As [`Service::agent_policy`](crate::ops::Service::agent_policy); [`Error::Remote`](crate::ops::Error::Remote);
    /// `not_found` for a skill that the user does not have.
    pub async fn conditions(&self) -> Result<Conditions> {
        let (user, agent) = (self.id.user(), self.id.agent());
        let shell = self.shell().await?;
        if let Location::Remote(backend) = &self.location {
            return Ok(Conditions {
                shell,
                backend: backend.name().to_owned(),
                runs: self.service.run_limits_of(agent),
                sessions: self.service.session_limits_of(agent),
                own: None,
            });
        }
        if let TreeId::Skill(..) = self.id {
            self.stat(&RelPath::root()).await?;
        }
        let in_force = self.service.agent_policy(agent.clone(), Some(user)).await?;
        let Effective { source, profile, mut commands, missing, network, runs, sessions, disk, .. } =
            in_force;
        commands.retain(|name| source != Source::Unreadable && !missing.contains(name));
        let tier = self.service.host().enforcement.tier;
        let own = OwnConditions { tier, profile, commands, network, disk };
        Ok(Conditions { shell, backend: LOCAL.to_owned(), runs, sessions, own: Some(own) })
    }

    /// The last part of the path of the shell that runs scripts.
    ///
    /// # Errors
    /// [`Error::Remote`](crate::ops::Error::Remote).
    pub async fn shell(&self) -> Result<String> {
        match &self.location {
            Location::Local { .. } => Ok(SHELL.to_owned()),
            Location::Remote(backend) => backend.shell().await,
        }
    }

    /// Brings the workspace to the state that is wanted. It goes on when the future is dropped.
    ///
    /// # Errors
    /// As [`Service::prepare`](crate::ops::Service::prepare).
    pub async fn prepare(&self, wanted: Wanted) -> Result<Prepared> {
        self.service.prepare(WorkspaceId::of(&self.id), self.remote().cloned(), wanted).await
    }
}

//! The service in this process, and links planted beside it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use filesecbox::local::LocalSandbox;
use filesecbox::ops::Service;
use sandbox::conformance::{Ability, Subject};
use sandbox::{AgentId, Result, Sandbox, SandboxPath, UserId};

const AGENT: &str = "demo";

pub(crate) struct Host {
    pub(crate) service: Arc<Service>,
    pub(crate) root: PathBuf,
    sandbox: Arc<LocalSandbox>,
}

impl Host {
    pub(crate) fn new(service: Arc<Service>, root: PathBuf) -> Self {
        let sandbox = Arc::new(of_agent(&service, AGENT, false));
        Self { service, root, sandbox }
    }

    /// A directory of a workspace as the host has it.
    pub(crate) fn path(&self, user: &UserId, path: &SandboxPath) -> PathBuf {
        let workspace = self.root.join("sandbox").join(user.as_str()).join(AGENT);
        workspace.join(path.below(&SandboxPath::workspace()).unwrap())
    }
}

pub(crate) fn of_agent(service: &Arc<Service>, agent: &str, skills: bool) -> LocalSandbox {
    LocalSandbox::new(Arc::clone(service), AgentId::parse(agent).unwrap(), skills)
}

#[async_trait]
impl Subject for Host {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Commands, Huge, Links, Pipes, Versions, Walls};
        &[Changes, Closing, Commands, Huge, Links, Pipes, Versions, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.sandbox.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(of_agent(&self.service, "another", false))
    }

    // From the host: the service's own list of commands and its look at their arguments are not what is tried here.
    async fn symlink(&self, user: &UserId, target: &str, path: &SandboxPath) -> Result<()> {
        std::os::unix::fs::symlink(target, self.path(user, path)).unwrap();
        Ok(())
    }

    async fn pipe(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let place = self.path(user, path);
        rustix::fs::mknodat(rustix::fs::CWD, place, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
        Ok(())
    }
}

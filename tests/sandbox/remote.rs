//! A service of the strongest tier that this host grants, and links planted beside it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject};
use sandbox::{AgentId, Result, Sandbox, SandboxPath, ServiceOptions, ServiceSandbox, UserId};

use crate::service::Service;

const AGENT: &str = "demo";

pub(crate) struct Remote {
    service: Mutex<Option<Service>>,
    address: String,
    root: PathBuf,
    sandbox: Arc<ServiceSandbox>,
}

impl Remote {
    pub(crate) fn new() -> Self {
        let service = Service::start();
        let address = format!("http://{}", service.client.address);
        let root = service.root.join("sandbox");
        let sandbox = Arc::new(connected(&address, AGENT));
        Self { service: Mutex::new(Some(service)), address, root, sandbox }
    }

    /// Stops the service: the end of the process would not.
    pub(crate) fn stop(&self) {
        self.service.lock().unwrap().take();
    }

    fn host(&self, user: &UserId, path: &SandboxPath) -> PathBuf {
        self.root.join(user.as_str()).join(AGENT).join(path.below(&SandboxPath::workspace()).unwrap())
    }
}

pub(crate) fn connected(address: &str, agent: &str) -> ServiceSandbox {
    let agent = AgentId::parse(agent).unwrap();
    ServiceSandbox::new(ServiceOptions {
        address: address.to_owned(),
        authorities: None,
        token: None,
        agent,
        skills: false,
    })
    .unwrap()
}

#[async_trait]
impl Subject for Remote {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Commands, Huge, Links, Pipes, Versions, Walls};
        &[Changes, Closing, Commands, Huge, Links, Pipes, Versions, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.sandbox.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(connected(&self.address, "another"))
    }

    // From the host: the service's own list of commands and its look at their arguments are not what is tried here.
    async fn symlink(&self, user: &UserId, target: &str, path: &SandboxPath) -> Result<()> {
        std::os::unix::fs::symlink(target, self.host(user, path)).unwrap();
        Ok(())
    }

    async fn pipe(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        let place = self.host(user, path);
        rustix::fs::mknodat(rustix::fs::CWD, place, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
        Ok(())
    }
}

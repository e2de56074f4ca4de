//! Backends behind the service, and links planted in them from behind.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject};
use sandbox::{
    MemSandbox, NoneOptions, NoneSandbox, Result, Root, Sandbox, SandboxPath, ServiceSandbox, UserId,
};

use crate::server::{Server, connected};

/// Users of the contract.
pub(crate) const USERS: [&str; 2] = ["alice", "bob"];

/// The service as the contract sees it: with agent `NAME`, and with `NAME-2` for the laws that close a client.
struct Clients {
    one: Arc<ServiceSandbox>,
    address: String,
    another: String,
}

/// Files in memory.
pub(crate) struct Memory {
    clients: Clients,
    behind: MemSandbox,
}

/// Directories of the host.
pub(crate) struct Host {
    clients: Clients,
    users: PathBuf,
}

impl Clients {
    fn new(server: &Server, name: &str, backends: [Arc<dyn Sandbox>; 2]) -> Self {
        let another = format!("{name}-2");
        for (agent, backend) in [name, &another].into_iter().zip(&backends) {
            server.lend(&USERS, agent, backend);
        }
        let address = server.client.address.to_string();
        Self { one: Arc::new(server.connected(name)), address, another }
    }

    fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(connected(&self.address, &self.another))
    }
}

impl Memory {
    pub(crate) fn new(server: &Server) -> Self {
        let behind = MemSandbox::new();
        let backends: [Arc<dyn Sandbox>; 2] = [Arc::new(behind.clone()), Arc::new(MemSandbox::new())];
        Self { clients: Clients::new(server, "memory", backends), behind }
    }
}

impl Host {
    pub(crate) fn new(server: &Server) -> Self {
        let users = server.place("users");
        let open = |root: PathBuf| NoneSandbox::open(NoneOptions::new(Root::PerUser(root))).unwrap();
        let backends: [Arc<dyn Sandbox>; 2] =
            [Arc::new(open(users.clone())), Arc::new(open(server.place("others")))];
        Self { clients: Clients::new(server, "none", backends), users }
    }

    /// A path of a workspace as the host has it.
    fn path(&self, user: &UserId, path: &SandboxPath) -> PathBuf {
        self.users.join(user.as_str()).join(path.below(&SandboxPath::workspace()).unwrap())
    }
}

#[async_trait]
impl Subject for Memory {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Huge, Links, Modes, Pipes, Versions, Walls};
        &[Changes, Closing, Huge, Links, Modes, Pipes, Versions, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.clients.one.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        self.clients.another()
    }

    async fn symlink(&self, user: &UserId, target: &str, path: &SandboxPath) -> Result<()> {
        self.behind.with_tree(user, "symlink", |tree| tree.symlink(target, path))
    }

    async fn pipe(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.behind.with_tree(user, "mkfifo", |tree| tree.pipe(path))
    }
}

#[async_trait]
impl Subject for Host {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Commands, Huge, Links, Pipes, Versions, Walls};
        &[Changes, Closing, Commands, Huge, Links, Pipes, Versions, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.clients.one.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        self.clients.another()
    }

    // From the host: arguments that name the workspace become another path on their way to the backend.
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

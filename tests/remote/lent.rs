//! Machines that users lend: our own runner, a process of its own, connected to the service over a WebSocket.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject};
use sandbox::{Result, Sandbox, SandboxPath, ServiceSandbox, UserId};
use serde_json::Value;

use crate::server::{Server, connected};
use crate::subjects::USERS;

/// How long a runner may take to register.
const PATIENCE: Duration = Duration::from_secs(30);

/// The machines of both users of the contract.
pub(crate) struct Lent {
    one: Arc<ServiceSandbox>,
    address: String,
    machines: PathBuf,
    runners: Vec<Runner>,
}

/// A runner that is killed with the test.
pub(crate) struct Runner(pub(crate) Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The program, which lies beside the service's.
fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_filesecbox")).with_file_name("filesecbox-runner");
    assert!(program.exists(), "build the runner first: cargo build --package runner");
    program
}

/// Lends `workspace` to the service at `address`, as `user`'s.
pub(crate) fn lend(address: &str, user: &str, workspace: &Path) -> Runner {
    let server = format!("ws://{address}/ws/{user}");
    let child = Command::new(program())
        .args(["--server", &server, "--isolation", "none", "--workspace"])
        .arg(workspace)
        .env("FILESECBOX_RUNNER_TOKEN", "engine")
        .env("FILESECBOX_LOG", "warn")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Runner(child)
}

impl Lent {
    pub(crate) fn new(server: &Server) -> Self {
        let machines = server.place("machines");
        let address = server.client.address.to_string();
        let runners = USERS.map(|user| lend(&address, user, &machines.join(user))).into();
        for user in USERS {
            let begun = Instant::now();
            let is_connected = || {
                let listed: Value = server.client.get(format!("/v1/runners/{user}")).ok();
                listed["data"][0]["connected"] == true
            };
            while !is_connected() {
                assert!(begun.elapsed() < PATIENCE, "the runner of {user} does not connect");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Self { one: Arc::new(server.connected("lent")), address, machines, runners }
    }

    /// A path of a workspace as the machine has it.
    fn path(&self, user: &UserId, path: &SandboxPath) -> PathBuf {
        self.machines.join(user.as_str()).join(path.below(&SandboxPath::workspace()).unwrap())
    }
}

#[async_trait]
impl Subject for Lent {
    fn abilities(&self) -> &[Ability] {
        use Ability::{Changes, Closing, Commands, Links, Pipes, Walls};
        &[Changes, Closing, Commands, Links, Pipes, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.one.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(connected(&self.address, "lent-2"))
    }

    // From the machine: arguments that name the workspace become another path on their way to the backend.
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

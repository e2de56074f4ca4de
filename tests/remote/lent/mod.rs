//! Machines that users lend: our own runner, a process of its own, connected to the service over a WebSocket.

mod cuts;
mod large;
mod live;
mod proxy;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::tools::Search;
use async_trait::async_trait;
use libtest_mimic::Trial;
use sandbox::conformance::{Ability, Subject};
use sandbox::{Result, Sandbox, SandboxPath, ServiceSandbox, UserId};

use crate::client::Client;
use crate::own::Law;
use crate::play::play;
use crate::server::{Server, connected};
use crate::subjects::USERS;

/// How long a runner may take to register.
const PATIENCE: Duration = Duration::from_secs(90);

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
    lend_with(address, user, workspace, std::env::var_os("HOME").unwrap_or_default().as_ref())
}

/// The same, with another home directory of commands.
pub(crate) fn lend_with(address: &str, user: &str, workspace: &Path, home: &Path) -> Runner {
    let server = format!("ws://{address}/ws/{user}");
    let child = Command::new(program())
        .args(["--server", &server, "--isolation", "none", "--reconnect-seconds", "1", "--workspace"])
        .arg(workspace)
        .env("FILESECBOX_RUNNER_TOKEN", "engine")
        .env("FILESECBOX_LOG", "error")
        .env("HOME", home)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Runner(child)
}

/// Waits until the machine of `user` is connected.
pub(crate) fn await_connected(client: &Client, user: &str) {
    let begun = Instant::now();
    let is_connected = || client.get(format!("/v1/runners/{user}")).ok()["data"][0]["connected"] == true;
    while !is_connected() {
        assert!(begun.elapsed() < PATIENCE, "the runner of {user} does not connect");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Laws of machines that are lent alone.
pub(crate) fn trials(server: &Arc<Server>) -> Vec<Trial> {
    let laws: [(&str, Law); 13] = [
        (
            "nothing_acknowledged_is_lost_and_nothing_is_done_twice",
            cuts::nothing_acknowledged_is_lost_and_nothing_is_done_twice,
        ),
        ("a_large_file_goes_over_http_both_ways", large::a_large_file_goes_over_http_both_ways),
        (
            "a_transfer_that_is_cut_goes_on_where_it_stopped",
            large::a_transfer_that_is_cut_goes_on_where_it_stopped,
        ),
        ("a_caller_who_leaves_ends_the_transfer", large::a_caller_who_leaves_ends_the_transfer),
        ("slow_and_split_frames_carry_the_same", cuts::slow_and_split_frames_carry_the_same),
        ("the_tools_answer_as_on_every_backend", the_tools_answer_as_on_every_backend),
        (
            "output_comes_as_it_is_written_and_input_goes_there",
            live::output_comes_as_it_is_written_and_input_goes_there,
        ),
        ("signals_and_killing_reach_the_command", live::signals_and_killing_reach_the_command),
        ("a_terminal_is_there_and_outlives_a_cut", live::a_terminal_is_there_and_outlives_a_cut),
        (
            "a_background_run_survives_cuts_and_tells_all_in_order",
            live::a_background_run_survives_cuts_and_tells_all_in_order,
        ),
        ("input_across_a_cut_comes_once_and_whole", live::input_across_a_cut_comes_once_and_whole),
        ("a_runner_that_dies_ends_its_runs", live::a_runner_that_dies_ends_its_runs),
        ("a_command_that_cannot_begin_is_refused", live::a_command_that_cannot_begin_is_refused),
    ];
    let trial = |(name, law): (&str, Law)| {
        let server = Arc::clone(server);
        Trial::test(format!("lent::{name}"), move || {
            law(&server);
            Ok(())
        })
    };
    laws.into_iter().map(trial).collect()
}

fn the_tools_answer_as_on_every_backend(server: &Server) {
    for (name, search) in [("lent-by-files", Search::Files), ("lent-by-programs", Search::Programs)] {
        let _runner = lend(&server.client.address.to_string(), name, &server.place(name));
        await_connected(&server.client, name);
        let (sandbox, user) = (server.connected("tools"), UserId::parse(name).unwrap());
        println!("{:?}", server.runtime.block_on(play(&sandbox, &user, search, true)));
    }
}

impl Lent {
    pub(crate) fn new(server: &Server) -> Self {
        let machines = server.place("machines");
        let address = server.client.address.to_string();
        let runners = USERS.map(|user| lend(&address, user, &machines.join(user))).into();
        for user in USERS {
            await_connected(&server.client, user);
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
        use Ability::{Changes, Closing, Commands, Links, Pipes, Versions, Walls};
        &[Changes, Closing, Commands, Links, Pipes, Versions, Walls]
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

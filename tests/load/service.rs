//! [`Service`]: the real program on a directory, started, killed and started again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::host;

/// How many records the audit log of a data directory has, which must be whole.
pub(crate) fn audited(root: &Path) -> usize {
    let mut command = Command::new(env!("CARGO_BIN_EXE_filesecbox"));
    let output = command.args(["audit", "verify", "--root"]).arg(root).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let line = told.lines().find_map(|line| line.strip_prefix("records")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A running service. Dropping it kills it.
pub(crate) struct Service {
    child: Child,
    pub(crate) url: String,
}

impl Service {
    /// Starts the service on `root`, with strict durability, and waits until it is ready. What it logs goes to `log`.
    pub(crate) fn start(root: &Path, log: &Path) -> Self {
        Self::start_with("strict", root, log)
    }

    /// As [`Service::start`], with the durability given.
    pub(crate) fn start_with(durability: &str, root: &Path, log: &Path) -> Self {
        Self::await_ready(spawn(durability, root, log), log)
    }

    /// As [`Service::start_with`], removing workspaces that were not used for as long as given, in milliseconds.
    pub(crate) fn start_sweeping(durability: &str, idle_ms: u64, root: &Path, log: &Path) -> Self {
        Self::await_ready(spawn_sweeping(durability, idle_ms, root, log), log)
    }

    /// As [`Service::start`], with relaxed durability and further settings, in TOML.
    pub(crate) fn start_configured(settings: &str, root: &Path, log: &Path) -> Self {
        let config = log.with_extension("toml");
        std::fs::write(&config, settings).unwrap();
        let mut command = command("relaxed", root, log);
        Self::await_ready(command.arg("--config").arg(config).spawn().unwrap(), log)
    }

    fn await_ready(mut child: Child, log: &Path) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((_, url)) = line.trim().split_once("listening on ") else {
            let _ = child.wait();
            panic!("the service does not start: {}", tail(log));
        };
        Self { child, url: url.to_owned() }
    }

    /// Sends a signal to the service's own process.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that starts its commands, its only child.
    pub(crate) fn launcher(&self) -> u32 {
        let [launcher] = host::children(self.pid())[..] else { panic!("not one launcher") };
        launcher
    }

    /// Stops the service in order, and waits for its end.
    pub(crate) fn stop(mut self) {
        self.stop_now();
    }

    /// Stops the service in order, so that another can take its place.
    pub(crate) fn stop_now(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the service stops with {status}");
    }

    /// Kills the service, so that another can take its place.
    pub(crate) fn kill_now(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the service as a crash would: without a word, in the midst of its work.
    pub(crate) fn kill(mut self) {
        self.kill_now();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program without waiting: to kill it while it starts.
pub(crate) fn spawn(durability: &str, root: &Path, log: &Path) -> Child {
    command(durability, root, log).spawn().unwrap()
}

/// As [`spawn`], removing workspaces that were not used for as long as given, in milliseconds.
pub(crate) fn spawn_sweeping(durability: &str, idle_ms: u64, root: &Path, log: &Path) -> Child {
    let mut command = command(durability, root, log);
    command.env("FILESECBOX_WORKSPACES__IDLE_MS", idle_ms.to_string());
    // They go at once, and are not set aside first.
    command.env("FILESECBOX_WORKSPACES__KEEP_MS", "0");
    command.spawn().unwrap()
}

fn command(durability: &str, root: &Path, log: &Path) -> Command {
    let log = File::options().append(true).create(true).open(log).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_filesecbox"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--durability", durability, "--root"])
        .arg(root)
        .env("FILESECBOX_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    command
}

/// The end of a log, for a message.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

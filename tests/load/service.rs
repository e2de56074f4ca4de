//! [`Service`]: the real program on a directory, started, killed and started again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
        let mut child = spawn(durability, root, log);
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

    /// Kills the service as a crash would: without a word, whatever it is doing.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
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
    let log = File::options().append(true).create(true).open(log).unwrap();
    Command::new(env!("CARGO_BIN_EXE_filesecbox"))
        .args(["serve", "--listen", "127.0.0.1:0", "--durability", durability, "--root"])
        .arg(root)
        .env("FILESECBOX_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// The end of a log, for a message.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

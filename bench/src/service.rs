//! [`Service`]: one of the services under test, started on a fresh directory and killed in the end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{self, Connection};
use crate::error::{Failure, Result};

/// Which service, and how it is to treat writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// The service under test.
    Filesecbox {
        /// Its configuration; the defaults without one.
        config: Option<&'a Path>,
    },
    /// The fixture to compare with.
    Bare,
}

/// A running service.
pub(crate) struct Service {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// From the start of the process to its first answer.
    pub first_answer: Duration,
    /// A directory that goes when the service does.
    root: Option<TempDir>,
}

impl Service {
    /// Starts `program` on `root` and waits for its first answer.
    ///
    /// # Errors
    /// [`Failure::Io`], [`Failure::NotReady`].
    pub(crate) fn start(kind: Kind<'_>, program: &Path, root: &Path, strict: bool) -> Result<Self> {
        let mut command = Command::new(program);
        match kind {
            Kind::Filesecbox { config } => {
                command.args(["serve", "--listen", "127.0.0.1:0", "--durability"]);
                command.arg(if strict { "strict" } else { "relaxed" });
                // Its log is as it is shipped; a file takes it, as a journal would.
                let place = root.parent().unwrap_or(root);
                command.stderr(tempfile::tempfile_in(place).map_err(Failure::io("make a log"))?);
                // Its only caller makes more changes in minutes than one may in a day.
                command.env("FILESECBOX_AUDIT__ACCOUNT_BYTES", "0");
                if let Some(config) = config {
                    command.arg("--config").arg(config);
                }
            }
            Kind::Bare => {
                command.arg("bare");
                if strict {
                    command.arg("--strict");
                }
            }
        }
        command.arg("--root").arg(root).stdout(Stdio::piped()).stdin(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn().map_err(Failure::io(format!("start `{}`", program.display())))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(Failure::io("read the ready line"))?;
        }
        let address = line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::NotReady(program.display().to_string()));
        };
        let mut service = Self { child, address, first_answer: Duration::ZERO, root: None };
        service.connect()?.call(&client::get("/healthz"))?;
        service.first_answer = began.elapsed();
        Ok(service)
    }

    /// A new connection.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub(crate) fn connect(&self) -> Result<Connection> {
        Connection::open(self.address)
    }

    /// Keeps `root` for as long as the service lives.
    pub(crate) fn keep(&mut self, root: TempDir) {
        self.root = Some(root);
    }

    /// The tier in which the service runs commands, as it says itself; `None` for the fixture.
    ///
    /// # Errors
    /// [`Failure::Io`], [`Failure::Protocol`].
    pub(crate) fn tier(&self) -> Result<Option<String>> {
        let mut connection = self.connect()?;
        let answer = connection.exchange(&client::get("/v1/info"))?;
        let info: serde_json::Value = serde_json::from_slice(answer.body).unwrap_or_default();
        Ok(info.pointer("/data/host/enforcement/tier").and_then(|tier| tier.as_str()).map(str::to_owned))
    }

    /// The process of the service.
    #[must_use]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the service, and what every process below it has to itself, in bytes: they are forks of one
    /// program, and share its text with it.
    #[must_use]
    pub(crate) fn resident_bytes(&self) -> u64 {
        resident_below(self.child.id())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of a process, and what every process below it has to itself, in bytes.
#[must_use]
pub(crate) fn resident_below(pid: u32) -> u64 {
    kibibytes(pid, &["Rss:"]) * 1024 + children(pid).into_iter().map(private_below).sum::<u64>()
}

/// Adds up what a process and its descendants do not share with other processes.
fn private_below(pid: u32) -> u64 {
    let own = kibibytes(pid, &["Private_Clean:", "Private_Dirty:"]) * 1024;
    own + children(pid).into_iter().map(private_below).sum::<u64>()
}

/// Adds up some rows of `/proc/PID/smaps_rollup` (proc_pid_smaps(5)).
fn kibibytes(pid: u32, rows: &[&str]) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let row = |line: &str| {
        let value = rows.iter().find_map(|row| line.strip_prefix(row))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    rollup.lines().filter_map(row).sum()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    texts
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Bytes that a directory takes on disk, with everything below it.
#[must_use]
pub(crate) fn disk_bytes(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = walkdir::WalkDir::new(root).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}

/// The program `name` beside this one: both are built into one directory.
#[must_use]
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join(name);
    path.is_file().then_some(path)
}

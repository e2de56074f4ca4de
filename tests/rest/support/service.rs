//! [`Service`]: the real binary on a free port, with a data directory that goes with it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Client;

/// How long a stopping service is waited for before it is killed. Only one that hangs ever reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a service is started.
#[derive(Default)]
pub(crate) struct Settings {
    /// The text of its configuration file, if it has one.
    pub(crate) config: Option<String>,
    /// Where it listens, when not on a free port of 127.0.0.1.
    pub(crate) listen: Option<String>,
    /// Further arguments.
    pub(crate) args: Vec<String>,
    /// Further variables.
    pub(crate) env: Vec<(String, String)>,
    /// The data directory, when it is not one of its own.
    pub(crate) root: Option<PathBuf>,
    /// A program that becomes the service, with its arguments before the service's.
    pub(crate) through: Vec<String>,
}

/// A running service; dropping it stops it by SIGTERM.
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) root: PathBuf,
    child: Option<Child>,
    _stdout: BufReader<ChildStdout>,
    dir: TempDir,
    /// Whether each request has a line in its log.
    logs_requests: bool,
}

/// The program with a clean environment.
pub(crate) fn program() -> Command {
    program_through(&[])
}

/// The program, started by another one that becomes it.
fn program_through(through: &[String]) -> Command {
    let program = env!("CARGO_BIN_EXE_filesecbox");
    let mut command = match through {
        [] => Command::new(program),
        [first, more @ ..] => {
            let mut command = Command::new(first);
            command.args(more).arg(program);
            command
        }
    };
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FILESECBOX_") {
            command.env_remove(name);
        }
    }
    command
}

impl Service {
    /// Starts a service that every caller may use.
    pub(crate) fn start() -> Self {
        Self::with(Settings::default())
    }

    /// Starts a service with a configuration file.
    pub(crate) fn configured(config: &str) -> Self {
        Self::with(Settings { config: Some(config.to_owned()), ..Settings::default() })
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = settings.root.unwrap_or_else(|| dir.path().join("data"));
        let says = |name: &str, words: &[&str]| {
            settings.env.iter().any(|(given, value)| given == name && words.contains(&value.as_str()))
        };
        let logs_requests = says("FILESECBOX_LOG", &["info", "debug", "trace"])
            && !says("FILESECBOX_LOG__REQUESTS", &["false"]);
        let log = dir.path().join("log");
        let listen = settings.listen.as_deref().unwrap_or("127.0.0.1:0");
        let mut command = program_through(&settings.through);
        command.arg("serve").args(["--listen", listen, "--durability", "relaxed", "--root"]).arg(&root);
        if let Some(config) = &settings.config {
            let path = dir.path().join("filesecbox.toml");
            fs::write(&path, config).unwrap();
            command.arg("--config").arg(path);
        }
        command.env("FILESECBOX_LOG", "warn").args(&settings.args).envs(settings.env);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.trim_end().strip_prefix("filesecbox listening on http://") else {
            let status = child.wait().unwrap();
            panic!("no ready line but {line:?}; {status}; {}", fs::read_to_string(&log).unwrap());
        };
        let mut address: SocketAddr = address.parse().unwrap();
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let client = Client { address, root: root.to_str().unwrap().to_owned(), token: None };
        Self { client, root, child: Some(child), _stdout: stdout, dir, logs_requests }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The log of the service, with all that it says of requests which were answered before.
    pub(crate) fn log(&self) -> String {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        if self.child.is_none() || !self.logs_requests {
            return self.log_by_now();
        }
        // Lines come in their order, but a moment late.
        let mark = format!("mark-{}", LAST.fetch_add(1, Ordering::Relaxed));
        self.client.request("GET", "/healthz").header("x-request-id", &mark).send();
        let begun = Instant::now();
        loop {
            let log = self.log_by_now();
            if log.contains(&mark) {
                return log;
            }
            assert!(begun.elapsed() < PATIENCE, "a request has no line: {log}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn log_by_now(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// A directory outside the data directory.
    pub(crate) fn outside(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), Signal::TERM).unwrap();
    }

    /// Waits for the end of a service that was told to stop.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if begin.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("the service did not stop: {}", self.log_by_now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        if std::thread::panicking() {
            let log = self.log_by_now();
            if !log.is_empty() {
                eprintln!("--- log of the service ---\n{log}");
            }
        }
        self.terminate();
        self.wait();
    }
}

/// Processes that descend from `pid`, as `/proc` has them now.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let Some(process) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        // The name is in parentheses and may hold anything (proc_pid_stat(5)).
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let Some(parent) = fields.split_whitespace().nth(1).and_then(|field| field.parse::<u32>().ok())
        else {
            continue;
        };
        parents.push((process, parent));
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

/// Waits until none of these processes runs any more; a zombie of another init process does not count.
pub(crate) fn assert_gone(processes: &[u32]) {
    let runs = |process: &&u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with('Z'))
    };
    let begin = Instant::now();
    while processes.iter().any(|process| runs(&process)) && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left: Vec<&u32> = processes.iter().filter(runs).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Most memory that a process has had resident, in bytes (`VmHWM`, proc_pid_status(5)).
pub(crate) fn memory_peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Lets [`memory_peak_bytes`] count from now on (`clear_refs`, proc_pid_clear_refs(5)).
pub(crate) fn reset_memory_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Runs the program to its end.
pub(crate) fn run_program<S: AsRef<OsStr>>(args: &[S], env: &[(&str, &str)]) -> std::process::Output {
    program().args(args).envs(env.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

//! [`Spawn`]: starting a command without any service, plainly or by the `bwrap` program.
//!
//! `bwrap` gets the walls that the service's runs in namespaces have: every namespace, a root in memory with the system
//! read-only, `/proc`, `/dev` and `/tmp` of its own, the tree at `/workspace`, another uid, no capabilities. It gets no
//! system call filter, which favours it, and neither Landlock nor limits, which it does not offer.
//!
//! # References
//! `bwrap(1)`; `posix_spawn(3)`, which the standard library uses for a child without an identity of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Failure, Result};
use crate::load::{self, Sample, Slice};
use crate::native;

/// Where commands are looked for, in every side.
pub(crate) const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The locale of commands, in every side: a whole one takes a tenth of a millisecond of most programs.
pub(crate) const LOCALE: [(&str, &str); 1] = [("LC_CTYPE", "C.UTF-8")];
/// The uid and gid of commands under `bwrap`.
const SANDBOX: &str = "64001";
/// The host's paths in the root of commands under `bwrap`, where they exist.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// The file of the program `name`; the name where there is none.
///
/// With another search path than its own, the standard library looks for a bare name after `fork`, which copies the
/// whole process; a path it hands to `posix_spawn`, which does not.
#[must_use]
pub(crate) fn find(name: &str) -> PathBuf {
    let mut files = SEARCH_PATH.split(':').map(|directory| Path::new(directory).join(name));
    files.find(|file| file.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

/// How long all sides rest after commands under `bwrap`. The kernel takes their network namespaces down long after they
/// have ended, and holds up processes that make or take down other namespaces meanwhile.
const REST: Duration = Duration::from_millis(500);

/// A way to start a command.
pub(crate) struct Spawn {
    prefix: Vec<String>,
    dir: PathBuf,
}

impl Spawn {
    /// As a plain child in `dir`.
    #[must_use]
    pub(crate) fn plain(dir: &Path) -> Self {
        Self { prefix: Vec::new(), dir: dir.to_owned() }
    }

    /// By `bwrap` with `dir` as its tree; `None` where it is not installed.
    #[must_use]
    pub(crate) fn bwrap(dir: &Path) -> Option<Self> {
        if !native::has("bwrap") {
            return None;
        }
        let mut prefix =
            ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"].map(str::to_owned).to_vec();
        let mut add = |words: &[&str]| prefix.extend(words.iter().map(|word| (*word).to_owned()));
        add(&["--cap-drop", "ALL", "--uid", SANDBOX, "--gid", SANDBOX, "--hostname", "sandbox"]);
        for path in SYSTEM {
            match std::fs::read_link(path) {
                // A link is a file of the root, and a mount less to copy.
                Ok(target) => add(&["--symlink", &target.to_string_lossy(), path]),
                Err(_) if Path::new(path).is_dir() => add(&["--ro-bind", path, path]),
                Err(_) => {}
            }
        }
        add(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        add(&["--bind", &dir.to_string_lossy(), "/workspace", "--chdir", "/workspace"]);
        add(&["--clearenv", "--setenv", "PATH", SEARCH_PATH]);
        for (name, value) in LOCALE {
            add(&["--setenv", name, value]);
        }
        add(&["--"]);
        Some(Self { prefix, dir: dir.to_owned() })
    }

    /// Starts a command, reads its output and waits for its end.
    ///
    /// # Errors
    /// [`Failure::Io`], also when the command fails.
    pub(crate) fn run(&self, words: &[&str]) -> Result<()> {
        let mut all = self.prefix.iter().map(String::as_str).chain(words.iter().copied());
        let file = find(all.next().unwrap_or_default());
        let program = file.display();
        let mut command = Command::new(&file);
        command.args(all).current_dir(&self.dir).env_clear().stdin(Stdio::null());
        command.env("PATH", SEARCH_PATH).envs(LOCALE);
        let output = command.output().map_err(Failure::io(format!("run `{program}`")))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Failure::io(format!("run `{program}`"))(std::io::Error::other(text)))
    }

    /// One command after the other.
    ///
    /// # Errors
    /// As [`Spawn::run`].
    pub(crate) fn serial(&self, slice: Slice, words: &[&str]) -> Result<Sample> {
        let start = Instant::now();
        let times = self.repeat(slice, start, words)?;
        let sample = load::sample(times, start.elapsed());
        self.rest();
        Ok(sample)
    }

    /// As many commands at once as there are `threads`.
    ///
    /// # Errors
    /// As [`Spawn::run`].
    pub(crate) fn parallel(&self, slice: Slice, threads: usize, words: &[&str]) -> Result<Sample> {
        let start = Instant::now();
        let times = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| self.repeat(slice, start, words))).collect();
            let mut times = Vec::new();
            for worker in workers {
                let panicked = |_| Failure::io("measure")(std::io::Error::other("a thread panicked"));
                times.extend(worker.join().map_err(panicked)??);
            }
            Ok::<_, Failure>(times)
        })?;
        let sample = load::sample(times, start.elapsed());
        self.rest();
        Ok(sample)
    }

    fn rest(&self) {
        if !self.prefix.is_empty() {
            thread::sleep(REST);
        }
    }

    fn repeat(&self, slice: Slice, start: Instant, words: &[&str]) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        while times.len() < slice.calls && (start.elapsed() < slice.time || times.len() < slice.calls_min) {
            let began = Instant::now();
            self.run(words)?;
            times.push(began.elapsed());
        }
        Ok(times)
    }
}

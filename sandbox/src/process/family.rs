//! [`Family`]: a process and all that descend from it, to be killed together.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable by which descendants are found that left the group: they inherit it, unless they clean themselves.
pub(crate) const MARK: &str = "FILESECBOX_RUN";

/// How often new processes are looked for: one that forks faster than it can be found is left after that.
const ROUNDS_MAX: usize = 50;
/// How long a process may take to become another program, until it is looked at again.
const BECOMING: Duration = Duration::from_millis(1);
/// The flag of a thread of the kernel (`PF_KTHREAD`, linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The processes of one command, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Family {
    leader: Pid,
    mark: String,
    /// When the leader was started, as the kernel counts; no descendant is older.
    since: u64,
    armed: bool,
}

impl Family {
    /// The family of a leader of its own group that was started with `mark` in [`MARK`].
    pub(crate) fn new(leader: Pid, mark: &str) -> Self {
        let since = Facts::of(leader).map_or(u64::MAX, |facts| facts.started);
        Self { leader, mark: format!("{MARK}={mark}"), since, armed: true }
    }

    /// Kills the group, and the processes that left it, as far as `/proc` shows them to this user.
    pub(crate) fn kill_all(&self) {
        self.kill_group();
        // The next round finds a process that was forked during this one; the last round finds none.
        for _ in 0..ROUNDS_MAX {
            let Marked { found, is_unsure } = marked(&self.mark, self.since);
            if found.is_empty() {
                if !is_unsure {
                    return;
                }
                std::thread::sleep(BECOMING);
            }
            for process in found {
                let _gone = kill_process(process, Signal::KILL);
            }
        }
    }

    /// Kills those that stayed in the group: one system call.
    pub(crate) fn kill_group(&self) {
        let _gone = kill_process_group(self.leader, Signal::KILL);
    }

    /// Lets them live: the command is over.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }

    /// The same family for a thread that does nothing else.
    pub(crate) fn shared(&self) -> Self {
        Self { leader: self.leader, mark: self.mark.clone(), since: self.since, armed: false }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.armed {
            self.kill_group();
            let hunt = Hunt(self.shared());
            // Looking through `/proc` takes milliseconds, and a caller who drops a call does not wait.
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || drop(hunt))),
                Err(_) => drop(hunt),
            }
        }
    }
}

/// Kills a family when it is dropped: also when a runtime that ends drops what it has not begun.
struct Hunt(Family);

impl Drop for Hunt {
    fn drop(&mut self) {
        self.0.kill_all();
    }
}

/// The processes that were found in one look.
struct Marked {
    found: Vec<Pid>,
    /// Whether there is a process without any environment that may be a descendant: while it becomes another program it has none.
    is_unsure: bool,
}

/// Living processes with `mark` in the environment they were started with (proc_pid_environ(5)).
#[expect(clippy::disallowed_methods, reason = "what the kernel tells about processes is not stored")]
fn marked(mark: &str, since: u64) -> Marked {
    let mut marked = Marked { found: Vec::new(), is_unsure: false };
    let Ok(entries) = std::fs::read_dir("/proc") else { return marked };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw) else { continue };
        let Ok(environment) = std::fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())) else {
            continue;
        };
        if environment.is_empty() {
            marked.is_unsure |= Facts::of(process).is_some_and(|facts| facts.lives && facts.started >= since);
        } else if environment.split(|byte| *byte == 0).any(|each| each == mark.as_bytes()) {
            marked.found.push(process);
        }
    }
    marked
}

/// What the kernel tells of a process (proc_pid_stat(5)).
struct Facts {
    /// Whether it runs a program: it is no zombie and no thread of the kernel.
    lives: bool,
    /// In clock ticks since the start of the machine.
    started: u64,
}

impl Facts {
    #[expect(clippy::disallowed_methods, reason = "what the kernel tells about processes is not stored")]
    fn of(process: Pid) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
        // The name before it may have spaces and parentheses.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let flags: u64 = fields.get(6)?.parse().ok()?;
        let lives = !matches!(*fields.first()?, "Z" | "X") && flags & KERNEL_THREAD == 0;
        Some(Self { lives, started: fields.get(19)?.parse().ok()? })
    }
}

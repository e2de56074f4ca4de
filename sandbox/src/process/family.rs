//! [`Family`]: a process and all that descend from it, to be killed together.

use std::os::unix::ffi::OsStrExt;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable by which descendants are found that left the group: they inherit it, unless they clean themselves.
pub(crate) const MARK: &str = "FILESECBOX_RUN";

/// How often new processes are looked for: one that forks faster than it can be found is left after that.
const ROUNDS_MAX: usize = 20;

/// The processes of one command, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Family {
    leader: Pid,
    mark: String,
    armed: bool,
}

impl Family {
    /// The family of a leader of its own group that was started with `mark` in [`MARK`].
    pub(crate) fn new(leader: Pid, mark: &str) -> Self {
        Self { leader, mark: format!("{MARK}={mark}"), armed: true }
    }

    /// Kills the group, and the processes that left it, as far as `/proc` shows them to this user.
    pub(crate) fn kill_all(&self) {
        self.kill_group();
        // The next round finds a process that was forked during this one; the last round finds none.
        for _ in 0..ROUNDS_MAX {
            let found = marked(&self.mark);
            if found.is_empty() {
                return;
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
        Self { leader: self.leader, mark: self.mark.clone(), armed: false }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.armed {
            self.kill_group();
            let family = self.shared();
            // Looking through `/proc` takes milliseconds, and a caller who drops a call does not wait.
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || family.kill_all())),
                Err(_) => family.kill_all(),
            }
        }
    }
}

/// Living processes with `mark` in the environment they were started with (proc_pid_environ(5)).
#[expect(clippy::disallowed_methods, reason = "what the kernel tells about processes is not stored")]
fn marked(mark: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_marked = |process: &Pid| {
        let place = format!("/proc/{}", process.as_raw_nonzero());
        // A zombie has no environment, so this search does not find it.
        std::fs::read(format!("{place}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|each| each == mark.as_bytes()))
    };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            std::str::from_utf8(name.as_bytes()).ok()?.parse().ok().and_then(Pid::from_raw)
        })
        .filter(is_marked)
        .collect()
}

//! The machine as seen from outside: what it has, which processes run, what lies in a directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Tells whether `what` is here; fails where `FILESECBOX_REQUIRE` names it, else says so.
pub(crate) fn granted(what: &str, is_there: bool) -> bool {
    assert!(is_there || may_lack(what), "this host lacks `{what}`, which is required");
    if !is_there {
        eprintln!("SKIPPED: this host lacks `{what}`");
    }
    is_there
}

/// Tells whether `FILESECBOX_REQUIRE` (names separated by commas) leaves out `what`.
pub(crate) fn may_lack(what: &str) -> bool {
    let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
    !required.split(',').any(|name| name.trim() == what)
}

/// A command with the user id `uid` and nothing of our environment but the search path.
pub(crate) fn as_uid(uid: u32, program: &Path) -> Command {
    let mut command = if uid == rustix::process::geteuid().as_raw() {
        Command::new(program)
    } else {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
        command.args(["--clear-groups", "--"]).arg(program);
        command
    };
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

/// A process that waits to be killed, and is when this is dropped.
pub(crate) struct Bystander(Child);

impl Bystander {
    /// Starts one with a user id.
    pub(crate) fn new(uid: u32) -> Self {
        let mut command = as_uid(uid, Path::new("sleep"));
        Self(command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells whether it was killed.
    pub(crate) fn is_dead(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbers of all processes.
fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processes with `marker` in their command line. What ended and is not yet collected has none (proc_pid_cmdline(5)).
pub(crate) fn with_marker(marker: &str) -> Vec<u32> {
    let is_marked = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(marker)
    };
    processes().into_iter().filter(is_marked).collect()
}

/// Tells whether a process has a process namespace of its own: one that waits for a run, or belongs to one (`NSpid`,
/// proc_pid_status(5)).
pub(crate) fn has_own_namespace(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1)
}

/// Processes that descend from `pid`.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let parent_of = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name is in parentheses and may hold anything (proc_pid_stat(5)).
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let parents: Vec<(u32, Option<u32>)> =
        processes().into_iter().map(|process| (process, parent_of(&process))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == Some(parent)).map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

/// Most memory that a process has had resident since [`forget_memory_peak`], in bytes (`VmHWM`, proc_pid_status(5)).
pub(crate) fn memory_peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Begins to count [`memory_peak_bytes`] anew (`clear_refs`, proc_pid_clear_refs(5)).
pub(crate) fn forget_memory_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Bytes by which a process grows at most while `attack` runs.
pub(crate) fn growth(pid: u32, attack: impl FnOnce()) -> u64 {
    forget_memory_peak(pid);
    let before = memory_peak_bytes(pid);
    attack();
    memory_peak_bytes(pid).saturating_sub(before)
}

/// Path, mode, owner and content of everything in a directory, sorted by path.
pub(crate) fn inventory(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() {
            String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            String::new()
        };
        let name = path.strip_prefix(directory).unwrap().display().to_string();
        let (mode, uid, device) = (metadata.mode(), metadata.uid(), metadata.rdev());
        found.push((name, format!("{mode:o} {uid} {device} {content}")));
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// Every path below a directory that can be listed.
pub(crate) fn paths(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().filter_map(Result::ok) {
            found.push(entry.path());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    found
}

/// Copies a program that is to be executed, by another process: no child that another thread forks meanwhile has a copy of a descriptor
/// for writing, with which the kernel executes nothing (`ETXTBSY`, execve(2)).
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

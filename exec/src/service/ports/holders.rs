//! Which processes hold the sockets of a network namespace, as far as the service may see that in `/proc`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::fstat;

use crate::service::run::live::Control;

/// How long a look at all processes may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// Descriptors of one process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;
/// Bytes of a program's name; the kernel keeps 15.
const NAME_BYTES_MAX: u64 = 64;

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of its program, as it calls itself.
    pub program: String,
    /// The number by which [`Control::numbers`] tells its run.
    pub run: RunNumber,
}

/// A number that all processes of a run have, and those of no other run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunNumber {
    /// That of their process namespace.
    ProcessNamespace(u64),
    /// That of their group, where runs share the host's processes: no process of a run leaves it.
    ProcessGroup(i32),
}

/// The processes in the network namespace `network` that hold the sockets `inodes`, by socket.
pub(super) fn of(network: BorrowedFd<'_>, inodes: &BTreeSet<u64>) -> HashMap<u64, Holder> {
    let mut found = HashMap::new();
    let Ok(network) = fstat(network) else { return found };
    let (Ok(processes), until) = (fs::read_dir("/proc"), Instant::now() + PATIENCE) else { return found };
    for entry in processes.filter_map(Result::ok) {
        if found.len() == inodes.len() || Instant::now() >= until {
            break;
        }
        let name = entry.file_name();
        let Some(process) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            continue;
        };
        if number_of(process, "net") != Some(network.st_ino) {
            continue;
        }
        let held: Vec<u64> = sockets_of(process).filter(|socket| inodes.contains(socket)).collect();
        if held.is_empty() {
            continue;
        }
        let (Some(process_namespace), Some(program)) = (number_of(process, "pid"), program_of(process))
        else {
            continue;
        };
        for socket in held {
            let run = RunNumber::ProcessNamespace(process_namespace);
            let holder = Holder { program: program.clone(), run };
            found.entry(socket).or_insert(holder);
        }
    }
    found
}

impl Control {
    /// The numbers that the processes of the command may have; none when it has ended, fewer where the service may not see
    /// its namespace.
    #[must_use]
    pub fn numbers(&self) -> Vec<RunNumber> {
        // The number of a process is in what the kernel says of its descriptor (pidfd_open(2)).
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.process.as_raw_fd())).ok();
        let process =
            facts.as_ref().and_then(|facts| facts.lines().find_map(|line| line.strip_prefix("Pid:")));
        let Some(process) = process.map(str::trim) else { return Vec::new() };
        // The command is the first of its group.
        let group = process.parse().ok().map(RunNumber::ProcessGroup);
        group.into_iter().chain(number_of(process, "pid").map(RunNumber::ProcessNamespace)).collect()
    }
}

/// The number of a namespace of a process.
fn number_of(process: &str, kind: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()?;
    numbered(link.to_str()?, kind)
}

/// The number in `kind:[number]`.
fn numbered(link: &str, kind: &str) -> Option<u64> {
    link.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

fn sockets_of(process: &str) -> impl Iterator<Item = u64> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let links = descriptors.take(DESCRIPTORS_MAX).filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter_map(|link| numbered(link.to_str()?, "socket"))
}

fn program_of(process: &str) -> Option<String> {
    let mut name = Vec::new();
    let file = fs::File::open(format!("/proc/{process}/comm")).ok()?;
    file.take(NAME_BYTES_MAX).read_to_end(&mut name).ok()?;
    // A program calls itself what it likes.
    let shown = String::from_utf8_lossy(&name);
    Some(shown.trim_end_matches('\n').chars().filter(|character| !character.is_control()).collect())
}

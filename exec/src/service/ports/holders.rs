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
    /// The number of its process namespace, by which [`Control::process_namespace`] tells the run.
    pub process_namespace: u64,
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
            let holder = Holder { program: program.clone(), process_namespace };
            found.entry(socket).or_insert(holder);
        }
    }
    found
}

impl Control {
    /// The number of the process namespace of the command; `None` when it has ended, or the service may not see it.
    #[must_use]
    pub fn process_namespace(&self) -> Option<u64> {
        // The number of a process is in what the kernel says of its descriptor (pidfd_open(2)).
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.process.as_raw_fd())).ok()?;
        let process = facts.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim();
        number_of(process, "pid")
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

//! What the service and its launcher say to each other, and the sockets they say it over.
//!
//! The service begins with a [`Setup`], which the launcher answers with its [`Hello`]. Then each [`Order`] is one packet
//! on the launcher's main socket (`SOCK_SEQPACKET`), with descriptors attached (`SCM_RIGHTS`, `unix(7)`). [`Report`]s
//! come back on the run's own socket, which is among them. Both ends are the same binary: bodies are JSON without
//! versions.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::result::Limit;
use crate::tier::{MemoryBound, Network};

/// Largest body inside a packet, in bytes; larger ones travel in a memory file. Far below a socket's buffer.
const INLINE_BYTES: usize = 32 * 1024;
/// Largest body at all, in bytes: arguments and environment grow by up to six when written as JSON.
const BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most mounts of one run: its tree, home and temporary directory, and the skills it asked for.
pub(crate) const MOUNTS_MAX: usize = 72;
/// Most descriptors with one packet: five of every run, its walls, mounts, leases, and a memory file. The kernel's own
/// bound is 253 (unix(7), `SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 7 + 2 * MOUNTS_MAX;

/// What the launcher is to prepare before its first run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Whether runs may make files in memory, which can be mapped as code where no directory can.
    pub(crate) memory_files: bool,
    /// The root that runs are to see; `None` leaves them in the host's.
    pub(crate) root: Option<RootPlan>,
    /// Whether control groups may be made.
    pub(crate) control_groups: bool,
}

/// A minimal root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RootPlan {
    /// Directories and files of the host that stand in it under their own paths, read-only.
    pub(crate) bound: Vec<PathBuf>,
    /// The port on the loopback address of the runs' network at which the proxy listens.
    pub(crate) proxy_port: Option<u16>,
}

/// What the service asks of its launcher.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order<R = Request> {
    /// Start a command.
    Run(R),
    /// Make a user namespace in which the service's own id and `owner` change places.
    SwapOwner {
        /// The other id.
        owner: u32,
    },
}

/// The message on a run's socket that asks for its death. Closing the socket asks for the same.
pub(crate) const KILL: &[u8] = b"kill";

/// One command to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The program file, absolute.
    pub(crate) program: PathBuf,
    /// All arguments, the program's name first.
    pub(crate) arguments: Vec<String>,
    /// The whole environment, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// The uid and gid to take; `None` keeps the launcher's.
    pub(crate) identity: Option<u32>,
    /// How long it may run, in milliseconds. The service ends it then; the launcher does when the service is stuck.
    pub(crate) deadline_ms: u64,
    /// Where the tree stands for it.
    pub(crate) place: Place,
    /// Resource limits.
    pub(crate) limits: Ceilings,
    /// Limits on all processes together.
    pub(crate) whole: Whole,
    /// Which closing filter is loaded.
    pub(crate) network: Network,
    /// Whether a Landlock ruleset is attached.
    pub(crate) has_walls: bool,
    /// Whether somebody takes part in it, who wants a [`Report::Handle`].
    pub(crate) is_live: bool,
    /// Whether standard input is a terminal that the command is to have as its own.
    pub(crate) has_terminal: bool,
}

/// Where the tree of a run stands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// Where it lies on the host, at this path.
    Host {
        /// For the test whether `identity` can reach it by its absolute path.
        tree: PathBuf,
    },
    /// In a mount namespace of the run's own.
    Mounted {
        /// The absolute path of each attached mount, in the order in which they are mounted.
        at: Vec<String>,
        /// How many leases follow the mounts.
        leases: usize,
    },
}

/// Limits on all processes of a run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    /// Memory, in bytes.
    pub(crate) memory_bytes: u64,
    /// Processes and threads.
    pub(crate) processes: u64,
}

/// Resource limits of one run, as `setrlimit(2)` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ceilings {
    /// `RLIMIT_AS`, in bytes.
    pub(crate) memory_bytes: u64,
    /// `RLIMIT_NPROC`: processes and threads of the uid.
    pub(crate) processes: u64,
    /// `RLIMIT_CPU`, in seconds.
    pub(crate) cpu_seconds: u64,
    /// `RLIMIT_FSIZE`, in bytes.
    pub(crate) file_bytes: u64,
    /// `RLIMIT_NOFILE`.
    pub(crate) open_files: u64,
}

/// The descriptors of one run, in the order they travel.
#[derive(Debug)]
pub(crate) struct Descriptors<Fd> {
    /// The run's own socket.
    pub(crate) run: Fd,
    /// Standard input, output and error.
    pub(crate) stdio: [Fd; 3],
    /// The working directory.
    pub(crate) directory: Fd,
    /// The Landlock ruleset.
    pub(crate) walls: Option<Fd>,
    /// The detached mounts of a mounted run.
    pub(crate) mounts: Vec<Fd>,
    /// Descriptors that the first process of a mounted run keeps open as long as anything of the run lives.
    pub(crate) leases: Vec<Fd>,
}

/// What the launcher tells once, on its main socket, before its first run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The launcher's process id.
    pub(crate) pid: i32,
    /// Whether the first stage of the filter is in force; otherwise why not.
    pub(crate) filter: Result<(), String>,
    /// Whether it can take other uids and gids.
    pub(crate) can_change_identity: bool,
    /// What became of the root that was to be prepared; the root's directory and the proxy's listener are attached.
    pub(crate) namespaces: Option<Result<Namespaces, String>>,
    /// What bounds the memory of whole runs, and why it is no control group.
    pub(crate) memory: (MemoryBound, Option<String>),
}

/// What the namespaces of runs offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespaces {
    /// Whether runs get a `/proc` of their own; otherwise why not.
    pub(crate) processes: Result<(), String>,
    /// Whether the proxy's listener is there; otherwise why not.
    pub(crate) proxy: Result<(), String>,
}

/// What happens to a run, on the run's socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The process exists and leads a group of its own; nothing was executed yet.
    Started {
        /// Its process id, and the group's.
        pid: i32,
    },
    /// A descriptor of the command's process is attached (pidfd_open(2)).
    Handle,
    /// The uid cannot walk to the tree by its path.
    Unreachable {
        /// What becomes of absolute paths.
        reach: Reach,
    },
    /// The main process of a mounted run has ended, and what it left behind was killed and collected.
    Ended {
        /// The exit code, when it exited.
        code: Option<i32>,
        /// The signal, when one killed it.
        signal: Option<i32>,
    },
    /// A step failed and the program does not start.
    Failed {
        /// Which step.
        step: Step,
        /// Its `errno`.
        errno: i32,
    },
    /// The process is gone and its group was killed.
    Exited {
        /// The exit code, when it exited.
        code: Option<i32>,
        /// The signal, when one killed it.
        signal: Option<i32>,
        /// The limit that the run went beyond.
        limit: Option<Limit>,
    },
}

/// How a run gets to its tree by an absolute path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    /// As its uid.
    Open,
    /// With `CAP_DAC_READ_SEARCH`, which it keeps for that.
    ReadSearch,
    /// Not at all: the launcher has no such capability to keep.
    Closed,
}

/// A step of setting up a run, named after its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The request could not be read.
    Request,
    /// `mkdir` of the control group
    Group,
    /// `clone`
    Clone,
    /// `move_mount` of the tree, the home, the temporary directory or a skill
    Attach,
    /// The mount of `/proc`
    Proc,
    /// The mount of `/dev/shm` or of the directory that holds the skills
    MemoryFiles,
    /// `setns` into the host's network
    Network,
    /// `setsid`
    Session,
    /// `dup2` of standard input, output and error
    Stdio,
    /// `ioctl(TIOCSCTTY)`
    Terminal,
    /// `pidfd_open` of the command
    Handle,
    /// `close_range`
    CloseFiles,
    /// `setrlimit`
    Limits,
    /// `setgroups`
    Groups,
    /// `setresgid`
    Gid,
    /// `setresuid`
    Uid,
    /// `capset` and the ambient set
    Capabilities,
    /// `PR_SET_PDEATHSIG`
    ParentDeath,
    /// `fchdir`
    Directory,
    /// `landlock_restrict_self`
    Landlock,
    /// `seccomp`
    Seccomp,
    /// `execve`
    Execute,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Request => "recvmsg",
            Self::Group => "mkdir(cgroup)",
            Self::Clone => "clone",
            Self::Attach => "move_mount",
            Self::Proc => "fsmount(proc)",
            Self::MemoryFiles => "fsmount(tmpfs)",
            Self::Network => "setns",
            Self::Session => "setsid",
            Self::Stdio => "dup2",
            Self::Terminal => "ioctl(TIOCSCTTY)",
            Self::Handle => "pidfd_open",
            Self::CloseFiles => "close_range",
            Self::Limits => "setrlimit",
            Self::Groups => "setgroups",
            Self::Gid => "setresgid",
            Self::Uid => "setresuid",
            Self::Capabilities => "capset",
            Self::ParentDeath => "prctl(PR_SET_PDEATHSIG)",
            Self::Directory => "fchdir",
            Self::Landlock => "landlock_restrict_self",
            Self::Seccomp => "seccomp",
            Self::Execute => "execve",
        })
    }
}

/// Sends `request` and its descriptors without waiting.
///
/// # Errors
/// As `sendmsg(2)`: `EAGAIN` when the launcher is behind, `EPIPE` or `ECONNRESET` when it is gone.
pub(crate) fn send_request(
    socket: BorrowedFd<'_>,
    request: &Request,
    descriptors: &Descriptors<BorrowedFd<'_>>,
) -> io::Result<()> {
    let body = serde_json::to_vec(&Order::Run(request))?;
    let mut attached = vec![descriptors.run];
    attached.extend(descriptors.stdio);
    attached.push(descriptors.directory);
    attached.extend(descriptors.walls);
    attached.extend(&descriptors.mounts);
    attached.extend(&descriptors.leases);
    if body.len() <= INLINE_BYTES {
        return send(socket, &body, &attached);
    }
    let spill = memory_file(&body)?;
    attached.push(spill.as_fd());
    // An empty object instead of a body: the last descriptor has it.
    send(socket, b"{}", &attached)
}

/// An order as it arrives.
pub(crate) enum Arrived {
    /// Start a command, with its descriptors.
    Run(Box<Request>, Descriptors<OwnedFd>),
    /// Make a user namespace, and send it over this socket.
    SwapOwner(u32, OwnedFd),
}

/// Waits for the next order; `None` when the service closed its end.
///
/// # Errors
/// As `recvmsg(2)`, and `InvalidData` for a packet that is no order (which one binary never sends to itself).
pub(crate) fn receive_order(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Arrived>> {
    let (length, mut attached) = receive(socket, buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let body = buffer.get(..length).unwrap_or_default();
    let order: Order = if body == b"{}" {
        let mut spill = std::fs::File::from(attached.pop().ok_or_else(malformed)?);
        spill.rewind()?;
        let mut whole = Vec::new();
        spill.take(BODY_BYTES_MAX).read_to_end(&mut whole)?;
        serde_json::from_slice(&whole)?
    } else {
        serde_json::from_slice(body)?
    };
    let mut attached = attached.into_iter();
    let mut next = || attached.next().ok_or_else(malformed);
    let request = match order {
        Order::SwapOwner { owner } => return Ok(Some(Arrived::SwapOwner(owner, next()?))),
        Order::Run(request) => request,
    };
    let (run, stdio, directory) = (next()?, [next()?, next()?, next()?], next()?);
    let walls = if request.has_walls { Some(next()?) } else { None };
    let (mounts, leases) = match &request.place {
        Place::Host { .. } => (0, 0),
        Place::Mounted { at, leases } => (at.len(), *leases),
    };
    let mounts = (0..mounts).map(|_| next()).collect::<io::Result<Vec<_>>>()?;
    let leases = (0..leases).map(|_| next()).collect::<io::Result<Vec<_>>>()?;
    let descriptors = Descriptors { run, stdio, directory, walls, mounts, leases };
    Ok(Some(Arrived::Run(Box::new(request), descriptors)))
}

/// Size of the buffer that [`receive_order`] needs, in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = INLINE_BYTES + 1024;

/// Sends one JSON message, on either socket, without waiting and without a signal when nobody listens.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send_message<M: Serialize>(socket: BorrowedFd<'_>, message: &M) -> io::Result<()> {
    send(socket, &serde_json::to_vec(message)?, &[])
}

/// Hands the process `pid`, a child or the caller itself, to the service.
///
/// # Errors
/// As `pidfd_open(2)` and `sendmsg(2)`.
pub(crate) fn send_handle(run: BorrowedFd<'_>, pid: rustix::process::Pid) -> io::Result<()> {
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    send(run, &serde_json::to_vec(&Report::Handle)?, &[handle.as_fd()])
}

/// Sends one packet with descriptors, without waiting.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send(socket: BorrowedFd<'_>, body: &[u8], attached: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !attached.is_empty() && !control.push(SendAncillaryMessage::ScmRights(attached)) {
        return Err(malformed());
    }
    sendmsg(socket, &[IoSlice::new(body)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives one packet: its length (0 at the end of the connection) and its descriptors, closed on `execve`.
///
/// # Errors
/// As `recvmsg(2)`; `InvalidData` when the packet is longer than `buffer`.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut attached = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            attached.extend(descriptors);
        }
    }
    if message.flags.contains(rustix::net::ReturnFlags::TRUNC) {
        return Err(malformed());
    }
    Ok((message.bytes, attached))
}

/// A file in memory with `body` in it.
fn memory_file(body: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC;
    let file = memfd_create("request", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("request", flags))?; // the seal is new in Linux 6.3
    let mut file = std::fs::File::from(file);
    file.write_all(body)?;
    Ok(file.into())
}

fn malformed() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

//! What the service and its launcher say to each other, and the sockets they say it over.
//!
//! One run is one [`Request`] on the launcher's main socket (`SOCK_SEQPACKET`, so that one message is one packet),
//! with the descriptors of the run attached (`SCM_RIGHTS`, `unix(7)`). [`Report`]s come back on the run's own socket,
//! which is among them. Both ends are the same binary: bodies are JSON without versions.

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

use crate::tier::Network;

/// Largest body inside a packet, in bytes; larger ones travel in a memory file. Far below a socket's buffer.
const INLINE_BYTES: usize = 32 * 1024;
/// Largest body at all, in bytes: arguments and environment grow by up to six when written as JSON.
const BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most descriptors with one packet: five of every run, its walls and a memory file.
const DESCRIPTORS_MAX: usize = 7;

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
    /// The tree, for the test whether `identity` can reach it by its absolute path.
    pub(crate) tree: PathBuf,
    /// Resource limits.
    pub(crate) limits: Ceilings,
    /// Which closing filter is loaded.
    pub(crate) network: Network,
    /// Whether a Landlock ruleset is attached.
    pub(crate) has_walls: bool,
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
    /// The uid cannot walk to the tree by its path.
    Unreachable {
        /// What becomes of absolute paths.
        reach: Reach,
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
    /// `clone`
    Clone,
    /// `setsid`
    Session,
    /// `dup2` of standard input, output and error
    Stdio,
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
            Self::Clone => "clone",
            Self::Session => "setsid",
            Self::Stdio => "dup2",
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
    let body = serde_json::to_vec(request)?;
    let mut attached = vec![descriptors.run];
    attached.extend(descriptors.stdio);
    attached.push(descriptors.directory);
    attached.extend(descriptors.walls);
    if body.len() <= INLINE_BYTES {
        return send(socket, &body, &attached);
    }
    let spill = memory_file(&body)?;
    attached.push(spill.as_fd());
    // An empty object instead of a body: the last descriptor has it.
    send(socket, b"{}", &attached)
}

/// Waits for the next request; `None` when the service closed its end.
///
/// # Errors
/// As `recvmsg(2)`, and `InvalidData` for a packet that is no request (which one binary never sends to itself).
pub(crate) fn receive_request(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(Request, Descriptors<OwnedFd>)>> {
    let (length, attached) = receive(socket, buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let body = buffer.get(..length).unwrap_or_default();
    let mut attached = attached.into_iter();
    let mut next = || attached.next().ok_or_else(malformed);
    let (run, stdio, directory) = (next()?, [next()?, next()?, next()?], next()?);
    let mut rest: Vec<OwnedFd> = attached.collect();
    let request: Request = if body == b"{}" {
        let mut spill = std::fs::File::from(rest.pop().ok_or_else(malformed)?);
        spill.rewind()?;
        let mut whole = Vec::new();
        spill.take(BODY_BYTES_MAX).read_to_end(&mut whole)?;
        serde_json::from_slice(&whole)?
    } else {
        serde_json::from_slice(body)?
    };
    let walls = if request.has_walls { Some(rest.pop().ok_or_else(malformed)?) } else { None };
    Ok(Some((request, Descriptors { run, stdio, directory, walls })))
}

/// Size of the buffer that [`receive_request`] needs, in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = INLINE_BYTES + 1024;

/// Sends one JSON message, on either socket, without waiting and without a signal when nobody listens.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send_message<M: Serialize>(socket: BorrowedFd<'_>, message: &M) -> io::Result<()> {
    send(socket, &serde_json::to_vec(message)?, &[])
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

//! The messages between the service and its launcher, and their sockets.
//!
//! The service begins with a [`Setup`], which the launcher answers with its [`Hello`]. Then each [`Order`] is one packet
//! on the launcher's main socket (`SOCK_SEQPACKET`), with descriptors attached (`SCM_RIGHTS`, `unix(7)`). [`Report`]s
//! come back on the run's own socket, which is among them. A first process that waits for its run gets the order handed
//! on, as it came.
//!
//! | Module | Holds |
//! | --- | --- |
//! | this one | the messages |
//! | [`packet`] | how they travel, with descriptors |
//!
//! Both ends are the same binary, so bodies have no versions and no names of fields.

mod packet;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use self::packet::{
    Arrived, MOUNTS_MAX, PACKET_BYTES_MAX, decode, encode, packet_sockets, receive, receive_next,
    receive_order, send, send_handle, send_message, send_next, send_request, send_with,
};
use crate::limit::Limit;
use crate::step::Step;
use crate::sys::Work;
use crate::tier::MemoryBound;

/// The order to prepare the launcher before its first run.
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
    /// Further names of programs, and the program of each; see [`ALIASES`](crate::walls::programs::ALIASES).
    pub(crate) aliases: Vec<(String, PathBuf)>,
    /// The port on the loopback address of each network namespace at which the proxy listens.
    pub(crate) proxy_port: Option<u16>,
    /// Whether runs may be in the network of the host.
    pub(crate) host_network: bool,
}

/// An order of the service to its launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order<R = Request> {
    /// Start a command.
    Run(R),
    /// The order is too large for a packet: the last descriptor has it.
    Spilled,
    /// Make a user namespace in which the service's own id and `owner` change places.
    SwapOwner {
        /// The other id.
        owner: u32,
    },
    /// This user, by number, is here: others are not alone.
    Here {
        /// As in [`Request::user`].
        user: u64,
    },
}

/// The program to execute.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Command {
    /// The program file, absolute.
    pub(crate) program: PathBuf,
    /// All arguments, the program's name first.
    pub(crate) arguments: Vec<String>,
    /// The whole environment, as `NAME=value`.
    pub(crate) environment: Vec<String>,
}

impl Command {
    /// About how much memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.arguments.iter().chain(&self.environment);
        texts.map(|text| text.len() + size_of::<String>()).sum()
    }
}

/// One command to start. Shutting down the service's end of the run's socket, or closing it, asks for its death.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The program to execute.
    pub(crate) command: Command,
    /// The uid and gid to take; `None` keeps the launcher's.
    pub(crate) identity: Option<u32>,
    /// How long it may run, in milliseconds. The service ends it then; the launcher does when the service is stuck.
    pub(crate) deadline_ms: u64,
    /// Where the tree stands for it.
    pub(crate) place: TreeLocation,
    /// Resource limits.
    pub(crate) limits: Ceilings,
    /// Limits on all processes together.
    pub(crate) whole: Whole,
    /// Which sockets it may make, and in which network.
    pub(crate) sockets: Sockets,
    /// Whether a Landlock ruleset is attached.
    pub(crate) has_walls: bool,
    /// Whether it may make files in memory, from which code can be mapped.
    pub(crate) has_memory_files: bool,
    /// Whether a caller takes part in the run and wants a [`Report::Handle`].
    pub(crate) is_live: bool,
    /// Whether standard input is a terminal that the command is to have as its own.
    pub(crate) has_terminal: bool,
    /// Whether the first process of a mounted run may stay for a [`Next`] one.
    pub(crate) may_stay: bool,
    /// Whether the memory monitor looks at it when it has lived for a while. Others begin as what has.
    pub(crate) is_watched: bool,
    /// Whether its processes are to go behind all others.
    pub(crate) gives_way: bool,
    /// Whether they leave one processor to others, who are there.
    pub(crate) is_aside: bool,
    /// A number for its user: the runs of one have the same.
    pub(crate) user: Option<u64>,
}

/// One more command for a first process that has stayed ([`Report::Ended`]), in all else as the [`Request`] before. It
/// comes on the run's own socket, with standard input, output and error, and its working directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Next {
    /// The program to execute.
    pub(crate) command: Command,
    /// As of the request.
    pub(crate) deadline_ms: u64,
    /// As of the request.
    pub(crate) is_live: bool,
    /// As of the request.
    pub(crate) gives_way: bool,
}

/// Where the tree of a run stands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum TreeLocation {
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

/// Which sockets a run may make, and in which network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Sockets {
    /// None: the filter refuses them.
    Refused,
    /// UNIX streams in the run's own directories, and TCP at loopback addresses of its user's and to the egress proxy, in the
    /// network of the host: the service names and connects each for the run.
    Connected,
    /// TCP, UDP and UNIX sockets in a network namespace of its user's, which is attached.
    OwnNetwork,
    /// TCP and UDP in the network of the host.
    HostNetwork,
}

impl Sockets {
    /// Tells whether the service gives them their names and peers.
    pub(crate) fn are_connected_by_service(self) -> bool {
        self == Self::Connected
    }
}

/// Limits on all processes of a run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Whole {
    /// Memory, in bytes.
    pub(crate) memory_bytes: u64,
    /// Processes and threads.
    pub(crate) processes: u64,
    /// What its user's runs may write to a disk while other users are there, in bytes in a second; 0 for any amount.
    pub(crate) write_bytes_per_second: u64,
}

/// Resource limits of one run, as `setrlimit(2)` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// The network namespace of a run with [`Sockets::OwnNetwork`].
    pub(crate) network: Option<Fd>,
    /// The detached mounts of a mounted run.
    pub(crate) mounts: Vec<Fd>,
    /// Descriptors that the first process of a mounted run keeps open as long as anything of the run lives.
    pub(crate) leases: Vec<Fd>,
}

impl Descriptors<OwnedFd> {
    /// The same, to be sent on.
    pub(crate) fn borrowed(&self) -> Descriptors<BorrowedFd<'_>> {
        Descriptors {
            run: self.run.as_fd(),
            stdio: self.stdio.each_ref().map(AsFd::as_fd),
            directory: self.directory.as_fd(),
            walls: self.walls.as_ref().map(AsFd::as_fd),
            network: self.network.as_ref().map(AsFd::as_fd),
            mounts: self.mounts.iter().map(AsFd::as_fd).collect(),
            leases: self.leases.iter().map(AsFd::as_fd).collect(),
        }
    }

    /// Their numbers in this process.
    pub(crate) fn raw(&self) -> Vec<RawFd> {
        let Self { run, stdio, directory, walls, network, mounts, leases } = self;
        let one = [run, directory].into_iter().chain(stdio);
        let others = walls.iter().chain(network).chain(mounts).chain(leases);
        one.chain(others).map(AsRawFd::as_raw_fd).collect()
    }
}

/// The message of the launcher, once, on its main socket, before its first run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The launcher's process id.
    pub(crate) pid: i32,
    /// Whether the first stage of the filter is in force; otherwise why not.
    pub(crate) filter: Result<(), String>,
    /// Whether it can take other uids and gids.
    pub(crate) can_change_identity: bool,
    /// Whether the calls of runs can be answered by the [supervisor](crate::supervisor); otherwise why not.
    pub(crate) supervision: Result<(), String>,
    /// The outcome of preparing the root; the root's directory and the socket of the process that makes
    /// network namespaces are attached.
    pub(crate) namespaces: Option<Result<Namespaces, String>>,
    /// The bound on the memory of whole runs, and why it is no control group.
    pub(crate) memory: (MemoryBound, Option<String>),
}

/// The features of the namespaces of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespaces {
    /// Whether runs get a `/proc` of their own; otherwise why not.
    pub(crate) processes: Result<(), String>,
    /// Whether the processes of each run are counted apart; otherwise why not.
    pub(crate) counted_apart: Result<(), String>,
}

/// The answer of the process that makes network namespaces, to each request for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkReport {
    /// The namespace is attached, and the proxy's listener in it where there is to be one.
    Made,
    /// The namespace is attached; its loopback interface or the listener failed with this `errno`.
    WithoutLoopback {
        /// As of `ioctl(2)`, `bind(2)` or `listen(2)`.
        errno: i32,
    },
    /// There is no namespace.
    Failed {
        /// As of `unshare(2)`.
        errno: i32,
    },
}

/// A report about a run, on the run's socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The process exists and leads a group of its own; nothing was executed yet.
    Started {
        /// Its process id, and the group's.
        pid: i32,
    },
    /// A descriptor of the command's process is attached (pidfd_open(2)).
    Handle,
    /// The descriptor is attached on which system calls of the run wait for their answers (seccomp_unotify(2)).
    Listener,
    /// The uid cannot walk to the tree by its path.
    Unreachable {
        /// How absolute paths of the run are treated.
        reach: Reach,
    },
    /// The main process of a mounted run has ended, and what it left behind was killed and collected.
    Ended {
        /// The exit code, when it exited.
        code: Option<i32>,
        /// The signal, when one killed it.
        signal: Option<i32>,
        /// Whether the first process stays, and takes a [`Next`] command.
        stays: bool,
        /// What all processes of the run have done together.
        worked: Work,
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
        /// What the process and its descendants have done; `None` where some of them were killed, whom the kernel
        /// does not count, and of a first process.
        worked: Option<Work>,
    },
}

/// How a run gets to its tree by an absolute path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reach {
    /// As its uid.
    Open,
    /// With `CAP_DAC_READ_SEARCH`, which it keeps for that.
    ReadSearch,
    /// Not at all: the launcher has no such capability to keep.
    Closed,
}

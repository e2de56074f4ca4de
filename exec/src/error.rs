//! [`enum@Error`]: every reason why a command did not run. A command that ran and failed is a result.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::step::Step;
use crate::tier::Tier;

/// Why a run did not take place, or its result is unknown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The host grants less confinement than the configuration or the request demands.
    #[error(
        "tier `{wanted}` is demanded and this host grants `{granted}` ({reason}): lower the floor or move to a host that grants it"
    )]
    Unsupported {
        /// The floor.
        wanted: Tier,
        /// The tier that the host grants.
        granted: Tier,
        /// The missing grant.
        reason: String,
    },
    /// The service cannot take the uid that owns the tree.
    #[error(
        "the tree belongs to uid {uid}, which the service cannot become: run the service as root or as that uid"
    )]
    Identity {
        /// The owner of the tree.
        uid: u32,
    },
    /// Nothing here keeps a command to the proxy.
    #[error("this host cannot keep a command to the egress proxy ({reason}): ask for network `none`")]
    NoProxy {
        /// The missing grant.
        reason: String,
    },
    /// Runs have no loopback addresses of their own, so that nothing of theirs listens.
    #[error(
        "nothing can listen here, because commands have no loopback addresses of their own ({reason}): ports need tier \
         `landlock` and a kernel that notifies the service of system calls (Linux 5.9), or tier `namespaces`"
    )]
    NoPorts {
        /// The missing grant.
        reason: String,
    },
    /// No server of the user and agent is at the port.
    #[error(
        "nothing listens at port {port}: start a server there in a background run, on `127.0.0.1` or all addresses"
    )]
    NothingListens {
        /// The port.
        port: u16,
    },
    /// The program is not among those that may be started directly.
    #[error("`{program}` may not run here; allowed: {allowed}")]
    ProgramNotAllowed {
        /// The name sent.
        program: String,
        /// The names allowed, separated by blanks.
        allowed: String,
    },
    /// The program may run, but the host does not have it.
    #[error("`{program}` is allowed but not installed on this host: use another program or install it")]
    ProgramMissing {
        /// The name sent.
        program: String,
    },
    /// The host has replaced the program since it was looked up, which was done again.
    #[error("`{program}` was replaced on this host while the service ran: repeat the command")]
    ProgramReplaced {
        /// The name sent.
        program: String,
    },
    /// The tree or its scratch directory cannot be opened. The message does not name it: callers know no host paths.
    #[error("a directory of the run cannot be opened")]
    Tree {
        /// The directory on the host, for the log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error(
        "the working directory `{directory}` cannot be entered: name an existing directory inside the tree"
    )]
    Directory {
        /// As sent, relative to the tree.
        directory: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Standard input, or arguments and environment together, are above their limit.
    #[error("the {what} has {bytes} bytes: at most {limit} are possible")]
    TooLarge {
        /// `standard input` or `command line with its environment`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An argument or variable that no process can receive.
    #[error(
        "`{text}` cannot be passed to a program: no NUL is possible, and no `=` in the name of a variable"
    )]
    Unpassable {
        /// The text, shortened.
        text: String,
    },
    /// A set-up step of the run failed in the new process; the program did not start.
    #[error("the run could not be set up: `{step}` failed")]
    Step {
        /// Which step.
        step: Step,
        /// Its error.
        #[source]
        source: io::Error,
    },
    /// The other commands of the run's user have as many processes as they may (`RLIMIT_NPROC`), so the program did not start.
    #[error(
        "the commands under way have as many processes as they may, or those of ended ones are still ending: wait until some have ended"
    )]
    Processes,
    /// There are as many network namespaces as there may be, and each has a run in it.
    #[error("{whose} {most} network namespaces have a command in them: wait until one ends, or end one")]
    Networks {
        /// How many there may be.
        most: usize,
        /// `all` or `your`.
        whose: &'static str,
    },
    /// The attachments of a mounted run make no sense.
    #[error("a run in namespaces needs exactly one tree and at most {most} attached directories")]
    Attachments {
        /// The most there can be.
        most: usize,
    },
    /// The Landlock ruleset could not be built.
    #[error("the walls of the run could not be built")]
    Walls(#[source] io::Error),
    /// The launcher process could not be started.
    #[error("the launcher process could not be started")]
    LauncherStart(#[source] io::Error),
    /// The launcher process ended during the run, which was killed with it. Running again starts a new launcher.
    #[error("the launcher process ended during the run, which was killed: run the command again")]
    LauncherDied,
    /// The kernel gives no random numbers, so nothing secret can be made for the run.
    #[error("the run could not be prepared: `getrandom` failed")]
    Random(#[source] io::Error),
    /// The host is out of something that a run needs, such as file descriptors.
    #[error("the run could not be prepared: `{what}` failed")]
    Resource {
        /// The system call.
        what: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Wraps the error of the call `what`.
    pub(crate) fn resource<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Resource { what, source: source.into() }
    }
}

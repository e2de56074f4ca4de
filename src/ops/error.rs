//! Every way in which an operation can fail.

use thiserror::Error;

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workspace is not prepared now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Initialising {
    /// Another request prepares it.
    #[error("another request prepares it")]
    Elsewhere,
    /// The store of leases cannot be asked.
    #[error("its lease cannot be had")]
    Unleased,
    /// The lease was lost while it was prepared.
    #[error("its lease was lost")]
    Lost,
}

/// A failure of an operation.
#[derive(Debug, Error)]
pub enum Error {
    /// The request does not make sense.
    #[error("{0}")]
    Invalid(String),
    /// The service is doing too much already.
    #[error("{what}: try again in {retry_after_seconds} s")]
    Busy {
        /// The quantity that is too large.
        what: &'static str,
        /// When another try may succeed, in seconds.
        retry_after_seconds: u64,
    },
    /// All places for something are taken, or too many requests wait for one.
    #[error("{what}: {next}, or try again in {retry_after_seconds} s")]
    Full {
        /// The full thing, and how many there are.
        what: String,
        /// The advice.
        next: &'static str,
        /// When another try may succeed, in seconds.
        retry_after_seconds: u64,
    },
    /// The workspace is being prepared, or cannot be prepared now.
    #[error("the workspace is initialising: {why}, try again in {retry_after_seconds} s")]
    Initialising {
        /// Why.
        why: Initialising,
        /// When another try may succeed, in seconds.
        retry_after_seconds: u64,
    },
    /// This service does not do that.
    #[error("{0}")]
    Unsupported(String),
    /// What the request is about belongs to others.
    #[error("{0}")]
    Denied(&'static str),
    /// The service is stopping.
    #[error("the service is stopping: try again when it is back")]
    Stopping,
    /// Another request had the workspace removed, and the runs in it killed; or the run was killed because it went on filling what
    /// was removed.
    #[error("the workspace, or a directory that the command went on filling, was removed while it ran")]
    Removed,
    /// There is no such run, or it is no longer remembered.
    #[error("there is no run `{0}` here: it never was, or it ended too long ago")]
    NoRun(String),
    /// The user has no such machine.
    #[error("there is no runner `{0}` of this user: list them")]
    NoRunner(String),
    /// There is no such devbox. Adapters of the dialect look for the words "not found".
    #[error("the devbox `{0}` is not found: create it first")]
    NoDevbox(String),
    /// The devbox is in no phase for this.
    #[error("the devbox `{name}` is {phase}: resume it before commands and files")]
    DevboxAway {
        /// Its name.
        name: String,
        /// The word of the dialect for what it is.
        phase: &'static str,
    },
    /// The name belongs to another run.
    #[error("`exec_id` `{0}` names a run of another command: choose another name, or leave it out")]
    NameTaken(String),
    /// The run is in no state for this.
    #[error("{0}")]
    NotNow(&'static str),
    /// The events that were asked for have given way to later ones. The number is the oldest event that is there.
    #[error("the events asked for are no longer there: the oldest one is {0}")]
    Gone(u64),
    /// The run failed after it had begun.
    #[error("{0}")]
    RunFailed(String),
    /// The events of a run could not be read or written.
    #[error("the events of the run cannot be read or written")]
    Log(#[source] std::io::Error),
    /// The server at a port of a sandbox does not answer.
    #[error("the server at port {port} did not answer within {seconds} s: look at its output")]
    PortSilent {
        /// The port.
        port: u16,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The server at a port of a sandbox broke off, or answered with something else than HTTP.
    #[error(
        "the server at port {port} closed the connection, or its answer is none of HTTP/1.1: look at its output"
    )]
    PortBroken {
        /// The port.
        port: u16,
    },
    /// An id cannot be spelled.
    #[error(transparent)]
    Id(#[from] policy::IdError),
    /// A path cannot be spelled, or leads out of its tree.
    #[error(transparent)]
    Path(#[from] policy::PathError),
    /// A scope does not exist.
    #[error(transparent)]
    Scope(#[from] policy::scope::UnknownScope),
    /// A command or argument is not allowed.
    #[error(transparent)]
    Refused(#[from] policy::Refusal),
    /// Stored bytes.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A command could not be run.
    #[error(transparent)]
    Exec(#[from] exec::Error),
    /// The registry cannot answer now.
    #[error("the registry cannot answer now: try again in a few seconds")]
    Registry(#[source] crate::registry::Error),
    /// Another backend, which answers for the workspace, failed or refused.
    #[error("{message}")]
    Remote {
        /// The kind of failure, as of all backends.
        kind: sandbox::ErrorKind,
        /// One sentence, without any path of a host.
        message: String,
        /// For the log.
        #[source]
        cause: super::said::Said,
    },
    /// The bucket of packages.
    #[error(transparent)]
    Bucket(#[from] super::bucket::BucketError),
    /// A programming error of ours.
    #[error("the operation failed inside the service")]
    Panicked,
}

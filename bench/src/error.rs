//! [`Failure`]: why a measurement could not be made.

use std::io;

use thiserror::Error;

/// The result of a measurement or of a step of one.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a measurement could not be made.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The step.
        doing: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A service refused or failed a request of the load.
    #[error("`{request}` was answered {status}: {body}")]
    Answer {
        /// The request line.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// A service sent something that is no answer as the load expects it.
    #[error("`{0}` was not answered in HTTP/1.1 with a `Content-Length`")]
    Protocol(String),
    /// A service did not come up.
    #[error("`{0}` did not say where it listens; its standard error is above")]
    NotReady(String),
    /// There is no such group of workloads.
    #[error("there is no group `{0}`: `--help` names them")]
    NoSuchGroup(String),
    /// A picture could not be drawn.
    #[error("the picture `{0}` could not be drawn: {1}")]
    Chart(String, String),
    /// An archive of the fixture could not be written.
    #[error("the archive of the fixture could not be written: {0}")]
    Archive(#[from] zip::result::ZipError),
}

impl Failure {
    /// Names the step in which a system call failed.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

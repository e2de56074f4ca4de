//! [`Error`]: what went wrong, in the same kinds for every backend.

use std::fmt;

use crate::SandboxPath;

/// The result of a method of a sandbox.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure that an agent must tell apart; the same in every backend, and the same words as the `code` of
/// the REST interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file, directory, program or user.
    NotFound,
    /// The entry is there and may not be used so: by its mode, or because the path leads out of the workspace.
    PermissionDenied,
    /// A file was needed and a directory is there.
    IsDirectory,
    /// A directory was needed, at the path or above it, and something else is there.
    NotADirectory,
    /// The directory to be removed has entries.
    NotEmpty,
    /// The path is taken.
    AlreadyExists,
    /// The file has another version than the one that was to be replaced, or is gone.
    Stale,
    /// More bytes than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) or than the caller's own limit.
    TooLarge,
    /// The file or the workspace would take more room than it may, or there is none left.
    Quota,
    /// The backend did not answer in time. A *command* that passes its deadline is a result, not this.
    Timeout,
    /// The backend cannot answer: no connection, no container, or it was closed.
    Disconnected,
    /// The request makes no sense as sent.
    Invalid,
    /// The backend cannot do that at all.
    Unsupported,
    /// Too much at once: try again later.
    Busy,
    /// The backend failed.
    Internal,
}

impl ErrorKind {
    /// The kind in the form of [`serde`]: `not_found`, `permission_denied`, ….
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::PermissionDenied => "permission_denied",
            Self::IsDirectory => "is_directory",
            Self::NotADirectory => "not_a_directory",
            Self::NotEmpty => "not_empty",
            Self::AlreadyExists => "already_exists",
            Self::Stale => "stale",
            Self::TooLarge => "too_large",
            Self::Quota => "quota",
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Busy => "busy",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A failure: its kind, the operation and the path it was about, and its cause.
///
/// The text never holds a path of the host; the cause may, and is for logs.
#[derive(Debug, thiserror::Error)]
#[error("{operation}{}: {message}", Place(.path.as_ref()))]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    path: Option<SandboxPath>,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

struct Place<'a>(Option<&'a SandboxPath>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |path| write!(formatter, " `{path}`"))
    }
}

impl Error {
    /// An error of `operation` (the name of the method); `message` says what to do about it where there is something.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        Self { kind, operation, path: None, message: message.into(), source: None }
    }

    /// An error about `path` in the words that all backends share.
    #[must_use]
    pub fn about(kind: ErrorKind, operation: &'static str, path: &SandboxPath) -> Self {
        let message = match kind {
            ErrorKind::NotFound => "does not exist",
            ErrorKind::PermissionDenied => "may not be used so, or leads out of the workspace",
            ErrorKind::IsDirectory => "is a directory",
            ErrorKind::NotADirectory => "is not a directory, or is below something that is none",
            ErrorKind::NotEmpty => "is not empty: remove it with all below it",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::Stale => "has changed since it was read, or is gone: read it again",
            ErrorKind::TooLarge => "has more bytes or entries than may be had at once",
            ErrorKind::Quota => "finds no more room",
            ErrorKind::Timeout => "the answer did not come in time",
            ErrorKind::Disconnected => "the backend is not there to answer",
            ErrorKind::Invalid => "cannot be meant",
            ErrorKind::Unsupported => "is not possible here",
            ErrorKind::Busy => "too much is going on: try again later",
            ErrorKind::Internal => "the backend failed",
        };
        Self::new(kind, operation, message).at(path)
    }

    /// The same about `path`.
    #[must_use]
    pub fn at(mut self, path: &SandboxPath) -> Self {
        self.path = Some(path.clone());
        self
    }

    /// The same because of `source`.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind, upon which an agent acts.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The method that failed.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The path that it was about.
    #[must_use]
    pub fn path(&self) -> Option<&SandboxPath> {
        self.path.as_ref()
    }

    /// One sentence for a person or an agent, without operation and path.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether nothing is there: what most callers ask.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }
}

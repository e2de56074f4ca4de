//! The code of each failure of an operation: the one table, for what answers over HTTP and for what links the service.

use sandbox::{Code, ErrorKind};

use super::Error;
use super::bucket::BucketError;
use crate::audit::Unwritable;

impl Error {
    /// The code of this failure.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) | Self::Id(_) | Self::Scope(_) => Code::Invalid,
            Self::Busy { .. } | Self::Full { .. } | Self::Initialising { .. } => Code::Busy,
            Self::Unsupported(_) => Code::Unsupported,
            Self::Denied(_) => Code::Denied,
            Self::NoRun(_) | Self::NoRunner(_) | Self::NoDevbox(_) => Code::NotFound,
            Self::NameTaken(_) | Self::NotNow(_) | Self::Removed | Self::DevboxAway { .. } => Code::Conflict,
            Self::Gone(_) => Code::Gone,
            Self::RunFailed(_) | Self::Registry(_) | Self::Stopping | Self::PortBroken { .. } => {
                Code::Disconnected
            }
            Self::PortSilent { .. } | Self::Bucket(BucketError::Slow { .. }) => Code::Timeout,
            Self::Bucket(BucketError::Taken { .. }) => Code::AlreadyExists,
            Self::Bucket(_) => Code::Disconnected,
            Self::Path(error) => of_path(error),
            Self::Refused(refusal) => of_refusal(refusal),
            Self::Storage(error) => of_storage(error),
            Self::Exec(error) => of_exec(error),
            Self::Remote { kind, .. } => of_backend(*kind),
            Self::Log(_) | Self::Panicked => Code::Internal,
        }
    }
}

/// The code of a failure of another backend.
fn of_backend(kind: ErrorKind) -> Code {
    Code::try_from(kind).unwrap_or(Code::Internal)
}

/// The code of a path that is none.
#[must_use]
pub fn of_path(error: &policy::PathError) -> Code {
    if error.is_escape() { Code::PathEscape } else { Code::Invalid }
}

/// The code of a command that may not run.
#[must_use]
pub fn of_refusal(refusal: &policy::Refusal) -> Code {
    use policy::Refusal;
    match refusal {
        Refusal::CommandNotAllowed { .. } => Code::CommandNotAllowed,
        Refusal::PathEscape { .. } => Code::PathEscape,
        Refusal::Invalid { .. } => Code::Invalid,
    }
}

/// The code of a failure of the store.
#[must_use]
pub fn of_storage(error: &storage::Error) -> Code {
    use storage::Error as E;
    match error {
        E::NotFound(_) => Code::NotFound,
        E::AlreadyExists(_) => Code::AlreadyExists,
        E::IsDirectory(_) => Code::IsDirectory,
        E::NotADirectory(_) => Code::NotADirectory,
        E::NotAFile(_) => Code::NotAFile,
        E::NotEmpty(_) => Code::NotEmpty,
        E::Conflict(_) => Code::Conflict,
        E::Closed(_) => Code::Denied,
        E::Escape(_) => Code::PathEscape,
        E::Path(error) => of_path(error),
        E::Stale { .. } => Code::Stale,
        E::NotText(_) => Code::NotText,
        E::Unencodable { .. } => Code::Unencodable,
        E::HunkMismatch { .. } | E::EditMismatch { .. } => Code::EditMismatch,
        E::IntoItself { .. } | E::Patch { .. } | E::Pattern { .. } | E::LineRange { .. } => Code::Invalid,
        E::TooLarge { .. } | E::TooManyEntries(_) | E::TooLong { .. } | E::Unpackable { .. } => {
            Code::TooLarge
        }
        E::Archive(_) | E::Damaged(_) => Code::BadArchive,
        E::Quota { .. }
        | E::Full { .. }
        | E::InFlight { .. }
        | E::Countless(_)
        | E::NoSpace(_)
        | E::OverQuota(_) => Code::Quota,
        E::Watches => Code::Busy,
        // Only a service that is stopping answers with it.
        E::Abandoned => Code::Disconnected,
        E::Unsupported(_) => Code::Unsupported,
        E::Io { .. } => Code::Internal,
    }
}

/// The code of a command that could not be run.
#[must_use]
pub fn of_exec(error: &exec::Error) -> Code {
    use exec::Error as E;
    match error {
        E::Unsupported { .. } | E::ProgramMissing { .. } | E::NoProxy { .. } | E::NoPorts { .. } => {
            Code::Unsupported
        }
        E::ProgramNotAllowed { .. } => Code::CommandNotAllowed,
        E::Directory { .. } | E::NothingListens { .. } => Code::NotFound,
        E::TooLarge { .. } => Code::TooLarge,
        E::Unpassable { .. } => Code::Invalid,
        E::ProgramReplaced { .. } => Code::Conflict,
        E::Networks { .. } | E::Processes => Code::Busy,
        E::LauncherDied => Code::Disconnected,
        // Steps of ours that failed; that crate may add some.
        _ => Code::Internal,
    }
}

/// The code of a change that cannot be recorded.
#[must_use]
pub fn of_unwritable(error: &Unwritable) -> Code {
    match error {
        Unwritable::Full | Unwritable::Spent { .. } | Unwritable::Kept => Code::Busy,
        Unwritable::NoSpace => Code::Quota,
        Unwritable::Failing | Unwritable::Late => Code::Disconnected,
    }
}

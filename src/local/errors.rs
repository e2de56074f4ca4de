//! Failures of the service as kinds of errors: the one table. It agrees with the codes of the routes.

use sandbox::{Error, ErrorKind, SandboxPath};

use crate::audit::Unwritable;
use crate::ops;
use crate::ops::bucket::BucketError;

/// A failure of `operation`. The causes of what is our own fault stay causes, for logs.
pub(super) fn of(operation: &'static str, error: ops::Error) -> Error {
    let kind = kind(&error);
    let message = match kind {
        ErrorKind::Internal => "the service failed".to_owned(),
        _ => error.to_string(),
    };
    Error::new(kind, operation, message).because(error)
}

/// The same about `path`.
pub(super) fn at(operation: &'static str, path: &SandboxPath, error: ops::Error) -> Error {
    of(operation, error).at(path)
}

/// A change that cannot be recorded.
pub(super) fn unwritable(operation: &'static str, error: Unwritable) -> Error {
    let kind = match error {
        Unwritable::Full | Unwritable::Spent { .. } | Unwritable::Kept => ErrorKind::Busy,
        Unwritable::NoSpace => ErrorKind::Quota,
        Unwritable::Failing | Unwritable::Late => ErrorKind::Disconnected,
    };
    Error::new(kind, operation, error.to_string()).because(error)
}

/// Tells whether a failure of this kind comes before anything is changed.
pub(super) fn is_refusal(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Internal | ErrorKind::Disconnected | ErrorKind::Timeout)
}

fn kind(error: &ops::Error) -> ErrorKind {
    use ops::Error as E;
    match error {
        E::Invalid(_) | E::Id(_) | E::Scope(_) => ErrorKind::Invalid,
        E::Busy { .. }
        | E::Full { .. }
        | E::NameTaken(_)
        | E::NotNow(_)
        | E::Removed
        | E::DevboxAway { .. }
        | E::Initialising { .. } => ErrorKind::Busy,
        E::Unsupported(_) => ErrorKind::Unsupported,
        E::NoRun(_) | E::NoRunner(_) | E::NoDevbox(_) | E::Gone(_) => ErrorKind::NotFound,
        E::Stopping | E::RunFailed(_) | E::Registry(_) | E::PortBroken { .. } => ErrorKind::Disconnected,
        E::PortSilent { .. } | E::Bucket(BucketError::Slow { .. }) => ErrorKind::Timeout,
        E::Bucket(BucketError::Taken { .. }) => ErrorKind::AlreadyExists,
        E::Bucket(_) => ErrorKind::Disconnected,
        E::Path(error) => of_path(error),
        E::Refused(refusal) => of_refusal(refusal),
        E::Storage(error) => of_storage(error),
        E::Exec(error) => of_exec(error),
        E::Remote { kind, .. } => *kind,
        E::Log(_) | E::Panicked => ErrorKind::Internal,
    }
}

fn of_path(error: &policy::PathError) -> ErrorKind {
    if error.is_escape() { ErrorKind::PermissionDenied } else { ErrorKind::Invalid }
}

fn of_refusal(refusal: &policy::Refusal) -> ErrorKind {
    use policy::Refusal;
    match refusal {
        // The service offers a list of programs: one that is not on it is not there.
        Refusal::CommandNotAllowed { .. } => ErrorKind::NotFound,
        Refusal::PathEscape { .. } => ErrorKind::PermissionDenied,
        Refusal::Invalid { .. } => ErrorKind::Invalid,
    }
}

fn of_storage(error: &storage::Error) -> ErrorKind {
    use storage::Error as E;
    match error {
        E::NotFound(_) => ErrorKind::NotFound,
        // Sent as a condition only by `WriteMode::Create`: nothing was to be there.
        E::AlreadyExists(_) | E::Stale { .. } => ErrorKind::AlreadyExists,
        E::IsDirectory(_) => ErrorKind::IsDirectory,
        E::NotADirectory(_) => ErrorKind::NotADirectory,
        E::NotEmpty(_) => ErrorKind::NotEmpty,
        E::NotAFile(_) | E::Closed(_) | E::Escape(_) => ErrorKind::PermissionDenied,
        E::Path(error) => of_path(error),
        E::Conflict(_) | E::Watches => ErrorKind::Busy,
        E::IntoItself { .. }
        | E::NotText(_)
        | E::Unencodable { .. }
        | E::HunkMismatch { .. }
        | E::EditMismatch { .. }
        | E::Patch { .. }
        | E::Pattern { .. }
        | E::LineRange { .. }
        | E::Archive(_)
        | E::Damaged(_) => ErrorKind::Invalid,
        E::TooLarge { .. } | E::TooManyEntries(_) | E::TooLong { .. } | E::Unpackable { .. } => {
            ErrorKind::TooLarge
        }
        E::Abandoned => ErrorKind::Disconnected,
        E::Quota { .. }
        | E::Full { .. }
        | E::InFlight { .. }
        | E::Countless(_)
        | E::NoSpace(_)
        | E::OverQuota(_) => ErrorKind::Quota,
        E::Unsupported(_) => ErrorKind::Unsupported,
        E::Io { .. } => ErrorKind::Internal,
    }
}

fn of_exec(error: &exec::Error) -> ErrorKind {
    use exec::Error as E;
    match error {
        E::Unsupported { .. } | E::ProgramMissing { .. } | E::NoProxy { .. } => ErrorKind::Unsupported,
        E::ProgramNotAllowed { .. } | E::Directory { .. } => ErrorKind::NotFound,
        E::TooLarge { .. } => ErrorKind::TooLarge,
        E::Unpassable { .. } => ErrorKind::Invalid,
        E::LauncherDied | E::ProgramReplaced { .. } => ErrorKind::Disconnected,
        // Steps of ours that failed; that crate may add some.
        _ => ErrorKind::Internal,
    }
}

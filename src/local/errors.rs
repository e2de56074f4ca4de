//! Failures of the service as errors of a sandbox: the kind is that of the code that a route answers with ([`ops::code`]).

use sandbox::{Error, ErrorKind, SandboxPath};

use crate::audit::Unwritable;
use crate::ops;
use crate::ops::code;

/// A failure of `operation`. The causes of what is our own fault stay causes, for logs.
pub(super) fn of(operation: &'static str, error: ops::Error) -> Error {
    let kind = error.code().kind();
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
    let kind = code::of_unwritable(&error).kind();
    Error::new(kind, operation, error.to_string()).because(error)
}

/// Tells whether a failure of this kind comes before anything is changed.
pub(super) fn is_refusal(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Internal | ErrorKind::Disconnected | ErrorKind::Timeout)
}

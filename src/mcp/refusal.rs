//! Failures as errors of the protocol: the code of the service is `data.code`.

use std::error::Error as _;

use rmcp::ErrorData;
use sandbox::{Code, ErrorKind};
use serde_json::{Map, Value, json};

use crate::audit::Unwritable;
use crate::ops::Error;
use crate::ops::code::of_unwritable;

/// A failure of an operation.
///
/// The cause of one of ours goes to the log.
pub(super) fn of(error: &Error) -> ErrorData {
    if error.code() == Code::Internal {
        tracing::error!(%error, cause = error.source(), "an MCP request failed");
        let message = "the service failed: the operator finds the cause in the log";
        return internal(Code::Internal, message.to_owned(), None);
    }
    let retry_seconds = match error {
        Error::Busy { retry_after_seconds, .. } | Error::Full { retry_after_seconds, .. } => {
            Some(*retry_after_seconds)
        }
        _ => None,
    };
    internal(error.code(), error.to_string(), retry_seconds)
}

/// A failure of a sandbox, in its own words.
pub(super) fn of_sandbox(kind: ErrorKind, message: &str) -> ErrorData {
    internal(Code::try_from(kind).unwrap_or(Code::Internal), message.to_owned(), None)
}

/// A change that cannot be recorded.
pub(super) fn unwritable(error: Unwritable) -> ErrorData {
    let retry_seconds = match error {
        Unwritable::Full => Some(1),
        Unwritable::Spent { seconds } => Some(seconds),
        _ => None,
    };
    internal(of_unwritable(&error), error.to_string(), retry_seconds)
}

/// A call that ends because the service does.
pub(super) fn stopping() -> ErrorData {
    let message = "the service is stopping: try again when it is back, and look at what the call has done";
    ErrorData::internal_error(message, Some(json!({ "code": "stopping" })))
}

/// A call whose caller has left. Nobody reads it.
pub(super) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", Some(json!({ "code": "cancelled" })))
}

/// A resource that is not there for this caller.
pub(super) fn no_resource(uri: &str) -> ErrorData {
    let message = "there is no such resource: list them with resources/list";
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

/// A directory that is not there for this caller.
pub(super) fn no_directory(uri: &str) -> ErrorData {
    let message = "there is no such directory: list what there is with resources/list";
    ErrorData::invalid_params(message, Some(json!({ "code": Code::NotFound.word(), "uri": uri })))
}

/// A tree that cannot be watched any longer.
pub(super) fn unwatched(reason: &str) -> ErrorData {
    let message = format!(
        "the files cannot be watched any longer ({reason}): read what is needed again, then listen again"
    );
    internal(Code::Disconnected, message, None)
}

/// A request that makes no sense.
pub(super) fn invalid(message: impl Into<String>) -> ErrorData {
    ErrorData::invalid_params(message.into(), Some(json!({ "code": Code::Invalid.word() })))
}

fn internal(code: Code, message: String, retry_seconds: Option<u64>) -> ErrorData {
    let mut data = Map::from_iter([("code".to_owned(), Value::from(code.word()))]);
    if let Some(seconds) = retry_seconds {
        data.insert("retry_after_ms".to_owned(), seconds.saturating_mul(1000).into());
    }
    ErrorData::internal_error(message, Some(Value::Object(data)))
}

//! [`Problem`]: every failure as its sender sees it. The one table of codes and statuses.

use std::any::Any;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use sandbox::ErrorKind;
use serde_json::{Map, Value, json};

use super::request_log;
use crate::access::Refused;
use crate::audit::Unwritable;
use crate::ops::Error;
use crate::ops::bucket::BucketError;
use crate::ops::write::Unwritten;

/// The code of a failure, a word that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Invalid,
    Unauthenticated,
    Denied,
    PathEscape,
    CommandNotAllowed,
    NotFound,
    MethodNotAllowed,
    AlreadyExists,
    IsDirectory,
    NotADirectory,
    NotAFile,
    NotEmpty,
    NotText,
    EditMismatch,
    Unencodable,
    Conflict,
    Gone,
    Stale,
    TooLarge,
    RangeNotSatisfiable,
    BadArchive,
    Busy,
    Quota,
    Internal,
    Unsupported,
    Disconnected,
    Timeout,
    TooSlow,
    UnsupportedMedia,
}

impl Code {
    /// Every code.
    pub(super) const ALL: [Self; 29] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Denied,
        Self::PathEscape,
        Self::CommandNotAllowed,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::AlreadyExists,
        Self::IsDirectory,
        Self::NotADirectory,
        Self::NotAFile,
        Self::NotEmpty,
        Self::NotText,
        Self::EditMismatch,
        Self::Unencodable,
        Self::Conflict,
        Self::Gone,
        Self::Stale,
        Self::TooLarge,
        Self::RangeNotSatisfiable,
        Self::BadArchive,
        Self::Busy,
        Self::Quota,
        Self::Internal,
        Self::Unsupported,
        Self::Disconnected,
        Self::Timeout,
        Self::TooSlow,
        Self::UnsupportedMedia,
    ];

    /// The status of the code that is spelled so.
    pub(super) fn status_of(word: &str) -> Option<StatusCode> {
        Self::ALL.into_iter().map(Self::row).find(|row| row.0 == word).map(|row| row.1)
    }

    /// The word and the status of each code.
    pub(super) fn row(self) -> (&'static str, StatusCode) {
        match self {
            Self::Invalid => ("invalid", StatusCode::BAD_REQUEST),
            Self::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Self::Denied => ("denied", StatusCode::FORBIDDEN),
            Self::PathEscape => ("path_escape", StatusCode::FORBIDDEN),
            Self::CommandNotAllowed => ("command_not_allowed", StatusCode::FORBIDDEN),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Self::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
            Self::AlreadyExists => ("already_exists", StatusCode::CONFLICT),
            Self::IsDirectory => ("is_directory", StatusCode::CONFLICT),
            Self::NotADirectory => ("not_a_directory", StatusCode::CONFLICT),
            Self::NotAFile => ("not_a_file", StatusCode::CONFLICT),
            Self::NotEmpty => ("not_empty", StatusCode::CONFLICT),
            Self::NotText => ("not_text", StatusCode::CONFLICT),
            Self::EditMismatch => ("edit_mismatch", StatusCode::CONFLICT),
            Self::Unencodable => ("unencodable", StatusCode::CONFLICT),
            Self::Conflict => ("conflict", StatusCode::CONFLICT),
            Self::Gone => ("gone", StatusCode::GONE),
            Self::Stale => ("stale", StatusCode::PRECONDITION_FAILED),
            Self::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::RangeNotSatisfiable => ("range_not_satisfiable", StatusCode::RANGE_NOT_SATISFIABLE),
            Self::BadArchive => ("bad_archive", StatusCode::UNPROCESSABLE_ENTITY),
            Self::Busy => ("busy", StatusCode::TOO_MANY_REQUESTS),
            Self::Quota => ("quota", StatusCode::INSUFFICIENT_STORAGE),
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
            Self::Unsupported => ("unsupported", StatusCode::NOT_IMPLEMENTED),
            Self::Disconnected => ("disconnected", StatusCode::SERVICE_UNAVAILABLE),
            Self::Timeout => ("timeout", StatusCode::GATEWAY_TIMEOUT),
            Self::TooSlow => ("too_slow", StatusCode::REQUEST_TIMEOUT),
            Self::UnsupportedMedia => ("unsupported_media", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        }
    }
}

/// Goes with the answer to a request that failed: its code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed(pub(super) &'static str);

/// Goes with it too: its sentence, for dialects that have another envelope.
#[derive(Clone, Debug)]
pub(super) struct Sentence(pub(super) String);

/// A failure on its way to the sender.
///
/// The body is `{"status":"error","data":<one sentence>,"code":<code>,…extras,"request_id":<id>}`; the same id is
/// in the header `x-request-id` and, for failures of ours, in the log.
#[derive(Debug)]
pub(super) struct Problem {
    code: Code,
    message: String,
    extras: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), extras: Map::new(), headers: Vec::new() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    pub(super) fn too_large(what: &str, limit: u64) -> Self {
        Self::new(Code::TooLarge, format!("{what} is larger than {limit} bytes")).with("limit_bytes", limit)
    }

    pub(super) fn busy(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        Self::new(Code::Busy, message)
            .with("retry_after_seconds", retry_after_seconds)
            .with_header(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds))
    }

    /// Adds a typed detail beside the sentence.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extras.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.push((name, value));
        }
        self
    }

    /// The code and the sentence, for a failure that is told within an answer; a cause of ours goes to the log.
    pub(super) fn into_words(mut self) -> (&'static str, String) {
        if let Some(cause) = self.extras.remove("cause_for_log") {
            let request_id = request_log::request_id();
            tracing::error!(%request_id, cause = cause.as_str().unwrap_or_default(), "request failed");
        }
        (self.code.row().0, self.message)
    }

    /// A failure of ours: the cause goes to the log, the sender learns the id to ask for it.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            causes.push_str(": ");
            causes.push_str(&inner.to_string());
            cause = inner.source();
        }
        let message = "the service failed: the operator finds the cause in the log under this `request_id`";
        Self::new(Code::Internal, message).with("cause_for_log", causes)
    }
}

/// The code of a failure of another backend; none for a fault of the backend alone.
fn of_backend(kind: ErrorKind) -> Option<Code> {
    match kind {
        ErrorKind::NotFound => Some(Code::NotFound),
        ErrorKind::PermissionDenied => Some(Code::Denied),
        ErrorKind::IsDirectory => Some(Code::IsDirectory),
        ErrorKind::NotADirectory => Some(Code::NotADirectory),
        ErrorKind::NotEmpty => Some(Code::NotEmpty),
        ErrorKind::AlreadyExists => Some(Code::AlreadyExists),
        ErrorKind::TooLarge => Some(Code::TooLarge),
        ErrorKind::Quota => Some(Code::Quota),
        ErrorKind::Timeout => Some(Code::Timeout),
        ErrorKind::Disconnected => Some(Code::Disconnected),
        ErrorKind::Invalid => Some(Code::Invalid),
        ErrorKind::Unsupported => Some(Code::Unsupported),
        ErrorKind::Busy => Some(Code::Busy),
        // Kinds that a later version adds, too.
        _ => None,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Invalid(_) | Error::Id(_) | Error::Scope(_) => Self::invalid(message),
            Error::Busy { retry_after_seconds, .. } | Error::Full { retry_after_seconds, .. } => {
                Self::busy(message, retry_after_seconds)
            }
            Error::Initialising { retry_after_seconds, .. } => {
                Self::busy(message, retry_after_seconds).with("initialising", true)
            }
            Error::Unsupported(_) => Self::new(Code::Unsupported, message),
            Error::NoRun(_) | Error::NoRunner(_) | Error::NoDevbox(_) => Self::new(Code::NotFound, message),
            Error::NameTaken(_) | Error::NotNow(_) | Error::Removed | Error::DevboxAway { .. } => {
                Self::new(Code::Conflict, message)
            }
            Error::Gone(first) => Self::new(Code::Gone, message).with("first_seq", first),
            Error::RunFailed(_) => Self::new(Code::Disconnected, message),
            Error::Registry(_) => {
                Self::new(Code::Disconnected, message).with_header(header::RETRY_AFTER, "5")
            }
            Error::Stopping => Self::new(Code::Disconnected, message).with_header(header::RETRY_AFTER, "5"),
            Error::Bucket(BucketError::Taken { .. }) => Self::new(Code::AlreadyExists, message),
            Error::Bucket(BucketError::Slow { .. }) => Self::new(Code::Timeout, message),
            Error::Bucket(_) => Self::new(Code::Disconnected, message).with_header(header::RETRY_AFTER, "5"),
            Error::PortSilent { .. } => Self::new(Code::Timeout, message),
            Error::PortBroken { .. } => Self::new(Code::Disconnected, message),
            Error::Path(error) => error.into(),
            Error::Refused(refusal) => refusal.into(),
            Error::Storage(error) => error.into(),
            Error::Exec(error) => error.into(),
            Error::Remote { kind, .. } => match of_backend(kind) {
                Some(Code::Busy) => Self::busy(message, 1),
                Some(code @ Code::Disconnected) => {
                    Self::new(code, message).with_header(header::RETRY_AFTER, "5")
                }
                Some(code) => Self::new(code, message),
                None => Self::internal(&error),
            },
            Error::Log(_) | Error::Panicked => Self::internal(&error),
        }
    }
}

impl From<Unwritten<Self>> for Problem {
    fn from(unwritten: Unwritten<Self>) -> Self {
        match unwritten {
            Unwritten::Sender(problem) => problem,
            Unwritten::Service(error) => error.into(),
        }
    }
}

impl From<policy::PathError> for Problem {
    fn from(error: policy::PathError) -> Self {
        let code = if error.is_escape() { Code::PathEscape } else { Code::Invalid };
        Self::new(code, error.to_string())
    }
}

impl From<policy::IdError> for Problem {
    fn from(error: policy::IdError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<policy::Refusal> for Problem {
    fn from(refusal: policy::Refusal) -> Self {
        use policy::Refusal;
        let message = refusal.to_string();
        match refusal {
            Refusal::CommandNotAllowed { allowed, .. } => {
                Self::new(Code::CommandNotAllowed, message).with("allowed", allowed)
            }
            Refusal::PathEscape { argument, position, .. } => Self::new(Code::PathEscape, message)
                .with("argument", argument)
                .with("position", position.map_or(Value::Null, Value::from)),
            Refusal::Invalid { .. } => Self::invalid(message),
        }
    }
}

impl From<storage::Error> for Problem {
    fn from(error: storage::Error) -> Self {
        use storage::Error as E;
        let message = error.to_string();
        match error {
            E::NotFound(_) => Self::new(Code::NotFound, message),
            E::AlreadyExists(_) => Self::new(Code::AlreadyExists, message),
            E::IsDirectory(_) => Self::new(Code::IsDirectory, message),
            E::NotADirectory(_) => Self::new(Code::NotADirectory, message),
            E::NotAFile(_) => Self::new(Code::NotAFile, message),
            E::NotEmpty(_) => Self::new(Code::NotEmpty, message),
            E::Conflict(_) => Self::new(Code::Conflict, message),
            E::Closed(_) => Self::new(Code::Denied, message),
            E::Escape(_) => Self::new(Code::PathEscape, message),
            E::IntoItself { .. } => Self::invalid(message),
            E::Path(error) => error.into(),
            E::Stale { current, .. } => {
                let etag = current.map_or(Value::Null, |etag| Value::from(etag.to_string()));
                Self::new(Code::Stale, message).with("current_etag", etag)
            }
            E::NotText(_) => Self::new(Code::NotText, message),
            E::Unencodable { encoding, character, line, .. } => Self::new(Code::Unencodable, message)
                .with("encoding", encoding.to_string())
                .with("character", character.to_string())
                .with("line", line),
            E::HunkMismatch { hunk, line, found, nearest, .. } => Self::new(Code::EditMismatch, message)
                .with("hunk", hunk)
                .with("line", line)
                .with("found", found)
                .with("expected", 1)
                .with("nearest_line", nearest.map_or(Value::Null, Value::from)),
            E::Patch { line, .. } => Self::invalid(message).with("line", line),
            E::Pattern { .. } => Self::invalid(message),
            E::LineRange { total, .. } => Self::invalid(message).with("total_lines", total),
            E::EditMismatch { index, found, expected, nearest, .. } => Self::new(Code::EditMismatch, message)
                .with("edit", index)
                .with("found", found)
                .with("expected", expected)
                .with("nearest_line", nearest.map_or(Value::Null, Value::from)),
            E::TooLarge { limit, .. } => Self::new(Code::TooLarge, message).with("limit_bytes", limit),
            E::TooManyEntries(limit) => Self::new(Code::TooLarge, message).with("limit_entries", limit),
            E::Archive(_) | E::Damaged(_) => Self::new(Code::BadArchive, message),
            E::Quota { setting, unit, used, limit, needs, .. } => Self::new(Code::Quota, message)
                .with("limit", setting)
                .with(&format!("used_{unit}"), used)
                .with(&format!("limit_{unit}"), limit)
                .with(&format!("needed_{unit}"), needs),
            E::Full { free, floor } => Self::new(Code::Quota, message)
                .with("limit", "limits.disk.free_bytes")
                .with("free_bytes", free)
                .with("limit_bytes", floor),
            E::InFlight { used, needs, limit } => Self::new(Code::Quota, message)
                .with("limit", "limits.disk.in_flight_bytes")
                .with("used_bytes", used)
                .with("limit_bytes", limit)
                .with("needed_bytes", needs),
            E::Unpackable { limit, .. } => Self::new(Code::TooLarge, message).with("limit_bytes", limit),
            E::Countless(_) => Self::new(Code::Quota, message).with("limit", "limits.disk.files"),
            E::NoSpace(_) | E::OverQuota(_) => Self::new(Code::Quota, message),
            E::Watches => Self::busy(message, 30),
            // Only a service that is stopping answers with it.
            E::Abandoned => Self::new(Code::Disconnected, message),
            E::TooLong { seconds } => Self::new(Code::TooLarge, message).with("limit_seconds", seconds),
            E::Unsupported(_) => Self::new(Code::Unsupported, message),
            E::Io { .. } => Self::internal(&error),
        }
    }
}

impl From<exec::Error> for Problem {
    fn from(error: exec::Error) -> Self {
        use exec::Error as E;
        let message = error.to_string();
        match error {
            E::Unsupported { wanted, granted, .. } => Self::new(Code::Unsupported, message)
                .with("wanted", wanted.to_string())
                .with("granted", granted.to_string()),
            E::ProgramMissing { .. } | E::NoProxy { .. } | E::NoPorts { .. } => {
                Self::new(Code::Unsupported, message)
            }
            E::ProgramNotAllowed { .. } => Self::new(Code::CommandNotAllowed, message),
            E::Directory { .. } | E::NothingListens { .. } => Self::new(Code::NotFound, message),
            E::TooLarge { limit, .. } => Self::new(Code::TooLarge, message).with("limit_bytes", limit),
            E::Unpassable { .. } => Self::invalid(message),
            E::ProgramReplaced { .. } => Self::new(Code::Conflict, message),
            E::Networks { .. } => Self::busy(message, 1),
            E::LauncherDied => Self::new(Code::Disconnected, message).with_header(header::RETRY_AFTER, "1"),
            other => Self::internal(&other),
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        request_log::refused();
        match refused {
            Refused::Unauthenticated => {
                Self::new(Code::Unauthenticated, "send a valid token: `Authorization: Bearer <token>`")
                    .with_header(header::WWW_AUTHENTICATE, "Bearer")
            }
            Refused::Denied => Self::new(Code::Denied, "this token's role may not do that"),
            Refused::Hidden => Self::new(Code::NotFound, "there is nothing here for this token"),
        }
    }
}

impl From<Unwritable> for Problem {
    fn from(error: Unwritable) -> Self {
        let message = error.to_string();
        match error {
            Unwritable::Full => Self::busy(message, 1),
            Unwritable::Spent { seconds } => Self::busy(message, seconds),
            Unwritable::Kept => Self::busy(message, 3600),
            Unwritable::NoSpace => Self::new(Code::Quota, message).with("limit", "audit"),
            Unwritable::Failing | Unwritable::Late => {
                Self::new(Code::Disconnected, message).with_header(header::RETRY_AFTER, "5")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let (code, status) = self.code.row();
        let request_id = request_log::request_id();
        if let Some(cause) = self.extras.remove("cause_for_log") {
            tracing::error!(%request_id, cause = cause.as_str().unwrap_or_default(), "request failed");
        }
        let mut body = json!({ "status": "error", "data": &self.message, "code": code });
        if let Some(body) = body.as_object_mut() {
            body.append(&mut self.extras);
            body.insert("request_id".to_owned(), Value::from(request_id.clone()));
        }
        let mut response = (status, Json(body)).into_response();
        response.extensions_mut().insert(Failed(code));
        response.extensions_mut().insert(Sentence(self.message));
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        if let Ok(value) = HeaderValue::try_from(request_id) {
            response.headers_mut().insert(request_log::REQUEST_ID, value);
        }
        response
    }
}

pub(super) async fn no_route(uri: Uri) -> Problem {
    Problem::new(Code::NotFound, format!("there is no route `{}`: see docs/API.md", uri.path()))
}

pub(super) async fn no_method(method: Method, uri: Uri) -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        format!("`{method}` is not possible on `{}`: see the header `Allow`", uri.path()),
    )
}

/// The answer on a connection that is one too many.
pub(super) fn too_many_connections() -> Problem {
    let seconds = 1;
    let message = format!("too many connections: try again in {seconds} s, or use one for several requests");
    Problem::busy(message, seconds).with_header(header::CONNECTION, "close")
}

pub(super) fn panicked(_panic: Box<dyn Any + Send + 'static>) -> Response {
    Problem::internal(&Error::Panicked).into_response()
}

//! [`Problem`]: every failure as its sender sees it.

use std::any::Any;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
pub(in crate::http) use sandbox::Code;
use serde_json::{Map, Value, json};

use crate::access::Refused;
use crate::audit::Unwritable;
use crate::http::answer::status;
use crate::http::request_log;
use crate::ops::Error;
use crate::ops::code;
use crate::ops::write::Unwritten;

/// Goes with the answer to a request that failed: its code.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Failed(pub(in crate::http) &'static str);

/// Goes with it too: its sentence, for dialects that have another envelope.
#[derive(Clone, Debug)]
pub(in crate::http) struct Sentence(pub(in crate::http) String);

/// A failure on its way to the sender.
///
/// The body is `{"status":"error","data":<one sentence>,"code":<code>,…extras,"request_id":<id>}`; the same id is
/// in the header `x-request-id` and, for failures of ours, in the log.
#[derive(Debug)]
pub(in crate::http) struct Problem {
    code: Code,
    message: String,
    extras: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(in crate::http) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), extras: Map::new(), headers: Vec::new() }
    }

    pub(in crate::http) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    pub(in crate::http) fn too_large(what: &str, limit: u64) -> Self {
        Self::new(Code::TooLarge, format!("{what} is larger than {limit} bytes")).with("limit_bytes", limit)
    }

    pub(in crate::http) fn busy(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        Self::new(Code::Busy, message).after(retry_after_seconds)
    }

    /// Says when to try again.
    fn after(self, seconds: u64) -> Self {
        self.with("retry_after_seconds", seconds).with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Adds a typed detail beside the sentence.
    pub(in crate::http) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extras.insert(name.to_owned(), value.into());
        self
    }

    pub(in crate::http) fn with_header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.push((name, value));
        }
        self
    }

    /// The code and the sentence, for a failure that is told within an answer; a cause of ours goes to the log.
    pub(in crate::http) fn into_words(mut self) -> (&'static str, String) {
        if let Some(cause) = self.extras.remove("cause_for_log") {
            let request_id = request_log::request_id();
            tracing::error!(%request_id, cause = cause.as_str().unwrap_or_default(), "request failed");
        }
        (self.code.word(), self.message)
    }

    /// A failure of ours: the cause goes to the log, the sender learns the id to ask for it.
    pub(in crate::http) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
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

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (code, message) = (error.code(), error.to_string());
        match error {
            Error::Path(error) => error.into(),
            Error::Refused(refusal) => refusal.into(),
            Error::Storage(error) => error.into(),
            Error::Exec(error) => error.into(),
            error if code == Code::Internal => Self::internal(&error),
            Error::Busy { retry_after_seconds, .. } | Error::Full { retry_after_seconds, .. } => {
                Self::busy(message, retry_after_seconds)
            }
            Error::Initialising { retry_after_seconds, .. } => {
                Self::busy(message, retry_after_seconds).with("initialising", true)
            }
            Error::Gone(first) => Self::new(code, message).with("first_seq", first),
            Error::Remote { .. } if code == Code::Busy => Self::busy(message, 1),
            Error::Registry(_) | Error::Stopping | Error::Bucket(_) | Error::Remote { .. }
                if code == Code::Disconnected =>
            {
                Self::new(code, message).with_header(header::RETRY_AFTER, "5")
            }
            _ => Self::new(code, message),
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
        Self::new(code::of_path(&error), error.to_string())
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
        let problem = Self::new(code::of_refusal(&refusal), refusal.to_string());
        match refusal {
            Refusal::CommandNotAllowed { allowed, .. } => problem.with("allowed", allowed),
            Refusal::PathEscape { argument, position, .. } => {
                problem.with("argument", argument).with("position", position.map_or(Value::Null, Value::from))
            }
            Refusal::Invalid { .. } => problem,
        }
    }
}

impl From<storage::Error> for Problem {
    fn from(error: storage::Error) -> Self {
        use storage::Error as E;
        let problem = Self::new(code::of_storage(&error), error.to_string());
        match error {
            E::Path(error) => error.into(),
            E::Stale { current, .. } => {
                let etag = current.map_or(Value::Null, |etag| Value::from(etag.to_string()));
                problem.with("current_etag", etag)
            }
            E::Unencodable { encoding, character, line, .. } => problem
                .with("encoding", encoding.to_string())
                .with("character", character.to_string())
                .with("line", line),
            E::HunkMismatch { hunk, line, found, nearest, .. } => problem
                .with("hunk", hunk)
                .with("line", line)
                .with("found", found)
                .with("expected", 1)
                .with("nearest_line", nearest.map_or(Value::Null, Value::from)),
            E::Patch { line, .. } => problem.with("line", line),
            E::LineRange { total, .. } => problem.with("total_lines", total),
            E::EditMismatch { index, found, expected, nearest, .. } => problem
                .with("edit", index)
                .with("found", found)
                .with("expected", expected)
                .with("nearest_line", nearest.map_or(Value::Null, Value::from)),
            E::TooLarge { limit, .. } | E::Unpackable { limit, .. } => problem.with("limit_bytes", limit),
            E::TooManyEntries(limit) => problem.with("limit_entries", limit),
            E::TooLong { seconds } => problem.with("limit_seconds", seconds),
            E::Quota { setting, unit, used, limit, needs, .. } => problem
                .with("limit", setting)
                .with(&format!("used_{unit}"), used)
                .with(&format!("limit_{unit}"), limit)
                .with(&format!("needed_{unit}"), needs),
            E::Full { free, floor } => problem
                .with("limit", "limits.disk.free_bytes")
                .with("free_bytes", free)
                .with("limit_bytes", floor),
            E::InFlight { used, needs, limit } => problem
                .with("limit", "limits.disk.in_flight_bytes")
                .with("used_bytes", used)
                .with("limit_bytes", limit)
                .with("needed_bytes", needs),
            E::Countless(_) => problem.with("limit", "limits.disk.files"),
            E::Watches => problem.after(30),
            E::Io { .. } => Self::internal(&error),
            _ => problem,
        }
    }
}

impl From<exec::Error> for Problem {
    fn from(error: exec::Error) -> Self {
        use exec::Error as E;
        let problem = Self::new(code::of_exec(&error), error.to_string());
        match error {
            E::Unsupported { wanted, granted, .. } => {
                problem.with("wanted", wanted.to_string()).with("granted", granted.to_string())
            }
            E::TooLarge { limit, .. } => problem.with("limit_bytes", limit),
            E::Networks { .. } | E::Processes => problem.after(1),
            E::LauncherDied => problem.with_header(header::RETRY_AFTER, "1"),
            other if problem.code == Code::Internal => Self::internal(&other),
            _ => problem,
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
        let problem = Self::new(code::of_unwritable(&error), error.to_string());
        match error {
            Unwritable::Full => problem.after(1),
            Unwritable::Spent { seconds } => problem.after(seconds),
            Unwritable::Kept => problem.after(3600),
            Unwritable::NoSpace => problem.with("limit", "audit"),
            Unwritable::Failing | Unwritable::Late => problem.with_header(header::RETRY_AFTER, "5"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let (code, status) = (self.code.word(), status::of(self.code));
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

pub(in crate::http) async fn no_route(uri: Uri) -> Problem {
    Problem::new(Code::NotFound, format!("there is no route `{}`: see docs/API.md", uri.path()))
}

pub(in crate::http) async fn no_method(method: Method, uri: Uri) -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        format!("`{method}` is not possible on `{}`: see the header `Allow`", uri.path()),
    )
}

/// The answer on a connection that is one too many.
pub(in crate::http) fn too_many_connections() -> Problem {
    let seconds = 1;
    let message = format!("too many connections: try again in {seconds} s, or use one for several requests");
    Problem::busy(message, seconds).with_header(header::CONNECTION, "close")
}

pub(in crate::http) fn panicked(_panic: Box<dyn Any + Send + 'static>) -> Response {
    Problem::internal(&Error::Panicked).into_response()
}

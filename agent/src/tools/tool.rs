//! [`Tool`]: something that a model can call, what it acts on, and how it is answered.

use std::fmt::{self, Debug};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Search, Session, truncate};
use sandbox::{Error, ErrorKind, Sandbox, SandboxPathError};

/// The sandbox and session that a call acts on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Where files and commands are.
    pub sandbox: &'a dyn Sandbox,
    /// The user of the call, and the state that lasts between calls.
    pub session: &'a Session,
    /// How *Glob* and *Grep* look for files.
    pub search: Search,
}

impl<'a> Context<'a> {
    /// A call in `session`, which searches with the sandbox's programs where it has them.
    #[must_use]
    pub fn new(sandbox: &'a dyn Sandbox, session: &'a Session) -> Self {
        Self { sandbox, session, search: Search::default() }
    }
}

/// The answer that a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text.
    pub text: String,
    /// Whether the call was refused or could not be done. A command that fails is a result.
    pub is_error: bool,
    /// The same as data, by [`Tool::data_schema`]; nothing of a tool that has none, and of an error.
    pub data: Option<Value>,
}

/// The result of a call: text for a model, and the same as data for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The text.
    pub text: String,
    /// The data, by [`Tool::data_schema`].
    pub data: Option<Value>,
}

/// Why a call was not done: one sentence for the model, which says what to do where there is something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Refusal {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let place = error.path().map(|path| format!(": {path}")).unwrap_or_default();
        let what = match error.kind() {
            ErrorKind::NotFound => "no such file or directory".to_owned(),
            ErrorKind::PermissionDenied => "permission denied".to_owned(),
            ErrorKind::IsDirectory => "it is a directory".to_owned(),
            ErrorKind::NotADirectory => "not a directory".to_owned(),
            ErrorKind::NotEmpty => "the directory is not empty".to_owned(),
            ErrorKind::AlreadyExists => "it already exists".to_owned(),
            ErrorKind::Stale => "it was changed meanwhile: read it again".to_owned(),
            ErrorKind::TooLarge => "the file is too large".to_owned(),
            ErrorKind::Quota => "there is no room left".to_owned(),
            ErrorKind::Timeout => "the sandbox did not answer in time: try again".to_owned(),
            ErrorKind::Disconnected => "the sandbox is not connected: try again later".to_owned(),
            ErrorKind::Busy => "the sandbox is busy: try again later".to_owned(),
            ErrorKind::Unsupported => "this sandbox cannot do that".to_owned(),
            // The backend's own words say which part of the request is meant.
            ErrorKind::Invalid => error.message().to_owned(),
            // `Internal`, and kinds that this crate does not know yet.
            _ => "the sandbox failed".to_owned(),
        };
        Self(format!("{what}{place}"))
    }
}

impl From<SandboxPathError> for Refusal {
    fn from(error: SandboxPathError) -> Self {
        Self(error.to_string())
    }
}

/// Something a model can call.
#[async_trait]
pub trait Tool: Debug + Send + Sync {
    /// The name by which the model calls it.
    fn name(&self) -> &'static str;

    /// Its purpose and use, for the model.
    fn description(&self) -> &'static str;

    /// The JSON schema of its arguments, an object.
    fn parameters(&self) -> Value;

    /// Does it; `arguments` is a JSON object by that schema.
    ///
    /// # Errors
    /// [`Refusal`]: the arguments make no sense, or the sandbox did not do it.
    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal>;

    /// The JSON schema of the data beside the text, an object; nothing for a tool that gives text alone.
    fn data_schema(&self) -> Option<Value> {
        None
    }

    /// Does it, as [`Tool::run`], and gives the result as data besides.
    ///
    /// # Errors
    /// As [`Tool::run`].
    async fn report(&self, context: &Context<'_>, arguments: &str) -> Result<Report, Refusal> {
        Ok(Report { text: self.run(context, arguments).await?, data: None })
    }
}

/// Reads the arguments of a call. No arguments at all are an empty object.
pub(crate) fn parse<T: DeserializeOwned>(arguments: &str) -> Result<T, Refusal> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(arguments)
        .map_err(|error| Refusal(format!("invalid parameters: {}", truncate(&error.to_string(), 500))))
}

//! [`Response`]: what a runner answers.

use serde::{Deserialize, Serialize};

use super::code;
use super::data::Data;
use super::founding::FoundingAnswer;
use super::frame::{Frame, write};
use super::transfer::Moved;
use crate::live::Stream;
use crate::{Error, ErrorKind, FileKind};

/// An answer, or a part that comes ahead of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// It is done.
    Ok,
    /// A file is in its place; in place of [`Response::Ok`] with [`Feature::Swap`](super::Feature::Swap).
    Written(Written),
    /// A command has ended.
    ExecResult(ExecResult),
    /// Bytes of a file.
    FileContent(FileContent),
    /// About a file or directory.
    FileInfo(FileInfo),
    /// A directory, or the last part of one.
    DirEntries(DirEntries),
    /// A file is open.
    Opened(Opened),
    /// A transfer is over. *Transfers.*
    Moved(Moved),
    /// It failed.
    Error(Failed),
    /// How a change went.
    Outcome(Outcome),
    /// Some output of a command, ahead of its result. *Exact.*
    ExecOutput(ExecOutput),
    /// Some entries, ahead of the last. *Exact.*
    DirPart(DirEntries),
    /// The answer to a request of the second founding generation alone.
    Founding(FoundingAnswer),
}

/// The end of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecResult {
    /// Standard output as text; bytes that are no UTF-8 are lost.
    pub stdout: String,
    /// Standard error, in the same way.
    pub stderr: String,
    /// −1 when a signal or the deadline ended it.
    pub exit_code: i32,
    /// Whether the deadline ended it.
    pub timed_out: bool,
    /// The signal that ended it. *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Bytes of standard output that were dropped in its middle. *Exact.*
    #[serde(skip_serializing_if = "is_zero")]
    pub stdout_dropped: u64,
    /// Those of standard error. *Exact.*
    #[serde(skip_serializing_if = "is_zero")]
    pub stderr_dropped: u64,
    /// What to do about a wall that refused something. *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Some output of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// Which stream.
    pub stream: Stream,
    /// The next bytes of it that were kept.
    pub data: Data,
}

/// How a change went that was asked for on an earlier connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the request has come; else nothing was done.
    #[serde(rename = "known")]
    pub is_known: bool,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failed>,
    /// The version of the file that it wrote. With [`Feature::Swap`](super::Feature::Swap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileContent {
    /// The bytes.
    pub data: Data,
    /// Whether there are no more, in the answer to `read_piece`. *Exact.*
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// A file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileInfo {
    /// The last segment of its path.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// [Go's number](super::mode).
    pub mode: u32,
    /// When its contents changed last (RFC 3339, UTC, whole seconds).
    pub mod_time: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// When its contents changed last, in nanoseconds since 1970. *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// Its version, of a regular file. With [`Feature::Swap`](super::Feature::Swap).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A file that was put in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Entries of a directory, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirEntries {
    /// The entries.
    pub entries: Vec<DirEntry>,
}

/// An entry of a directory; links are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its length in bytes; of a link, that of its text.
    #[serde(default)]
    pub size: u64,
    /// What it is. *Exact.*
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
}

/// A file that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The number by which it is asked for.
    pub handle: u64,
    /// The file at that moment, when it is to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<FileInfo>,
    /// Which of its bytes come: the first, and the one after the last.
    #[serde(default)]
    pub range: (u64, u64),
    /// The first of them, at most [`PIECE_BYTES`](super::PIECE_BYTES).
    #[serde(default)]
    pub data: Data,
    /// Whether there are no more: then the file is closed already.
    #[serde(default)]
    pub last: bool,
}

/// A failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failed {
    /// One sentence.
    pub message: String,
    /// [A name of `errno(3)`](super::code).
    pub code: String,
    /// The kind that this crate has for it. *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Failed {
    /// A failure of `kind`.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { message: message.into(), code: code::of(kind).to_owned(), kind: Some(kind) }
    }

    /// What a backend of this crate failed with, without the path: the service knows it.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        Self::new(error.kind(), error.message())
    }

    /// The kind, by what the runner told; `is_removal` as for [`code::kind`].
    #[must_use]
    pub fn kind(&self, is_removal: bool) -> ErrorKind {
        self.kind.unwrap_or_else(|| code::kind(&self.code, is_removal))
    }
}

impl Response {
    /// The `type` of its frame.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ExecResult(_) => "exec_result",
            Self::FileContent(_) => "file_content",
            Self::FileInfo(_) => "file_info",
            Self::DirEntries(_) => "dir_entries",
            Self::Opened(_) => "opened",
            Self::Moved(_) => "moved",
            Self::Written(_) => "written",
            Self::Error(_) => "error",
            Self::Outcome(_) => "outcome",
            Self::ExecOutput(_) => "exec_output",
            Self::DirPart(_) => "dir_part",
            Self::Founding(answer) => answer.kind(),
        }
    }

    /// Whether more frames of the same answer follow.
    #[must_use]
    pub fn is_part(&self) -> bool {
        matches!(self, Self::ExecOutput(_) | Self::DirPart(_))
    }

    /// Reads an answer; `None` for a frame of another type, which is to be ignored.
    #[must_use]
    pub fn read(frame: &Frame<'_>) -> Option<Result<Self, String>> {
        Some(match &*frame.kind {
            "ok" => Ok(Self::Ok),
            "exec_result" => frame.body().map(Self::ExecResult),
            "file_content" => frame.body().map(Self::FileContent),
            "file_info" => frame.body().map(Self::FileInfo),
            "dir_entries" => frame.body().map(Self::DirEntries),
            "opened" => frame.body().map(Self::Opened),
            "moved" => frame.body().map(Self::Moved),
            "written" => frame.body().map(Self::Written),
            "error" => frame.body().map(Self::Error),
            "outcome" => frame.body().map(Self::Outcome),
            "exec_output" => frame.body().map(Self::ExecOutput),
            "dir_part" => frame.body().map(Self::DirPart),
            _ => return None,
        })
    }

    /// The frame. Answers to requests without id have none either.
    #[must_use]
    pub fn to_text(&self, id: Option<&str>) -> String {
        let kind = self.kind();
        match self {
            Self::Ok => write(id, kind, None, None::<()>),
            Self::ExecResult(body) => write(id, kind, None, Some(body)),
            Self::FileContent(body) => write(id, kind, None, Some(body)),
            Self::FileInfo(body) => write(id, kind, None, Some(body)),
            Self::DirEntries(body) | Self::DirPart(body) => write(id, kind, None, Some(body)),
            Self::Opened(body) => write(id, kind, None, Some(body)),
            Self::Moved(body) => write(id, kind, None, Some(body)),
            Self::Written(body) => write(id, kind, None, Some(body)),
            Self::Error(body) => write(id, kind, None, Some(body)),
            Self::Outcome(body) => write(id, kind, None, Some(body)),
            Self::ExecOutput(body) => write(id, kind, None, Some(body)),
            Self::Founding(answer) => answer.to_text(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Result<Response, String>> {
        Response::read(&Frame::parse(text).unwrap())
    }

    /// Recorded from runners of both founding generations.
    const RECORDED: [&str; 6] = [
        r#"{"id":"a","type":"exec_result","body":{"stdout":"hi\n","stderr":"err\n","exit_code":3,"timed_out":false}}"#,
        r#"{"id":"a","type":"file_content","body":{"data":"aGVsbG8K"}}"#,
        r#"{"id":"a","type":"file_info","body":{"name":"d","size":4096,"mode":2147484141,"mod_time":"2026-03-26T00:00:00Z","is_dir":true}}"#,
        r#"{"id":"a","type":"dir_entries","body":{"entries":[{"name":"e","is_dir":true,"size":4096}]}}"#,
        r#"{"id":"a","type":"error","body":{"message":"remove W/m: directory not empty","code":"EEXIST"}}"#,
        r#"{"id":"a","type":"ok"}"#,
    ];

    #[test]
    fn recorded_answers_are_read_and_written_the_same() {
        for recorded in RECORDED {
            let response = read(recorded).unwrap().unwrap();
            assert_eq!(response.to_text(Some("a")), recorded);
        }
    }

    #[test]
    fn a_code_means_what_runners_mean_by_it() {
        let Some(Ok(Response::Error(failed))) = read(RECORDED[4]) else { panic!() };
        assert_eq!(failed.kind(true), ErrorKind::NotEmpty);
        assert_eq!(failed.kind(false), ErrorKind::AlreadyExists);
        let told = Failed::new(ErrorKind::NotEmpty, "is not empty");
        assert_eq!((told.code.as_str(), told.kind(false)), ("EEXIST", ErrorKind::NotEmpty));
        let later = r#"{"type":"error","body":{"code":"ENEW","message":"m"}}"#;
        let Some(Ok(Response::Error(failed))) = read(later) else { panic!() };
        assert_eq!(failed.kind(false), ErrorKind::Internal);
    }

    #[test]
    fn other_frames_are_no_answers_and_malformed_ones_have_a_sentence() {
        assert_eq!(read(r#"{"type":"pty_data","body":{}}"#), None);
        assert!(read(r#"{"id":"a","type":"opened","body":{}}"#).unwrap().is_err());
        assert!(read(r#"{"id":"a","type":"file_info","body":{"size":-1}}"#).unwrap().is_err());
    }
}

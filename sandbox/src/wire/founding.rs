//! What only services of the second founding generation (2026-08) ask: processes with streams, terminals, background tasks, downloads.
//!
//! Services of this project ask for [runs](super::live) in their place, which outlive a connection.

use serde::{Deserialize, Serialize};

use super::data::Data;
use super::exec::Exec;
use super::frame::{Frame, write};

/// The longest name of a stream or a task, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// A request of the second founding generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Founding {
    /// Start a process whose standard output is told as it comes.
    StdioStart(StreamStart),
    /// Give it input. Has no id and no answer.
    StdioWrite(StreamInput),
    /// End its input, and the process with it.
    StdioClose(StreamName),
    /// Start a process in a terminal.
    PtyCreate(StreamStart),
    /// Type into a terminal. Has no answer.
    PtyStdin(StreamInput),
    /// Give a terminal another size. Has no answer.
    PtyResize(StreamSize),
    /// End the process of a terminal.
    PtyClose(StreamName),
    /// Start a command in the background.
    BgExec(TaskStart),
    /// Tell about a command in the background.
    BgStatus(TaskName),
    /// Kill a command in the background.
    BgKill(TaskName),
    /// Fetch a URL into a file.
    DownloadFile(Download),
    /// Ask a language model of the machine, or for their names.
    Llm,
}

/// A process with streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamStart {
    /// Its name, of the service's choice.
    pub stream_id: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// `NAME=value`, beside what the runner sets.
    pub env: Vec<String>,
    /// The directory; the workspace when empty.
    pub dir: String,
    /// The width of its terminal, in characters.
    pub cols: u16,
    /// The height of its terminal, in lines.
    pub rows: u16,
}

/// Input of a process with streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInput {
    /// Its name.
    pub stream_id: String,
    /// The bytes.
    pub data: Data,
}

/// The size of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamSize {
    /// The name of the stream.
    pub stream_id: String,
    /// Its width, in characters.
    pub cols: u16,
    /// Its height, in lines.
    pub rows: u16,
}

/// Which process with streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamName {
    /// Its name.
    pub stream_id: String,
}

/// A command in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskStart {
    /// Its name, of the service's choice.
    pub task_id: String,
    /// The command; its deadline means nothing.
    #[serde(flatten)]
    pub command: Exec,
}

/// Which command in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskName {
    /// Its name.
    pub task_id: String,
}

/// A URL and where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Download {
    /// `http://` or `https://`.
    pub url: String,
    /// The file.
    pub output_path: String,
}

/// How it stands with a command in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It runs.
    #[default]
    Running,
    /// It ended with 0.
    Completed,
    /// It ended otherwise.
    Failed,
    /// It was killed by request.
    Killed,
}

/// An answer to a [`Founding`] request, where it is not `ok` alone or an `error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundingAnswer {
    /// `ok`: the process has started.
    Started(StreamName),
    /// A command in the background has started.
    TaskStarted(TaskName),
    /// About a command in the background.
    TaskOutput(TaskOutput),
    /// `ok`: the file is there.
    Downloaded(Downloaded),
}

/// About a command in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOutput {
    /// Its name.
    pub task_id: String,
    /// How it stands.
    pub status: TaskStatus,
    /// Its exit code; left out when 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub exit_code: i32,
    /// All of its standard output so far, without the middle of what is too much.
    pub stdout: String,
    /// The same of its standard error.
    pub stderr: String,
}

/// How large a file is that was fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Downloaded {
    /// In bytes.
    pub size: u64,
}

/// A frame about a process with streams that answers no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// A process has written to its standard output.
    StdioData(StreamInput),
    /// A process has ended.
    StdioExit(StreamEnd),
    /// A terminal shows something.
    PtyData(StreamInput),
    /// The process of a terminal has ended.
    PtyExit(StreamEnd),
}

/// The end of a process with streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamEnd {
    /// The name of its stream.
    pub stream_id: String,
    /// Its exit code; −1 when a signal ended it.
    pub exit_code: i32,
    /// Why the runner ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl Founding {
    /// The `type` of its frame.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::StdioStart(_) => "stdio_start",
            Self::StdioWrite(_) => "stdio_write",
            Self::StdioClose(_) => "stdio_close",
            Self::PtyCreate(_) => "pty_create",
            Self::PtyStdin(_) => "pty_stdin",
            Self::PtyResize(_) => "pty_resize",
            Self::PtyClose(_) => "pty_close",
            Self::BgExec(_) => "bg_exec",
            Self::BgStatus(_) => "bg_status",
            Self::BgKill(_) => "bg_kill",
            Self::DownloadFile(_) => "download_file",
            Self::Llm => "llm_generate",
        }
    }

    /// Reads a request; `None` for a frame of another type.
    #[must_use]
    pub fn read(frame: &Frame<'_>) -> Option<Result<Self, String>> {
        Some(match &*frame.kind {
            "stdio_start" => frame.body().map(Self::StdioStart),
            "stdio_write" => frame.body().map(Self::StdioWrite),
            "stdio_close" => frame.body().map(Self::StdioClose),
            "pty_create" => frame.body().map(Self::PtyCreate),
            "pty_stdin" => frame.body().map(Self::PtyStdin),
            "pty_resize" => frame.body().map(Self::PtyResize),
            "pty_close" => frame.body().map(Self::PtyClose),
            "bg_exec" => frame.body().map(Self::BgExec),
            "bg_status" => frame.body().map(Self::BgStatus),
            "bg_kill" => frame.body().map(Self::BgKill),
            "download_file" => frame.body().map(Self::DownloadFile),
            "llm_generate" | "llm_models" => Ok(Self::Llm),
            _ => return None,
        })
    }

    /// The frame, of the user whose runner it goes to.
    #[must_use]
    pub fn to_text(&self, id: Option<&str>, user: &str) -> String {
        let (kind, user) = (self.kind(), Some(user));
        match self {
            Self::StdioStart(body) | Self::PtyCreate(body) => write(id, kind, user, Some(body)),
            Self::StdioWrite(body) | Self::PtyStdin(body) => write(id, kind, user, Some(body)),
            Self::StdioClose(body) | Self::PtyClose(body) => write(id, kind, user, Some(body)),
            Self::PtyResize(body) => write(id, kind, user, Some(body)),
            Self::BgExec(body) => write(id, kind, user, Some(body)),
            Self::BgStatus(body) | Self::BgKill(body) => write(id, kind, user, Some(body)),
            Self::DownloadFile(body) => write(id, kind, user, Some(body)),
            Self::Llm => write(id, kind, user, None::<()>),
        }
    }
}

impl FoundingAnswer {
    /// The `type` of its frame.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started(_) | Self::Downloaded(_) => "ok",
            Self::TaskStarted(_) => "bg_started",
            Self::TaskOutput(_) => "bg_output",
        }
    }

    /// The frame.
    #[must_use]
    pub fn to_text(&self, id: Option<&str>) -> String {
        let kind = self.kind();
        match self {
            Self::Started(body) => write(id, kind, None, Some(body)),
            Self::TaskStarted(body) => write(id, kind, None, Some(body)),
            Self::TaskOutput(body) => write(id, kind, None, Some(body)),
            Self::Downloaded(body) => write(id, kind, None, Some(body)),
        }
    }
}

impl Push {
    /// The frame.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::StdioData(body) => write(None, "stdio_data", None, Some(body)),
            Self::StdioExit(body) => write(None, "stdio_exit", None, Some(body)),
            Self::PtyData(body) => write(None, "pty_data", None, Some(body)),
            Self::PtyExit(body) => write(None, "pty_exit", None, Some(body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Founding {
        Founding::read(&Frame::parse(text).unwrap()).unwrap().unwrap()
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let stream = |text: &str| StreamName { stream_id: text.to_owned() };
        let task = |text: &str| TaskName { task_id: text.to_owned() };
        let start =
            StreamStart { stream_id: "s".into(), command: "cat".into(), rows: 24, ..StreamStart::default() };
        let input = StreamInput { stream_id: "s".into(), data: Data(b"\xff"[..].into()) };
        let command = Exec { command: "true".into(), shell: true, ..Exec::default() };
        let requests = [
            Founding::StdioStart(start.clone()),
            Founding::StdioWrite(input.clone()),
            Founding::StdioClose(stream("s")),
            Founding::PtyCreate(start),
            Founding::PtyStdin(input),
            Founding::PtyResize(StreamSize { stream_id: "s".into(), cols: 100, rows: 30 }),
            Founding::PtyClose(stream("s")),
            Founding::BgExec(TaskStart { task_id: "t".into(), command }),
            Founding::BgStatus(task("t")),
            Founding::BgKill(task("t")),
            Founding::DownloadFile(Download { url: "http://h/".into(), output_path: "f".into() }),
            Founding::Llm,
        ];
        for request in requests {
            assert_eq!(read(&request.to_text(Some("r"), "u")), request);
        }
        assert_eq!(Founding::read(&Frame::parse(r#"{"type":"stat"}"#).unwrap()), None);
    }

    #[test]
    fn answers_and_pushes_are_written_as_recorded() {
        let task = |status, exit_code| TaskOutput {
            task_id: "t1".into(),
            status,
            exit_code,
            stdout: "dup\n".into(),
            stderr: String::new(),
        };
        let told = |answer: FoundingAnswer| answer.to_text(Some("q"));
        assert_eq!(
            told(FoundingAnswer::TaskOutput(task(TaskStatus::Completed, 0))),
            r#"{"id":"q","type":"bg_output","body":{"task_id":"t1","status":"completed","stdout":"dup\n","stderr":""}}"#
        );
        assert!(told(FoundingAnswer::TaskOutput(task(TaskStatus::Failed, 4))).contains(r#""exit_code":4"#));
        let end = StreamEnd { stream_id: "s1".into(), exit_code: 0, error: None };
        let recorded = r#"{"type":"stdio_exit","body":{"stream_id":"s1","exit_code":0}}"#;
        assert_eq!(Push::StdioExit(end).to_text(), recorded);
        let data = StreamInput { stream_id: "s1".into(), data: Data(b"ping\n"[..].into()) };
        let recorded = r#"{"type":"stdio_data","body":{"stream_id":"s1","data":"cGluZwo="}}"#;
        assert_eq!(Push::StdioData(data).to_text(), recorded);
    }
}

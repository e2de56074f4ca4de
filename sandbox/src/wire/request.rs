//! [`Request`]: what a service asks of a runner.

use serde::{Deserialize, Serialize};

use super::data::Data;
pub use super::exec::Exec;
use super::founding::Founding;
use super::frame::{Frame, write};
use super::live;
use super::transfer::Transfer;

/// What is asked. The first eight are the founding ones; those about runs need [`Feature::Live`](super::Feature::Live), the others
/// [`Feature::Exact`](super::Feature::Exact).
///
/// Paths are absolute, or begin at the workspace; an empty one is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command to its end.
    Exec(Exec),
    /// Tell a whole file.
    ReadFile(Path),
    /// Replace or make a file; its directory must be there.
    WriteFile(WriteFile),
    /// Tell about a file or directory; links are followed.
    Stat(Path),
    /// List a directory.
    ReadDir(Path),
    /// Make a directory and those above it.
    MkdirAll(MkdirAll),
    /// Remove a file, a link or an empty directory.
    Remove(Path),
    /// Remove an entry with all below it.
    RemoveAll(Path),
    /// Open a file, to be read in pieces; the first comes with the answer.
    OpenRead(OpenRead),
    /// Tell the next piece of an open file.
    ReadPiece(Handle),
    /// Begin to write a file in pieces. Nothing is seen of it before [`Request::FinishWrite`].
    OpenWrite(OpenWrite),
    /// Take the next piece of a file.
    WritePiece(WritePiece),
    /// Put the written file in its place.
    FinishWrite(Handle),
    /// Send the rest of a file that is open for reading over HTTP. Needs [`Feature::Transfers`](super::Feature::Transfers).
    SendFile(Transfer),
    /// Fetch the rest of a file that is open for writing over HTTP. Needs [`Feature::Transfers`](super::Feature::Transfers).
    FetchFile(Transfer),
    /// Forget an open file; what was written of it is dropped. Has no id and no answer.
    Close(Handle),
    /// Give up a request: a command is killed. Has no id and no answer.
    Cancel(Cancel),
    /// Begin a run.
    Begin(live::Begin),
    /// Go on with a run.
    Attach(live::Attach),
    /// Give input to a run.
    Input(live::Input),
    /// Send a signal to a run. Has no id and no answer.
    Signal(live::SendSignal),
    /// Give the terminal of a run another size. Has no id and no answer.
    Resize(live::Resize),
    /// Events of a run have come. Has no id and no answer.
    Ack(live::Ack),
    /// Give up a run. Has no id and no answer.
    Kill(live::Kill),
    /// Tell how a change went whose answer was lost with its connection.
    Outcome(Cancel),
    /// What only services of the second founding generation ask.
    Founding(Founding),
}

/// A path and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// The path.
    pub path: String,
}

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteFile {
    /// Where it goes.
    pub path: String,
    /// Its bytes.
    pub data: Data,
    /// Permission bits; those that an existing file has, or 0644, when missing or 0.
    pub perm: u32,
}

/// A directory to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MkdirAll {
    /// Where it goes.
    pub path: String,
    /// Permission bits; 0755 when missing or 0.
    pub perm: u32,
}

/// A file to open for reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenRead {
    /// The file.
    pub path: String,
    /// The first byte, and the one after the last; the whole file when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
    /// More bytes than this are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
}

/// A file to open for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenWrite {
    /// Where it goes.
    pub path: String,
    /// Whether nothing may be there.
    pub create: bool,
    /// The version that what is there must have. Needs [`Feature::Swap`](super::Feature::Swap).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Permission bits; those that an existing file has, or 0644, when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perm: Option<u32>,
    /// The first bytes, at most [`PIECE_BYTES`](super::PIECE_BYTES).
    pub data: Data,
    /// Whether there are no more: then the file is put in its place at once, and the answer is `ok`.
    pub last: bool,
}

/// The next bytes of a file that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritePiece {
    /// The open file.
    pub handle: u64,
    /// The bytes, at most [`PIECE_BYTES`](super::PIECE_BYTES).
    pub data: Data,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// The number that opening told.
    pub handle: u64,
}

/// A request that is given up, or asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Its id.
    pub request: String,
}

/// Why a frame is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// No such request is known.
    Unknown,
    /// The body is not what it must be: the sentence for the service.
    Invalid(String),
}

impl Request {
    /// The `type` of its frame.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::ReadFile(_) => "read_file",
            Self::WriteFile(_) => "write_file",
            Self::Stat(_) => "stat",
            Self::ReadDir(_) => "read_dir",
            Self::MkdirAll(_) => "mkdir_all",
            Self::Remove(_) => "remove",
            Self::RemoveAll(_) => "remove_all",
            Self::OpenRead(_) => "open_read",
            Self::ReadPiece(_) => "read_piece",
            Self::OpenWrite(_) => "open_write",
            Self::WritePiece(_) => "write_piece",
            Self::FinishWrite(_) => "finish_write",
            Self::SendFile(_) => "send_file",
            Self::FetchFile(_) => "fetch_file",
            Self::Close(_) => "close",
            Self::Cancel(_) => "cancel",
            Self::Begin(_) => "begin",
            Self::Attach(_) => "attach",
            Self::Input(_) => "input",
            Self::Signal(_) => "signal",
            Self::Resize(_) => "resize",
            Self::Ack(_) => "ack",
            Self::Kill(_) => "kill",
            Self::Outcome(_) => "outcome",
            Self::Founding(asked) => asked.kind(),
        }
    }

    /// Whether it changes files, with one answer that tells how that went.
    #[must_use]
    pub fn is_change(&self) -> bool {
        match self {
            Self::WriteFile(_)
            | Self::MkdirAll(_)
            | Self::Remove(_)
            | Self::RemoveAll(_)
            | Self::FinishWrite(_) => true,
            Self::OpenWrite(asked) => asked.last,
            _ => false,
        }
    }

    /// Whether it means the same on another connection: files that are open do not last.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.is_change() && !matches!(self, Self::FinishWrite(_))
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn read(frame: &Frame<'_>) -> Result<Self, Unread> {
        let read = match &*frame.kind {
            "exec" => frame.body().map(Self::Exec),
            "read_file" => frame.body().map(Self::ReadFile),
            "write_file" => frame.body().map(Self::WriteFile),
            "stat" => frame.body().map(Self::Stat),
            "read_dir" => frame.body().map(Self::ReadDir),
            "mkdir_all" => frame.body().map(Self::MkdirAll),
            "remove" => frame.body().map(Self::Remove),
            "remove_all" => frame.body().map(Self::RemoveAll),
            "open_read" => frame.body().map(Self::OpenRead),
            "read_piece" => frame.body().map(Self::ReadPiece),
            "open_write" => frame.body().map(Self::OpenWrite),
            "write_piece" => frame.body().map(Self::WritePiece),
            "finish_write" => frame.body().map(Self::FinishWrite),
            "send_file" => frame.body().map(Self::SendFile),
            "fetch_file" => frame.body().map(Self::FetchFile),
            "close" => frame.body().map(Self::Close),
            "cancel" => frame.body().map(Self::Cancel),
            "begin" => frame.body().map(Self::Begin),
            "attach" => frame.body().map(Self::Attach),
            "input" => frame.body().map(Self::Input),
            "signal" => frame.body().map(Self::Signal),
            "resize" => frame.body().map(Self::Resize),
            "ack" => frame.body().map(Self::Ack),
            "kill" => frame.body().map(Self::Kill),
            "outcome" => frame.body().map(Self::Outcome),
            _ => Founding::read(frame).ok_or(Unread::Unknown)?.map(Self::Founding),
        };
        read.map_err(|error| Unread::Invalid(format!("invalid {} request: {error}", frame.kind)))
    }

    /// The frame, of the user whose runner it goes to.
    #[must_use]
    pub fn to_text(&self, id: Option<&str>, user: &str) -> String {
        let (kind, user) = (self.kind(), Some(user));
        match self {
            Self::Exec(body) => write(id, kind, user, Some(body)),
            Self::ReadFile(body)
            | Self::Stat(body)
            | Self::ReadDir(body)
            | Self::Remove(body)
            | Self::RemoveAll(body) => write(id, kind, user, Some(body)),
            Self::WriteFile(body) => write(id, kind, user, Some(body)),
            Self::MkdirAll(body) => write(id, kind, user, Some(body)),
            Self::OpenRead(body) => write(id, kind, user, Some(body)),
            Self::ReadPiece(body) | Self::FinishWrite(body) | Self::Close(body) => {
                write(id, kind, user, Some(body))
            }
            Self::OpenWrite(body) => write(id, kind, user, Some(body)),
            Self::WritePiece(body) => write(id, kind, user, Some(body)),
            Self::Cancel(body) | Self::Outcome(body) => write(id, kind, user, Some(body)),
            Self::Begin(body) => write(id, kind, user, Some(body)),
            Self::Attach(body) => write(id, kind, user, Some(body)),
            Self::Input(body) => write(id, kind, user, Some(body)),
            Self::Signal(body) => write(id, kind, user, Some(body)),
            Self::Resize(body) => write(id, kind, user, Some(body)),
            Self::Ack(body) => write(id, kind, user, Some(body)),
            Self::Kill(body) => write(id, kind, user, Some(body)),
            Self::SendFile(body) | Self::FetchFile(body) => write(id, kind, user, Some(body)),
            Self::Founding(asked) => asked.to_text(id, user.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, Unread> {
        Request::read(&Frame::parse(text).unwrap())
    }

    #[test]
    fn a_founding_request_is_written_as_founding_runners_read_it() {
        let exec =
            Request::Exec(Exec { command: "echo hi".into(), shell: true, timeout: 30, ..Exec::default() });
        let text = r#"{"id":"req_1","type":"exec","user_id":"u","body":{"command":"echo hi","args":[],"shell":true,"timeout":30}}"#;
        assert_eq!(exec.to_text(Some("req_1"), "u"), text);
        assert_eq!(read(text), Ok(exec));
        let write =
            Request::WriteFile(WriteFile { path: "w".into(), data: Data(b"x"[..].into()), perm: 420 });
        let text =
            r#"{"id":"r","type":"write_file","user_id":"u","body":{"path":"w","data":"eA==","perm":420}}"#;
        assert_eq!((write.to_text(Some("r"), "u").as_str(), read(text)), (text, Ok(write.clone())));
    }

    #[test]
    fn the_flat_form_and_missing_fields_are_accepted() {
        let flat = r#"{"id":"req_001","type":"exec","command":"ls","args":["-la"],"shell":true,"dir":"/workspace","env":[],"stdin":"","timeout":30,"user_id":"ou_xxx"}"#;
        let Ok(Request::Exec(exec)) = read(flat) else { panic!() };
        assert_eq!((&*exec.command, &*exec.dir, exec.timeout), ("ls", "/workspace", 30));
        assert_eq!(read(r#"{"type":"stat"}"#), Ok(Request::Stat(Path::default())));
        assert_eq!(read(r#"{"type":"mkdir_all","body":{"path":"m"}}"#), {
            Ok(Request::MkdirAll(MkdirAll { path: "m".into(), perm: 0 }))
        });
    }

    #[test]
    fn what_cannot_be_read_has_a_sentence() {
        assert_eq!(read(r#"{"type":"nonsense","body":{}}"#), Err(Unread::Unknown));
        let invalid = |text| match read(text) {
            Err(Unread::Invalid(told)) => told,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            invalid(r#"{"type":"write_file","body":{"path":"w","data":"!!!"}}"#),
            "invalid write_file request: invalid base64"
        );
        assert_eq!(
            invalid(r#"{"type":"read_piece","body":{}}"#),
            "invalid read_piece request: missing field `handle`"
        );
    }
}

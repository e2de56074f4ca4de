//! [`LiveRun`]: a command in which a caller takes part while it runs.

use std::any::Any;

use bytes::Bytes;
pub use policy::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{Error, ErrorKind, ExecResult, ExecSpec, Result};

/// A command for [`Sandbox::begin`](crate::Sandbox::begin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSpec {
    /// The command. Its output comes by pieces, whole: [`ExecSpec::output_bytes_max`] means nothing here.
    pub command: ExecSpec,
    /// Whether standard input stays open behind [`ExecSpec::stdin`], until [`Input::End`]. A terminal is always open.
    pub stdin_open: bool,
    /// Gives the command a terminal of this size as all three standard streams; all its output is [`Stream::Stdout`].
    pub terminal: Option<WindowSize>,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output: 1 byte to 64 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The stream that it was written to.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Bytes,
}

/// A piece of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes for standard input.
    Bytes(Bytes),
    /// There is no more. A terminal gets the character that says so (`VEOF`, termios(3)).
    End,
}

/// Something to be done with a command that runs. When it has ended already, nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sends a signal to the command and the processes of its group.
    Signal(Signal),
    /// Gives its terminal another size.
    Resize(WindowSize),
}

/// A command that runs: the caller's ends of its streams.
///
/// * While `output` is full the command waits to write; its deadline does not wait.
/// * `output` ends when the command has, and nothing that it wrote is missing then.
/// * Dropping `end` kills the command with everything that descends from it.
#[derive(Debug)]
pub struct LiveRun {
    /// What it writes, as it comes.
    pub output: mpsc::Receiver<Output>,
    /// What it reads. Closed where [`LiveSpec::stdin_open`] was not set, and when the command has ended.
    pub input: mpsc::Sender<Input>,
    /// What is to be done with it: before the input that is sent afterwards, and also while it does not read.
    pub orders: mpsc::Sender<Order>,
    /// How it ends.
    pub end: LiveEnd,
}

/// The end of a command that runs. Dropping it kills the command.
#[derive(Debug)]
pub struct LiveEnd {
    result: oneshot::Receiver<Result<ExecResult>>,
    /// Its other side ends with this.
    _attended: oneshot::Sender<()>,
    held: Vec<Box<dyn Any + Send + Sync>>,
}

/// The backend's side of a [`LiveEnd`].
#[derive(Debug)]
pub struct LiveEnding {
    /// Where the end is told. Without it, the command is told to be lost.
    pub result: oneshot::Sender<Result<ExecResult>>,
    /// Answers, with an error, when the caller has given the command up.
    pub given_up: oneshot::Receiver<()>,
}

impl LiveEnd {
    /// An end that is not there yet, and the side that tells it.
    #[must_use]
    pub fn new() -> (Self, LiveEnding) {
        let ((result, told), (attended, given_up)) = (oneshot::channel(), oneshot::channel());
        (Self { result: told, _attended: attended, held: Vec::new() }, LiveEnding { result, given_up })
    }

    /// Keeps `what` as long as the command is waited for, such as a place that it takes.
    pub fn hold(&mut self, what: impl Any + Send + Sync) {
        self.held.push(Box::new(what));
    }

    /// Waits for the end. The result has no output: that came before. The caller reads `output` meanwhile, or has dropped it.
    ///
    /// # Errors
    /// As [`Sandbox::exec`](crate::Sandbox::exec), of a command whose end is not known.
    pub async fn wait(&mut self) -> Result<ExecResult> {
        let lost = || Error::new(ErrorKind::Internal, "exec", "the end of the command was lost");
        (&mut self.result).await.unwrap_or_else(|_| Err(lost()))
    }
}

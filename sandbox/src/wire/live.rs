//! Commands in which a caller takes part, for runners with [`Feature::Live`](super::Feature::Live).
//!
//! A run has a name of the service's choice. It does not end with the connection: a service that finds the runner again
//! [attaches](Attach) to it, and is told what it has missed. What the service asks for twice is done once.

use serde::{Deserialize, Serialize};

use super::data::Data;
use super::exec::Exec;
use super::frame::{Frame, write};
use super::response::{ExecResult, Failed};
use crate::live::{Signal, Stream, WindowSize};

/// Runs of one connection, at most.
pub const RUNS_MAX: usize = 64;
/// Events of a run that are not [acknowledged](Ack), at most. A runner with so many waits, and its command with it.
pub const UNACKNOWLEDGED_MAX: usize = 16;
/// The bytes of one event, or of one piece of input, before base64.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;
/// The longest name of a run, in bytes.
pub const RUN_BYTES_MAX: usize = 64;

/// Begins a run, once: when there is one of this name already, it is the answer. The events of the run follow the answer or precede it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Begin {
    /// Its name, which no other run has or had.
    pub run: String,
    /// The command. All its output is told by events as it comes; with `output_bytes_max`, its ends when it is over, and the result
    /// counts what was dropped.
    #[serde(flatten)]
    pub command: Exec,
    /// Whether [`Input`] follows.
    pub stdin_open: bool,
    /// The size of its terminal, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<WindowSize>,
}

/// Goes on with a run on this connection, behind the event `after`: it is acknowledged, with all before it. `ENOENT` when there is no such
/// run (any more).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Its name.
    pub run: String,
    /// The number of the last event that has come; 0 for none.
    pub after: u64,
}

/// Input for a run. The answer is `ok` when it was taken, which waits until the command reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The name of the run.
    pub run: String,
    /// How many bytes came before this in all: bytes that were taken already are passed over.
    pub at: u64,
    /// The bytes, at most [`EVENT_BYTES_MAX`].
    #[serde(default)]
    pub data: Data,
    /// Whether there are no more. A terminal gets the character that says so.
    #[serde(default)]
    pub end: bool,
}

/// A signal for the command and the processes of its group. Has no id and no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSignal {
    /// The name of the run.
    pub run: String,
    /// The signal.
    pub signal: Signal,
}

/// Another size of a terminal. Has no id and no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// The name of the run.
    pub run: String,
    /// The size.
    #[serde(flatten)]
    pub size: WindowSize,
}

/// The events up to `seq` have come. Has no id and no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The name of the run.
    pub run: String,
    /// The number of the last of them.
    pub seq: u64,
}

/// A run that is given up: its command is killed. Has no id and no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The name of the run.
    pub run: String,
}

/// Something that a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The name of the run.
    pub run: String,
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// What it did.
    pub what: What,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It wrote.
    Output(Stream, Data),
    /// It has ended, and no event follows: so, or its end is not known.
    End(Result<ExecResult, Failed>),
}

const OUTPUT: &str = "run_output";
const END: &str = "run_end";

#[derive(Serialize, Deserialize)]
struct OutputBody {
    run: String,
    seq: u64,
    stream: Stream,
    data: Data,
}

#[derive(Serialize, Deserialize)]
struct EndBody {
    run: String,
    seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<ExecResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Failed>,
}

impl Event {
    /// Reads an event; `None` for any other frame.
    #[must_use]
    pub fn read(frame: &Frame<'_>) -> Option<Result<Self, String>> {
        match &*frame.kind {
            OUTPUT => Some(frame.body().map(|OutputBody { run, seq, stream, data }| Self {
                run,
                seq,
                what: What::Output(stream, data),
            })),
            END => Some(frame.body().map(|EndBody { run, seq, result, error }| Self {
                run,
                seq,
                what: What::End(match (result, error) {
                    (Some(result), None) => Ok(result),
                    (_, error) => Err(error.unwrap_or_default()),
                }),
            })),
            _ => None,
        }
    }

    /// The frame.
    #[must_use]
    pub fn to_text(&self) -> String {
        let (run, seq) = (self.run.clone(), self.seq);
        match self.what.clone() {
            What::Output(stream, data) => {
                write(None, OUTPUT, None, Some(OutputBody { run, seq, stream, data }))
            }
            What::End(ended) => {
                let (result, error) = match ended {
                    Ok(result) => (Some(result), None),
                    Err(failed) => (None, Some(failed)),
                };
                write(None, END, None, Some(EndBody { run, seq, result, error }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ErrorKind;
    use crate::wire::Request;

    use super::*;

    #[test]
    fn what_a_run_is_told_is_read_as_it_was_written() {
        let run = "4f0c".to_owned();
        let command = Exec { command: "cat".into(), shell: true, ..Exec::default() };
        let size = WindowSize { rows: 24, cols: 80 };
        let requests = [
            Request::Begin(Begin { run: run.clone(), command, stdin_open: true, terminal: Some(size) }),
            Request::Attach(Attach { run: run.clone(), after: 7 }),
            Request::Input(Input { run: run.clone(), at: 3, data: Data(b"x\n"[..].into()), end: false }),
            Request::Signal(SendSignal { run: run.clone(), signal: Signal::Int }),
            Request::Resize(Resize { run: run.clone(), size }),
            Request::Ack(Ack { run: run.clone(), seq: 9 }),
            Request::Kill(Kill { run }),
        ];
        for request in requests {
            let text = request.to_text(Some("r"), "u");
            assert_eq!(Request::read(&Frame::parse(&text).unwrap()), Ok(request), "{text}");
        }
    }

    #[test]
    fn what_a_run_did_is_read_as_it_was_written() {
        let event = |seq, what| Event { run: "4f0c".to_owned(), seq, what };
        let failed = Failed::new(ErrorKind::NotFound, "there is no such program");
        let events = [
            event(1, What::Output(Stream::Stderr, Data(b"\xff"[..].into()))),
            event(2, What::End(Ok(ExecResult { exit_code: 3, ..ExecResult::default() }))),
            event(2, What::End(Err(failed))),
        ];
        for event in events {
            let text = event.to_text();
            assert_eq!(Event::read(&Frame::parse(&text).unwrap()), Some(Ok(event)), "{text}");
        }
        let unknown = r#"{"type":"run_news","body":{}}"#;
        assert_eq!(Event::read(&Frame::parse(unknown).unwrap()), None);
        let negative = r#"{"type":"run_end","body":{"run":"a","seq":-1}}"#;
        assert!(Event::read(&Frame::parse(negative).unwrap()).unwrap().is_err());
    }
}

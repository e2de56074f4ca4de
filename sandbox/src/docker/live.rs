//! Commands in a container in which a caller takes part: output as it comes, input, signals, terminals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::call::{self, Piece, Streams};
use super::containers::{Containers, Owner};
use super::exec::{self, Started};
use crate::live::{Input, LiveEnd, LiveEnding, LiveRun, LiveSpec, Order, Output, Stream};
use crate::wire::live::EVENT_BYTES_MAX;
use crate::{Error, ErrorKind, ExecResult, Result};

/// Pieces of output that wait for their reader, and of input that wait for the command.
const PIECES: usize = 4;
/// Orders that wait to be carried out.
const ORDERS: usize = 16;
/// How long the script may take until the command begins.
const BEGINNING: Duration = Duration::from_secs(60);
/// What a terminal reads as the end of what was typed (`VEOF`, termios(3)).
const END_OF_TYPING: u8 = 4;

/// Begins a command, and waits until it runs.
pub(super) async fn begin(containers: &Arc<Containers>, owner: &Owner, spec: LiveSpec) -> Result<LiveRun> {
    let LiveSpec { command, stdin_open, terminal } = spec;
    let streams = match terminal {
        Some(_) => Streams::Terminal,
        None if stdin_open || !command.stdin.is_empty() => Streams::Pipes,
        None => Streams::Output,
    };
    let begun = Instant::now();
    let mut started = exec::start(containers, owner, &command, streams, terminal).await?;
    let first = tokio::time::timeout(BEGINNING, beginning(&mut started)).await;
    let late = || Error::new(ErrorKind::Timeout, "exec", "the container did not begin the command in time");
    let first = first.map_err(|_| late())??;
    let most = containers.options.timeout_max;
    let timeout = command.timeout.map_or(most, |timeout| timeout.min(most));
    let (output, outputs) = mpsc::channel(PIECES);
    let (input, mut inputs) = mpsc::channel(PIECES);
    let (orders, ordered) = mpsc::channel(ORDERS);
    let (end, ending) = LiveEnd::new();
    if !stdin_open && terminal.is_none() {
        inputs.close();
    }
    let feeding = Feeding { first: command.stdin, inputs, is_terminal: terminal.is_some() };
    let attended =
        Attended { started, begun, until: begun + timeout, early: first, output, feeding, ordered };
    tokio::spawn(attended.attend(ending));
    Ok(LiveRun { output: outputs, input, orders, end })
}

/// Waits for the script's own word that the command begins. Tells what the command has written by then: the engine may carry its
/// standard error faster than that word.
async fn beginning(started: &mut Started) -> Result<Vec<(Stream, Bytes)>> {
    let mut early = Vec::new();
    while let Some(piece) = started.call.next().await? {
        match piece {
            Piece::Stdout(bytes) => {
                early.push((Stream::Stdout, bytes.slice(1.min(bytes.len())..)));
                return Ok(early);
            }
            Piece::Stderr(bytes) => early.push((Stream::Stderr, bytes)),
        }
    }
    let code = started.call.end().await?;
    started.guard.over();
    Err(exec::not_begun(code, &started.directory))
}

/// What a command reads.
struct Feeding {
    first: Bytes,
    inputs: mpsc::Receiver<Input>,
    is_terminal: bool,
}

impl Feeding {
    /// Passes input on as long as the command runs.
    async fn feed(mut self, mut input: call::Input) {
        // A command that does not read does not want the rest.
        let _gone = self.pass(&mut input).await;
        if !self.is_terminal {
            let _gone = input.shutdown().await;
        }
        // Dropping the input of a terminal would end it.
        std::future::pending::<()>().await;
    }

    async fn pass(&mut self, input: &mut call::Input) -> std::io::Result<()> {
        input.write_all(&self.first).await?;
        input.flush().await?;
        while let Some(came) = self.inputs.recv().await {
            match came {
                Input::Bytes(bytes) => input.write_all(&bytes).await?,
                Input::End if self.is_terminal => input.write_all(&[END_OF_TYPING]).await?,
                Input::End => return Ok(()),
            }
            input.flush().await?;
        }
        Ok(())
    }
}

/// A command between its caller and the engine.
struct Attended {
    started: Started,
    begun: Instant,
    /// Its deadline.
    until: Instant,
    /// What it wrote before its caller could read.
    early: Vec<(Stream, Bytes)>,
    output: mpsc::Sender<Output>,
    feeding: Feeding,
    ordered: mpsc::Receiver<Order>,
}

impl Attended {
    async fn attend(self, ending: LiveEnding) {
        let LiveEnding { result, mut given_up } = ending;
        let ended = tokio::select! {
            ended = self.end() => ended,
            // What is left is killed by its guard.
            _ = &mut given_up => return,
        };
        // The caller may be gone.
        drop(result.send(ended));
    }

    async fn end(self) -> Result<ExecResult> {
        let Self { started, begun, until, early, output, feeding, mut ordered } = self;
        let Started { mut call, input, mut guard, directory: _, held: _held } = started;
        let resizer = call.resizer();
        let timed_out = {
            let mut keep = std::pin::pin!(async {
                for (stream, bytes) in early {
                    tell(&output, stream, bytes).await;
                }
                while let Some(piece) = call.next().await? {
                    match piece {
                        Piece::Stdout(bytes) => tell(&output, Stream::Stdout, bytes).await,
                        Piece::Stderr(bytes) => tell(&output, Stream::Stderr, bytes).await,
                    }
                }
                Ok::<_, Error>(())
            });
            let carry_out = async {
                while let Some(order) = ordered.recv().await {
                    // When the command has ended already, nothing is done.
                    let _over = match order {
                        Order::Signal(signal) => guard.signal(signal).await,
                        Order::Resize(size) => resizer.resize(size).await,
                    };
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                kept = &mut keep => {
                    kept?;
                    false
                }
                () = feeding.feed(input) => false,
                () = carry_out => false,
                () = tokio::time::sleep_until(until) => {
                    guard.kill().await?;
                    // The streams end with the last process that held them; what is in them comes when the reader reads.
                    keep.await?;
                    true
                }
            }
        };
        let code = if timed_out { -1 } else { call.end().await? };
        if code > 128 {
            // Perhaps the shell itself, which would have ended what the command left.
            guard.kill().await?;
        }
        guard.over();
        Ok(exec::result(code, timed_out, begun.elapsed()))
    }
}

/// Gives output to the caller, who may be gone.
async fn tell(output: &mpsc::Sender<Output>, stream: Stream, mut bytes: Bytes) {
    while !bytes.is_empty() {
        let bytes = bytes.split_to(bytes.len().min(EVENT_BYTES_MAX));
        let _gone = output.send(Output { stream, bytes }).await;
    }
}

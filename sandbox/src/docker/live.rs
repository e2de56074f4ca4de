//! Commands in a container in which a caller takes part: output as it comes, input, signals, terminals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::call::{Piece, Resizer, Streams};
use super::containers::{Containers, Owner};
use super::exec::{self, Guard, Started};
use crate::asked::{Asked, Obey};
use crate::live::{LiveEnd, LiveEnding, LiveRun, LiveSpec, Order, Output, Stream};
use crate::wire::live::EVENT_BYTES_MAX;
use crate::{Error, ErrorKind, ExecResult, Result};

/// Pieces of output that wait for their reader, and of input that wait for the command.
const PIECES: usize = 4;
/// Orders that wait to be carried out.
const ORDERS: usize = 16;
/// How long the script may take until the command begins.
const BEGINNING: Duration = Duration::from_secs(60);

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
    let (input, inputs) = mpsc::channel(PIECES);
    let (orders, ordered) = mpsc::channel(ORDERS);
    let (end, ending) = LiveEnd::new();
    let is_terminal = terminal.is_some();
    let asked = Asked::new(inputs, ordered, stdin_open || is_terminal);
    let (early, stdin, until) = (first, command.stdin, begun + timeout);
    let attended = Attended { started, begun, until, early, output, stdin, is_terminal, asked };
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

/// What orders reach.
struct Obeying<'a> {
    guard: &'a Guard,
    resizer: Resizer,
}

impl Obey for Obeying<'_> {
    async fn carry_out(&self, order: Order) {
        // When the command has ended already, nothing is done.
        let _over = match order {
            Order::Signal(signal) => self.guard.signal(signal).await,
            Order::Resize(size) => self.resizer.resize(size).await,
        };
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
    /// The first bytes of its standard input.
    stdin: Bytes,
    is_terminal: bool,
    asked: Asked,
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
        let Self { started, begun, until, early, output, stdin, is_terminal, asked } = self;
        let Started { mut call, input, mut guard, directory: _, held: _held } = started;
        let resizer = call.resizer();
        let timed_out = {
            let obeying = Obeying { guard: &guard, resizer };
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
            tokio::select! {
                kept = &mut keep => {
                    kept?;
                    false
                }
                () = asked.serve(stdin, Some(input), is_terminal, &obeying) => false,
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

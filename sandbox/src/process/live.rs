//! A process in which a caller takes part: its output as it comes, its input piece by piece, signals, a terminal.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::family::{Family, MARK};
use super::terminal::InTerminal;
use super::{AFTERWARDS, kill, launcher, mark, not_started, not_waited_for, result, terminal};
use crate::asked::{Asked, Obey};
use crate::live::{LiveEnd, LiveEnding, LiveRun, Order, Output, Stream, WindowSize};
use crate::process::HeadTail;
use crate::{Error, ErrorKind, Result};

/// Pieces of output that wait for their reader.
const PIECES: usize = 2;
/// The bytes of a piece of output, at most.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces of input that wait for the command.
const FEEDS: usize = 4;
/// Orders that wait to be carried out.
const ORDERS: usize = 16;
/// How long a launcher may take to become the command until the run is taken for begun.
const LAUNCH: Duration = Duration::from_millis(200);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);
/// The most bytes that a launcher says.
const WORD_BYTES: u64 = 4096;
/// What is read of a stream after its command is over, at most: more than a pipe holds, so that another process writes it.
const BEYOND_BYTES: usize = 2 << 20;

/// The input and bounds of such a process, beside its [`Command`].
#[derive(Debug)]
pub(crate) struct LiveBounds {
    /// The first bytes of its standard input.
    pub(crate) stdin: Bytes,
    /// Whether more follow.
    pub(crate) stdin_open: bool,
    pub(crate) timeout: Duration,
    pub(crate) terminal: Option<WindowSize>,
    /// The program of its launcher, where the command begins with one.
    pub(crate) launcher: Option<String>,
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A process that was started.
struct Started {
    child: Child,
    family: Family,
    leader: Pid,
    begun: Instant,
    outputs: Vec<(Stream, Reader)>,
    input: Option<Writer>,
    terminal: Option<OwnedFd>,
}

/// What was written before it was known that the command runs.
#[derive(Default)]
struct Early(Vec<u8>, Option<ExitStatus>);

/// Starts `command`, whose environment is complete.
///
/// # Errors
/// As [`run`](super::run).
pub(crate) async fn begin(command: Command, bounds: LiveBounds) -> Result<LiveRun> {
    let mark = mark()?;
    let mut started = start(command, bounds.terminal, &mark)?;
    let early = match &bounds.launcher {
        Some(launcher) => launched(&mut started, launcher, &mark).await?,
        None => Early::default(),
    };
    let (output, outputs) = mpsc::channel(PIECES);
    let (input, inputs) = mpsc::channel(FEEDS);
    let (orders, ordered) = mpsc::channel(ORDERS);
    let (end, ending) = LiveEnd::new();
    let asked = Asked::new(inputs, ordered, bounds.stdin_open || bounds.terminal.is_some());
    tokio::spawn(attend(started, early, bounds, Ends { output, asked, ending }));
    Ok(LiveRun { output: outputs, input, orders, end })
}

fn start(mut command: Command, size: Option<WindowSize>, mark: &str) -> Result<Started> {
    let begun = Instant::now();
    command.env(MARK, mark).kill_on_drop(true);
    let (child, outputs, input, terminal) = if let Some(size) = size {
        let InTerminal { child, output, input, terminal } =
            terminal::spawn_in_terminal(command, size).map_err(not_started)?;
        let outputs: Vec<(Stream, Reader)> = vec![(Stream::Stdout, Box::new(output))];
        (child, outputs, Some(Box::new(input) as Writer), Some(terminal))
    } else {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = terminal::spawn(&mut command).map_err(not_started)?;
        let mut outputs: Vec<(Stream, Reader)> = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            outputs.push((Stream::Stdout, Box::new(pipe)));
        }
        if let Some(pipe) = child.stderr.take() {
            outputs.push((Stream::Stderr, Box::new(pipe)));
        }
        let input = child.stdin.take().map(|pipe| Box::new(pipe) as Writer);
        (child, outputs, input, None)
    };
    let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let leader =
        leader.ok_or_else(|| Error::new(ErrorKind::Internal, "exec", "the process has no number"))?;
    Ok(Started { child, family: Family::new(leader, mark), leader, begun, outputs, input, terminal })
}

/// Waits until the launcher has become the command.
///
/// # Errors
/// Why it could not.
async fn launched(started: &mut Started, launcher: &str, mark: &str) -> Result<Early> {
    let of_launcher = Path::new(launcher).canonicalize().ok();
    let exe = format!("/proc/{}/exe", started.leader.as_raw_nonzero());
    let until = Instant::now() + LAUNCH;
    while Instant::now() < until {
        // As long as the process is not waited for, its number is its own.
        if Path::new(&exe).read_link().ok().is_some_and(|exe| Some(exe) != of_launcher) {
            return Ok(Early::default());
        }
        if let Ok(Some(status)) = started.child.try_wait() {
            return ended_at_once(started, status, mark).await;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(Early::default())
}

/// A process that has ended already: as the command, or as its launcher, which tells why on the last stream.
async fn ended_at_once(started: &mut Started, status: ExitStatus, mark: &str) -> Result<Early> {
    let mut said = Vec::new();
    if let Some((_, stream)) = started.outputs.last_mut() {
        // A terminal without any process left is an error when all is read.
        let mut word = stream.take(WORD_BYTES);
        let _read = tokio::time::timeout(AFTERWARDS, word.read_to_end(&mut said)).await;
    }
    let text = String::from_utf8_lossy(&said).replace("\r\n", "\n");
    let (nothing, mut word) = (HeadTail::new(0), HeadTail::new(said.len()));
    word.push(text.as_bytes());
    match launcher::failure(mark, &result(status, false, started.begun, nothing, word)) {
        Some(error) => {
            started.family.disarm();
            Err(not_started(error))
        }
        None => Ok(Early(said, Some(status))),
    }
}

/// The process's ends of the channels.
struct Ends {
    output: mpsc::Sender<Output>,
    asked: Asked,
    ending: LiveEnding,
}

/// The life of the process.
async fn attend(started: Started, early: Early, bounds: LiveBounds, ends: Ends) {
    let Started { mut child, mut family, leader, begun, outputs, input, terminal } = started;
    let Ends { output, asked, ending } = ends;
    let LiveEnding { result: told, mut given_up } = ending;
    let Early(mut said, already) = early;
    let over = watch::Sender::new(false);
    let mut pumps = JoinSet::new();
    // What was said early came from the last stream.
    for (stream, pipe) in outputs.into_iter().rev() {
        let from = Source { stream, pipe, said: std::mem::take(&mut said) };
        pumps.spawn(pump(from, output.clone(), over.subscribe()));
    }
    drop(output);
    let mut deadline = std::pin::pin!(tokio::time::sleep_until((begun + bounds.timeout).into()));
    let obeying = Obeying { leader, terminal };
    let serving = asked.serve(bounds.stdin, input, bounds.terminal.is_some(), &obeying);
    let mut serving = std::pin::pin!(serving);
    let mut timed_out = false;
    let status = loop {
        let ended = async {
            match already {
                Some(status) => Ok(status),
                None => child.wait().await,
            }
        };
        tokio::select! {
            status = ended => break status,
            () = &mut deadline, if !timed_out => {
                timed_out = true;
                kill(&family).await;
            }
            () = &mut serving => return,
            // The family is killed when it is dropped.
            _ = &mut given_up => return,
        }
    };
    family.kill_group();
    over.send_replace(true);
    loop {
        tokio::select! {
            pumped = pumps.join_next() => match pumped {
                Some(Ok(Pumped::All)) => {}
                Some(_) => kill(&family).await,
                None => break,
            },
            _ = &mut given_up => return,
        }
    }
    family.disarm();
    let ended = match status {
        Ok(status) => Ok(result(status, timed_out, begun, HeadTail::new(0), HeadTail::new(0))),
        Err(error) => Err(not_waited_for(error)),
    };
    // The caller may be gone.
    drop(told.send(ended));
}

/// What orders reach. They are carried out while the process is not waited for yet, so that its number is its own.
struct Obeying {
    leader: Pid,
    terminal: Option<OwnedFd>,
}

impl Obey for Obeying {
    async fn carry_out(&self, order: Order) {
        // What has ended cannot be told anything.
        match order {
            Order::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal.number()) {
                    let _gone = kill_process_group(self.leader, signal);
                }
            }
            Order::Resize(size) => {
                if let Some(terminal) = &self.terminal {
                    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
                    let _gone = tcsetwinsize(terminal, size);
                }
            }
        }
    }
}

/// A stream of the command.
struct Source {
    stream: Stream,
    pipe: Reader,
    /// What was read of it already.
    said: Vec<u8>,
}

/// How reading a stream ended.
enum Pumped {
    /// It has no more.
    All,
    /// A process that outlives the command holds it, or the caller does not read.
    Held,
}

/// Hands on what a stream gives, until it ends, or until the command is over and the stream gives nothing more.
async fn pump(from: Source, output: mpsc::Sender<Output>, mut over: watch::Receiver<bool>) -> Pumped {
    let Source { stream, mut pipe, said } = from;
    let mut bytes = BytesMut::from(&*said);
    let mut beyond = 0;
    loop {
        if !bytes.is_empty() {
            if *over.borrow() {
                beyond += bytes.len();
            }
            if output.send(Output { stream, bytes: bytes.split().freeze() }).await.is_err()
                || beyond > BEYOND_BYTES
            {
                return Pumped::Held;
            }
        }
        bytes.reserve(PIECE_BYTES);
        let silence = async {
            let _ = over.wait_for(|is_over| *is_over).await;
            tokio::time::sleep(AFTERWARDS).await;
        };
        let mut piece = (&mut pipe).take(PIECE_BYTES as u64);
        tokio::select! {
            biased;
            // A terminal whose last process has ended is an error.
            read = piece.read_buf(&mut bytes) => if !matches!(read, Ok(1..)) { return Pumped::All },
            () = silence => return Pumped::Held,
        }
    }
}

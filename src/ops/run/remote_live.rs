//! A run in a remote workspace in which the caller takes part: its output as it comes, its input, signals, a terminal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Chunk, Encoding, ExecResult, Feed, ForeignResult, WindowSize};
use sandbox::live::{Input, LiveRun, LiveSpec, Output};
use sandbox::{HeadTail, live};
use storage::Absorbed;
use tokio::sync::{mpsc, oneshot};

use super::confined::Confined;
use super::control::RunControl;
use super::errand::{BEYOND, Errand, SIGNAL_CHARACTERS};
use super::event::Kind;
use super::record::{Phase, Recorded};

use super::RunOutcome;
use super::session::{LogWriter, Opening};
use crate::ops::admission::permits::Permit;
use crate::ops::said::bounded;
use crate::ops::{Error, Result, Service};
use crate::telemetry::span::Begun;

/// How much longer a run may take to end than its deadline says, because its machine was away: more than backends wait for it.
const AWAY: Duration = Duration::from_secs(600);

/// What a caller has of such a run.
pub(super) struct Part {
    /// The size of its terminal, where it has one.
    pub(super) terminal: Option<WindowSize>,
    /// What the caller types, where its input is open.
    pub(super) feeds: Option<mpsc::Receiver<Feed>>,
    /// Where it is told that the command runs, or why it does not.
    pub(super) told: oneshot::Sender<Result<()>>,
}

impl Service {
    /// The life of a remembered run in which the caller takes part.
    pub(super) async fn record_remote_live(
        self: Arc<Self>,
        recorded: Arc<Recorded>,
        permit: Permit,
        errand: Errand,
        part: Part,
    ) {
        let mut opening = Opening { service: &self, recorded: Arc::clone(&recorded), has_begun: false };
        let Errand { backend, spec, timeout, encoding, traced } = errand;
        let Part { terminal, feeds, told } = part;
        let (begun, since, most) = (Begun::now(), Instant::now(), self.run_limits.output_bytes);
        let spec = LiveSpec {
            command: spec,
            stdin_open: feeds.is_some(),
            terminal: terminal.map(|size| live::WindowSize { rows: size.rows, cols: size.cols }),
        };
        let mut kill = recorded.kill.subscribe();
        let started = tokio::select! {
            started = backend.sandbox().begin(backend.user(), spec) => {
                started.map_err(|error| backend.failed("exec", error))
            }
            _ = kill.wait_for(|is_killed| *is_killed) => Err(Error::NotNow("the run was killed before it began")),
            () = self.stop.cancelled() => Err(Error::Stopping),
        };
        let live = match started {
            Ok(live) => live,
            Err(error) => {
                drop(opening);
                drop(told.send(Err(error)));
                return;
            }
        };
        let LiveRun { mut output, input, orders, mut end } = live;
        *recorded.control.lock() = Some(RunControl::Remote(orders));
        recorded.log.append(Kind::Started, &[]).await;
        recorded.phase.send_replace(Phase::Running);
        // The caller may be gone.
        drop(told.send(Ok(())));
        let feeding = tokio::spawn(feed(feeds, input));
        let (mut stdout, mut stderr) = (HeadTail::new(most), HeadTail::new(most));
        let relay = async {
            let mut log = LogWriter::new(&recorded);
            while let Some(Output { stream, bytes }) = output.recv().await {
                let (kept, stream) = match stream {
                    live::Stream::Stdout => (&mut stdout, exec::Stream::Out),
                    live::Stream::Stderr => (&mut stderr, exec::Stream::Err),
                };
                kept.push(&bytes);
                log.write(Chunk { stream, bytes: bytes.into() }).await;
            }
            log.finish().await;
            end.wait().await
        };
        // What is not awaited to its end is killed: `end` is dropped.
        let ended = tokio::select! {
            ended = tokio::time::timeout(timeout + BEYOND + AWAY, relay) => match ended {
                Ok(ended) => ended.map(Some).map_err(|error| backend.failed("exec", error)),
                Err(_) => Err(backend.silent("exec")),
            },
            _ = kill.wait_for(|is_killed| *is_killed) => Ok(None),
            () = self.stop.cancelled() => Err(Error::Stopping),
        };
        drop(end);
        feeding.abort();
        drop(permit);
        let done = ended.map(|ended| outcome(ended, (stdout, stderr), since, encoding, backend.name()));
        self.tell(traced, begun, done.as_ref().ok().map(|outcome| &outcome.result));
        opening.has_begun = true;
        drop(opening);
        self.conclude(recorded, done.map(|outcome| (outcome, None))).await;
    }
}

/// Passes on what a caller types, until the caller or the command has enough.
async fn feed(feeds: Option<mpsc::Receiver<Feed>>, input: mpsc::Sender<Input>) {
    let Some(mut feeds) = feeds else { return };
    loop {
        let fed = tokio::select! {
            fed = feeds.recv() => fed,
            // Then no caller waits for a command that reads no more.
            () = input.closed() => return,
        };
        let input_sent = match fed {
            Some(Feed::Bytes(bytes)) => input.send(Input::Bytes(bytes.into())).await,
            Some(Feed::End) => input.send(Input::End).await,
            None => return,
        };
        if input_sent.is_err() {
            return;
        }
    }
}

/// The outcome of a run in which a caller took part; `None` of one that was killed.
fn outcome(
    ended: Option<sandbox::ExecResult>,
    (stdout, stderr): (HeadTail, HeadTail),
    begun: Instant,
    encoding: Encoding,
    backend: &str,
) -> RunOutcome {
    let ((stdout, stdout_dropped_bytes), (stderr, stderr_dropped_bytes)) = (stdout.finish(), stderr.finish());
    let (exit_code, signal, timed_out, hint) = match ended {
        Some(ended) => (ended.exit_code, ended.signal, ended.timed_out, ended.hint),
        None => {
            let hint = "the command was given up, which tells its backend to kill it".to_owned();
            (-1, Some("SIGKILL".to_owned()), false, Some(hint))
        }
    };
    let told = ForeignResult {
        stdout: stdout.into(),
        stdout_dropped_bytes,
        stderr: stderr.into(),
        stderr_dropped_bytes,
        exit_code: exit_code.clamp(-1, 255),
        signal: signal.map(|signal| signal.chars().take(SIGNAL_CHARACTERS).collect()),
        timed_out,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    let hint = hint.map(|hint| bounded(&hint));
    let result = ExecResult::of_foreign(told, encoding, Confined::remote(backend), hint);
    RunOutcome { result, absorbed: Absorbed::default(), changes: None, reached: None }
}

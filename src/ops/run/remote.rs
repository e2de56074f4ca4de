//! A run that another backend makes: what of a request it can be asked for, and how its one answer becomes a run like any
//! other, with a name, events and an end.
//!
//! Where a caller can take part in a command, that is done ([`super::remote_live`]). Other backends tell nothing before the command has
//! ended: then all output comes at the end, standard output first, and of much of it only the first and last part.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exec::{ExecResult, Feed, ForeignResult, Stream};
use futures_util::FutureExt;
use policy::TreeId;
use sandbox::HeadTail;
use storage::Absorbed;
use tokio::sync::{mpsc, oneshot};

use super::confined::Confined;
use super::errand::{BEYOND, Errand, SIGNAL_CHARACTERS, unsupported};
use super::event::{Cutter, Kind};
use super::record::{Phase, Purpose, Recorded};
use super::remote_live::Part;
use super::session::{END_OF_TYPING, Opening, UNSEEN};
use super::{RunOutcome, RunRequest};
use crate::ops::admission::permits::Permit;
use crate::ops::remote::Backend;
use crate::ops::{Error, Result, Service};
use crate::telemetry::span::Begun;

/// How long a backend has to refuse a command before the caller that waits for its beginning is told that it runs.
const REFUSAL: Duration = Duration::from_secs(1);
/// The most bytes of each stream that are asked for where events are read: they are held in memory until they are events.
const STREAM_BYTES: usize = 8 * 1024 * 1024;
/// How much output is cut into events at once, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// More bytes than any command writes: a backend that says so is not believed.
const BYTES_MAX: u64 = 1 << 53;

/// The outcome of an errand.
pub(super) struct Done {
    outcome: RunOutcome,
    /// More than the outcome has, where events are read.
    stdout: Bytes,
    stderr: Bytes,
}

impl Service {
    /// Has `backend` run a command, and waits for its end.
    pub(super) async fn run_remotely(
        self: &Arc<Self>,
        id: TreeId,
        backend: Arc<Backend>,
        request: RunRequest,
    ) -> Result<RunOutcome> {
        let errand = self.errand(&id, backend, request, None, self.run_limits.output_bytes).await?;
        let permit = self.backends.permits.take(id.user()).await?;
        let service = Arc::clone(self);
        let run = self.runs.spawn(async move { service.carry_out_remotely(permit, errand, pending()).await });
        Ok(run.await.map_err(|_| Error::Panicked)??.outcome)
    }

    /// Starts a remembered run: as soon as the backend is asked it runs, unless the backend refuses it soon.
    pub(super) async fn send_out(
        self: &Arc<Self>,
        recorded: Arc<Recorded>,
        (backend, mut request, is_streamed): (Arc<Backend>, RunRequest, bool),
        feeds: Option<mpsc::Receiver<Feed>>,
    ) -> Result<()> {
        let mut opening = Opening { service: self, recorded: Arc::clone(&recorded), has_begun: false };
        let is_live = backend.sandbox().has_live(backend.user());
        let terminal = match recorded.purpose {
            Purpose::Terminal(size) => Some(size),
            Purpose::Attached | Purpose::Background => request.tty.then_some(UNSEEN),
        };
        if !is_live && (terminal.is_some() || feeds.is_some()) {
            // A machine that is away could, perhaps.
            backend.path(&request.dir).await?;
        }
        if !is_live && terminal.is_some() {
            return Err(unsupported(&backend, "give a command a terminal"));
        }
        if !is_live && feeds.is_some() {
            return Err(unsupported(&backend, "feed a command that runs: send all of its input as `stdin`"));
        }
        if terminal.is_some() && feeds.is_none() {
            request.stdin.get_or_insert_default().extend(END_OF_TYPING);
        }
        let limits = self.session_limits_of(recorded.tree.agent());
        let (longest, permits) = match recorded.purpose {
            Purpose::Background => (Some(limits.background_ms), &self.background),
            Purpose::Terminal(_) => (Some(limits.terminal_ms), &self.terminals),
            Purpose::Attached => (None, &self.backends.permits),
        };
        let is_read = is_streamed || longest.is_some();
        let kept_bytes = if is_read { STREAM_BYTES } else { self.run_limits.output_bytes };
        let errand = self.errand(&recorded.tree, backend, request, longest, kept_bytes).await?;
        let permit = permits.take(recorded.tree.user()).await?;
        let (told, hears) = oneshot::channel();
        // From here on the run's task looks after the name.
        opening.has_begun = true;
        let service = Arc::clone(self);
        if is_live {
            let part = Part { terminal, feeds, told };
            self.runs.spawn(service.record_remote_live(recorded, permit, errand, part));
        } else {
            let refusal = is_read.then_some(REFUSAL);
            self.runs.spawn(service.record_remotely(recorded, permit, errand, told, refusal));
        }
        hears.await.unwrap_or(Err(Error::Panicked))
    }

    /// The life of a remembered run.
    async fn record_remotely(
        self: Arc<Self>,
        recorded: Arc<Recorded>,
        permit: Permit,
        errand: Errand,
        told: oneshot::Sender<Result<()>>,
        refusal: Option<Duration>,
    ) {
        let mut opening = Opening { service: &self, recorded: Arc::clone(&recorded), has_begun: false };
        recorded.log.append(Kind::Started, &[]).await;
        recorded.phase.send_replace(Phase::Running);
        let mut kill = recorded.kill.subscribe();
        let killed = async move {
            if kill.wait_for(|is_killed| *is_killed).await.is_err() {
                pending::<()>().await;
            }
        };
        let mut carried = std::pin::pin!(self.carry_out_remotely(permit, errand, killed));
        let mut told = Some(told);
        let soon = async {
            match refusal {
                Some(refusal) => tokio::time::sleep(refusal).await,
                None => pending().await,
            }
        };
        let done = tokio::select! {
            done = &mut carried => done,
            () = soon => {
                // The caller may be gone.
                told.take().map(|told| told.send(Ok(())));
                carried.await
            }
        };
        let done = match (done, told) {
            (Err(error), Some(told)) => {
                drop(opening);
                drop(told.send(Err(error)));
                return;
            }
            (done, told) => {
                told.map(|told| told.send(Ok(())));
                done
            }
        };
        opening.has_begun = true;
        if let Ok(done) = &done {
            write(&recorded, Stream::Out, &done.stdout).await;
            write(&recorded, Stream::Err, &done.stderr).await;
        }
        drop(opening);
        Arc::clone(&self).conclude(recorded, done.map(|done| (done.outcome, None))).await;
    }

    /// Does an errand, and gives it up when it is `killed`, which a backend takes for an order to kill the command.
    async fn carry_out_remotely(
        &self,
        permit: Permit,
        errand: Errand,
        killed: impl Future<Output = ()>,
    ) -> Result<Done> {
        let Errand { backend, spec, timeout, encoding, traced } = errand;
        let (begun, since) = (Begun::now(), Instant::now());
        let most = spec.output_bytes_max;
        // A run that was told to have begun has an end, even when its backend fails.
        let asked = AssertUnwindSafe(async { backend.sandbox().exec(backend.user(), spec).await });
        let answer = tokio::time::timeout(timeout + BEYOND, asked.catch_unwind());
        let ended = tokio::select! {
            answer = answer => match answer {
                Ok(Ok(answer)) => answer.map(Some).map_err(|error| backend.failed("exec", error)),
                Ok(Err(_)) => Err(Error::Panicked),
                Err(_) => Err(backend.silent("exec")),
            },
            () = killed => Ok(None),
            () = self.stop.cancelled() => Err(Error::Stopping),
        };
        drop(permit);
        let done = ended.map(|ended| {
            let took = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let confined = Confined::remote(backend.name());
            Done::new(ended, most, self.run_limits.output_bytes, |told, hint| {
                let told = ForeignResult { duration_ms: took, ..told };
                ExecResult::of_foreign(told, encoding, confined, hint)
            })
        });
        self.tell(traced, begun, done.as_ref().ok().map(|done| &done.outcome.result));
        done
    }
}

impl Done {
    /// Of an answer, or of a command that was given up: at most `most` bytes of each stream, and of those in the result
    /// at most `told_bytes`.
    fn new(
        ended: Option<sandbox::ExecResult>,
        most: usize,
        told_bytes: usize,
        result: impl FnOnce(ForeignResult, Option<String>) -> ExecResult<Confined>,
    ) -> Self {
        let given_up =
            "the command was given up, which tells its backend to kill it; what it wrote is not known";
        let hint = ended.is_none().then(|| given_up.to_owned());
        let ended = ended.unwrap_or_else(|| sandbox::ExecResult {
            stdout: Bytes::new(),
            stderr: Bytes::new(),
            stdout_dropped_bytes: 0,
            stderr_dropped_bytes: 0,
            exit_code: -1,
            signal: Some("SIGKILL".to_owned()),
            timed_out: false,
            duration: Duration::ZERO,
            hint: None,
        });
        let (stdout, stdout_dropped) = cut(ended.stdout, ended.stdout_dropped_bytes.min(BYTES_MAX), most);
        let (stderr, stderr_dropped) = cut(ended.stderr, ended.stderr_dropped_bytes.min(BYTES_MAX), most);
        let (told_stdout, stdout_dropped_bytes) = cut(stdout.clone(), stdout_dropped, told_bytes);
        let (told_stderr, stderr_dropped_bytes) = cut(stderr.clone(), stderr_dropped, told_bytes);
        let told = ForeignResult {
            stdout: told_stdout.into(),
            stdout_dropped_bytes,
            stderr: told_stderr.into(),
            stderr_dropped_bytes,
            exit_code: ended.exit_code.clamp(-1, 255),
            signal: ended.signal.map(|signal| signal.chars().take(SIGNAL_CHARACTERS).collect()),
            timed_out: ended.timed_out,
            duration_ms: 0,
        };
        let result = result(told, hint);
        Self {
            outcome: RunOutcome { result, absorbed: Absorbed::default(), changes: None, reached: None },
            stdout,
            stderr,
        }
    }
}

/// At most `most` of `bytes`, of which `dropped` are missing already, and how many are missing then.
fn cut(bytes: Bytes, dropped: u64, most: usize) -> (Bytes, u64) {
    if bytes.len() <= most {
        return (bytes, dropped);
    }
    let mut kept = HeadTail::new(most);
    kept.push(&bytes);
    let (kept, more) = kept.finish();
    (kept, dropped + more)
}

/// Writes one stream of a command that has ended into the log of its run.
async fn write(recorded: &Recorded, stream: Stream, bytes: &[u8]) {
    let mut cutter = Cutter::default();
    for piece in bytes.chunks(PIECE_BYTES) {
        for payload in cutter.push(piece.to_vec()) {
            recorded.log.append(stream.into(), &payload).await;
        }
    }
    if let Some(payload) = cutter.finish() {
        recorded.log.append(stream.into(), &payload).await;
    }
}

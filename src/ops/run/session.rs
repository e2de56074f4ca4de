//! Starting runs that are remembered by a name, and what goes on in their task.

use std::sync::Arc;
use std::time::Duration;

use exec::{Chunk, Control, Live, Stream, WindowSize};
use sandbox::ErrorKind;
use tokio::sync::{mpsc, oneshot};

use super::control::RunControl;
use super::event::{Cutter, Kind};
use super::id::ExecId;
use super::pending::{Decision, Pending, Verdict};
use super::plan::Planned;
use super::record::{Follower, Phase, Purpose, Recorded};
use super::table::{Claim, Plan};
use super::{Commit, Fingerprint, RunOutcome, RunRequest, RunTarget};
use crate::audit::Entry;
use crate::metrics::Outcome;
use crate::ops::admission::permits::Permit;
use crate::ops::{Error, Result, Service};

/// Pieces of output on their way to the log, of at most 64 KiB each.
const CHUNKS: usize = 2;
/// Pieces of input on their way to the command.
const FEEDS: usize = 4;
/// The size of a terminal that no caller looks at, in characters.
pub(super) const UNSEEN: WindowSize = WindowSize { rows: 24, cols: 80 };
/// What a terminal reads as the end of what was typed: the first of them ends a line, the second is the end (`VEOF`,
/// termios(3)).
pub(super) const END_OF_TYPING: [u8; 2] = [4, 4];

/// A run that is to be remembered.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its name; `None`: the service makes one up.
    pub id: Option<ExecId>,
    /// Its purpose.
    pub purpose: Purpose,
    /// Whether its standard input stays open for [`Recorded::feed`].
    pub stdin_open: bool,
    /// Whether a caller reads its events from the beginning.
    pub is_streamed: bool,
}

/// The parts of a run that has a permit.
struct Outset {
    permit: Permit,
    planned: Planned,
    live: Live,
    output: mpsc::Receiver<Chunk>,
    control: oneshot::Receiver<Control>,
    /// Where it is told that the command runs, or why it does not.
    told: oneshot::Sender<Result<()>>,
}

/// Gives a name back when the run does not begin.
pub(super) struct Opening<'a> {
    pub(super) service: &'a Service,
    pub(super) recorded: Arc<Recorded>,
    pub(super) has_begun: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.has_begun {
            self.service.table.forget(&self.recorded);
            // No reader is to wait for its first event.
            self.recorded.log.close();
            self.recorded.phase.send_replace(Phase::NeverBegan);
        }
    }
}

/// A remembered run whose command runs.
pub struct BeganRun {
    /// The run.
    pub recorded: Arc<Recorded>,
    /// Whether this request started it; the same request with the same name finds the one that it started before.
    pub is_new: bool,
    /// Attached before the command began, where [`Recording::is_streamed`].
    follower: Option<Follower>,
}

impl BeganRun {
    /// Reads the events of the run from the first one on. None has given way when the run is new and streamed.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn follow(self) -> Result<Follower> {
        match self.follower {
            Some(follower) => Ok(follower),
            None => self.recorded.follow(0),
        }
    }
}

impl Service {
    /// Starts a run that is remembered, and waits until its command runs. The run goes on when the caller goes away.
    ///
    /// # Errors
    /// As [`Service::run`]; [`Error::NameTaken`].
    pub async fn begin(
        self: &Arc<Self>,
        target: RunTarget,
        request: RunRequest,
        recording: Recording,
    ) -> Result<BeganRun> {
        let RunTarget { tree, backend } = target;
        if self.stopping.has_begun() {
            return Err(Error::Stopping);
        }
        let fingerprint = Fingerprint::of(&request, &recording);
        let is_streamed = recording.is_streamed;
        let id = match recording.id {
            Some(id) => id,
            None => ExecId::fresh()?,
        };
        let is_terminal = matches!(recording.purpose, Purpose::Terminal(_));
        loop {
            let (feed, feeds) = mpsc::channel(FEEDS);
            let has_feed = recording.stdin_open || is_terminal;
            let plan = Plan {
                tree: tree.clone(),
                id: id.clone(),
                purpose: recording.purpose,
                command: request.command.shown(),
                fingerprint,
                feed: has_feed.then_some(feed),
                reads: self.admission.reads_of(tree.user()),
            };
            match self.table.claim(&self.store, plan)? {
                Claim::New(recorded) => {
                    // Before the command writes anything: what no reader waits for may give way.
                    let follower = is_streamed.then(|| recorded.follow(0)).transpose()?;
                    let feeds = has_feed.then_some(feeds);
                    match backend {
                        Some(backend) => {
                            let errand = (backend, request, is_streamed);
                            self.send_out(Arc::clone(&recorded), errand, feeds).await?;
                        }
                        None => self.set_out(Arc::clone(&recorded), request, feeds).await?,
                    }
                    return Ok(BeganRun { recorded, is_new: true, follower });
                }
                Claim::There(recorded) => match recorded.begun().await {
                    // The first caller was told why; this one tries by itself.
                    Phase::NeverBegan => {}
                    _ => return Ok(BeganRun { recorded, is_new: false, follower: None }),
                },
            }
        }
    }

    async fn set_out(
        self: &Arc<Self>,
        recorded: Arc<Recorded>,
        mut request: RunRequest,
        input: Option<mpsc::Receiver<exec::Feed>>,
    ) -> Result<()> {
        let mut opening = Opening { service: self, recorded: Arc::clone(&recorded), has_begun: false };
        let limits = self.session_limits_of(recorded.tree.agent());
        let (longest, permits) = match recorded.purpose {
            Purpose::Attached => (None, &self.permits),
            Purpose::Background => (Some(limits.background_ms), &self.background),
            Purpose::Terminal(_) => (Some(limits.terminal_ms), &self.terminals),
        };
        let is_aside = request.commit == Commit::Ask;
        let terminal = match recorded.purpose {
            Purpose::Terminal(size) => Some(size),
            Purpose::Attached | Purpose::Background => request.tty.then_some(UNSEEN),
        };
        if terminal.is_some() && input.is_none() {
            // A pipe is closed; a terminal has to be told.
            request.stdin.get_or_insert_default().extend(END_OF_TYPING);
        }
        let mut planned = self.plan(&recorded.tree, request, longest).await?;
        if is_aside {
            planned.aside = Some(self.undecided.take(recorded.tree.user()).await?);
        }
        let permit = permits.take(recorded.tree.user()).await?;
        let (output_sender, output) = mpsc::channel(CHUNKS);
        let (begun, control) = oneshot::channel();
        let (told, hears) = oneshot::channel();
        let kill = recorded.kill.subscribe();
        let live = Live { output: output_sender, input, begun, kill, terminal };
        let outset = Outset { permit, planned, live, output, control, told };
        // From here on the run's task looks after the name.
        opening.has_begun = true;
        let service = Arc::clone(self);
        self.runs.spawn(async move { service.record(recorded, outset).await });
        hears.await.unwrap_or(Err(Error::Panicked))
    }

    /// The life of a remembered run.
    async fn record(self: Arc<Self>, recorded: Arc<Recorded>, outset: Outset) {
        let mut opening = Opening { service: &self, recorded: Arc::clone(&recorded), has_begun: false };
        let Outset { permit, planned, live, output, control, told } = outset;
        let run = self.run_planned(permit, planned, Some(live));
        let write = write(&recorded, output, control, told);
        let (outcome, told) = tokio::join!(run, write);
        let outcome = outcome.map(|(mut outcome, pending)| {
            self.stopping.explain(&mut outcome.result);
            (outcome, pending)
        });
        let outcome = match (told, outcome) {
            (Some(told), Err(error)) => {
                // The command never ran.
                drop(opening);
                drop(told.send(Err(error)));
                return;
            }
            (Some(told), ended) => {
                // The deadline passed while the run was being set up: it has a result as any other run, and begins with
                // it.
                recorded.log.append(Kind::Started, &[]).await;
                recorded.phase.send_replace(Phase::Running);
                drop(told.send(Ok(())));
                ended
            }
            (None, outcome) => outcome,
        };
        opening.has_begun = true;
        drop(opening);
        self.conclude(recorded, outcome).await;
    }

    /// Keeps how a remembered run ended, and forgets it after its time.
    pub(super) async fn conclude(
        self: Arc<Self>,
        recorded: Arc<Recorded>,
        outcome: Result<(RunOutcome, Option<Pending>)>,
    ) {
        let ended = outcome.as_ref().map_or(Outcome::Failed, |(outcome, _)| Outcome::of(&outcome.result));
        self.audit.note(Entry::of_run(&recorded.tree, recorded.id.as_str(), ended.word()));
        match outcome {
            Ok((outcome, pending)) => {
                if pending.is_some() {
                    *recorded.verdict.lock() = Some(Verdict { decision: Decision::Open, pending });
                }
                recorded.keep(&self.store, Ok(&outcome)).await;
            }
            Err(error) => recorded.keep(&self.store, Err(sentence(&error))).await,
        }
        recorded.log.append(Kind::Exit, &[]).await;
        recorded.log.close();
        drop(recorded.control.lock().take());
        recorded.phase.send_replace(Phase::Ended);
        let (service, stop) = (Arc::clone(&self), self.stop.clone());
        let remembered = Duration::from_millis(self.table.limits().ended_ms);
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(remembered) => service.table.forget_old(),
                () = stop.cancelled() => {}
            }
        });
    }
}

/// Writes what a run does into its log until its output ends. Gives `told` back when the command never ran.
async fn write(
    recorded: &Recorded,
    mut output: mpsc::Receiver<Chunk>,
    control: oneshot::Receiver<Control>,
    told: oneshot::Sender<Result<()>>,
) -> Option<oneshot::Sender<Result<()>>> {
    let Ok(control) = control.await else { return Some(told) };
    *recorded.control.lock() = Some(RunControl::Here(control));
    recorded.log.append(Kind::Started, &[]).await;
    recorded.phase.send_replace(Phase::Running);
    // The caller may be gone.
    drop(told.send(Ok(())));
    let mut log = LogWriter::new(recorded);
    while let Some(chunk) = output.recv().await {
        log.write(chunk).await;
    }
    log.finish().await;
    None
}

/// Writes output into the log of a run, as events that cut no character.
pub(super) struct LogWriter<'a> {
    recorded: &'a Recorded,
    out: Cutter,
    err: Cutter,
}

impl<'a> LogWriter<'a> {
    pub(super) fn new(recorded: &'a Recorded) -> Self {
        Self { recorded, out: Cutter::default(), err: Cutter::default() }
    }

    /// Writes the next piece.
    pub(super) async fn write(&mut self, Chunk { stream, bytes }: Chunk) {
        let cutter = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        for payload in cutter.push(bytes) {
            self.recorded.log.append(stream.into(), &payload).await;
        }
    }

    /// Writes what was held back, when nothing more comes.
    pub(super) async fn finish(mut self) {
        for (stream, cutter) in [(Stream::Out, &mut self.out), (Stream::Err, &mut self.err)] {
            if let Some(payload) = cutter.finish() {
                self.recorded.log.append(stream.into(), &payload).await;
            }
        }
    }
}

/// The sentence about a run that failed after it had begun. Causes inside the service go to its log.
fn sentence(error: &Error) -> String {
    match error {
        Error::Stopping | Error::Removed | Error::Exec(exec::Error::LauncherDied) => error.to_string(),
        Error::Remote { kind, .. } if *kind != ErrorKind::Internal => error.to_string(),
        other => {
            tracing::error!(error = ?other, "a run failed inside the service: its caller is told so");
            "the run failed inside the service after it had begun".to_owned()
        }
    }
}

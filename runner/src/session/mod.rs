//! [`Session`]: the requests of one connection, from frame to frame.
//!
//! * [`calls`]: how many requests may be under way, and how one is given up.
//! * [`answer`]: frames on their way out. [`told`]: results in the words of the wire.
//! * [`files`], [`exec`], [`live`], [`founding`]: what is asked. [`open`]: files that are open between requests.

mod answer;
mod calls;
mod exec;
mod files;
mod founding;
mod live;
mod open;
mod told;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{AbortHandle, AbortRegistration, Abortable};
use sandbox::wire::request::{Handle, Unread};
use sandbox::wire::response::Failed;
use sandbox::wire::{FRAME_BYTES_MAX, Feature, Founding, Frame, Request, Response};
use sandbox::{ErrorKind, Sandbox, SandboxPath, UserId};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use self::answer::Answers;
use self::calls::{Calls, Slot};
use self::founding::Streams;
use self::open::{Ask, OpenFiles};
use crate::Runs;
use crate::download::Downloads;
use crate::transfer::Courier;

/// Frames of a service that are no requests. An answer to them would begin an exchange without end.
const UNANSWERED: [&str; 3] = ["error", "ok", "register_ok"];
/// Whole files that are in memory at once, each up to a frame.
const WHOLE_FILES: usize = 4;
/// How long a session that is closed waits for what it gave up.
const CLOSING: Duration = Duration::from_secs(2);

/// What one connection asks of this machine, and what it is answered.
///
/// * Requests are served at once and answered in any order, with their ids; requests of one open file in theirs.
/// * At most [`CALLS_MAX`](sandbox::wire::CALLS_MAX) are under way; more are answered `EBUSY`.
/// * When it is dropped, commands that run are killed, and files that are not finished are dropped.
#[derive(Debug)]
pub struct Session {
    machine: Arc<Machine>,
    calls: Calls,
    files: OpenFiles,
    tasks: TaskTracker,
}

/// What every request of a session works with.
#[derive(Debug)]
struct Machine {
    sandbox: Arc<dyn Sandbox>,
    user: UserId,
    /// Where relative paths begin, and what may not be removed.
    workspace: SandboxPath,
    /// Whether both sides have [`Feature::Exact`].
    is_exact: bool,
    /// Whether both sides have [`Feature::Live`].
    is_live: bool,
    /// Whether both sides have [`Feature::Swap`].
    has_versions: bool,
    runs: Runs,
    answers: Answers,
    whole_files: Semaphore,
    /// What carries large files over HTTP, when both sides have [`Feature::Transfers`].
    courier: Option<Courier>,
    /// Processes with streams, as founding services ask for them.
    streams: Streams,
    downloads: Downloads,
}

impl Session {
    /// A session in `workspace`, the [`Sandbox::workspace`] of the user of `runs`; they go on when the session ends. Frames to the service
    /// go to `outgoing`.
    #[must_use]
    pub fn new(
        runs: Runs,
        workspace: SandboxPath,
        features: &[Feature],
        outgoing: mpsc::Sender<String>,
    ) -> Self {
        Self::with_courier(runs, workspace, features, outgoing, None)
    }

    /// As [`Session::new`], with what carries large files over HTTP.
    pub(crate) fn with_courier(
        runs: Runs,
        workspace: SandboxPath,
        features: &[Feature],
        outgoing: mpsc::Sender<String>,
        courier: Option<Courier>,
    ) -> Self {
        let machine = Machine {
            sandbox: Arc::clone(runs.sandbox()),
            user: runs.user().clone(),
            workspace,
            is_exact: features.contains(&Feature::Exact),
            is_live: features.contains(&Feature::Live),
            has_versions: features.contains(&Feature::Exact) && features.contains(&Feature::Swap),
            answers: Answers::new(outgoing, runs.outcomes().clone()),
            runs,
            whole_files: Semaphore::new(WHOLE_FILES),
            downloads: Downloads::new(courier.as_ref().map(Courier::way)),
            streams: Streams::default(),
            courier: courier.filter(|_| features.contains(&Feature::Transfers)),
        };
        let tasks = TaskTracker::new();
        Self {
            machine: Arc::new(machine),
            calls: Calls::default(),
            files: OpenFiles::new(tasks.clone()),
            tasks,
        }
    }

    /// Takes a frame of the service. It waits only for room for a refusal, until the receiver of the frames reads or is gone.
    pub async fn receive(&self, text: &str) {
        let Some(frame) =
            Some(text).filter(|text| text.len() <= FRAME_BYTES_MAX).and_then(|text| Frame::parse(text).ok())
        else {
            debug!(bytes = text.len(), "a frame that is none was ignored");
            return;
        };
        if UNANSWERED.contains(&&*frame.kind) {
            debug!(kind = %frame.kind.escape_debug(), "a frame that is no request was ignored");
            return;
        }
        let id = frame.id.as_deref();
        let refused = match Request::read(&frame) {
            Ok(Request::Cancel(cancel)) => return self.calls.cancel(&cancel.request),
            Ok(Request::Close(file)) => return self.files.close(file.handle),
            Ok(Request::Founding(request)) if self.machine.founding_order(&request) => return,
            Ok(request) if self.machine.order(&request) => return,
            Ok(request) => match self.calls.enter(id, text.len()) {
                Ok((slot, abort)) => match self.serve(request, slot, abort) {
                    Ok(()) => return,
                    Err(refused) => refused,
                },
                Err(refused) => {
                    self.spoil(&frame);
                    refused
                }
            },
            Err(Unread::Unknown) => {
                let kind: String = frame.kind.chars().take(64).collect();
                Failed::new(ErrorKind::Invalid, format!("unknown request type: {kind}"))
            }
            Err(Unread::Invalid(sentence)) => {
                self.spoil(&frame);
                Failed::new(ErrorKind::Invalid, sentence)
            }
        };
        info!(kind = %frame.kind.escape_debug(), outcome = %refused.code, "refused");
        self.machine.answers.say(id, &Response::Error(refused)).await;
    }

    /// A file whose piece was refused must not be finished without it.
    fn spoil(&self, frame: &Frame<'_>) {
        if frame.kind == "write_piece"
            && let Ok(file) = frame.body::<Handle>()
        {
            self.files.spoil(file.handle);
        }
    }

    fn serve(&self, request: Request, slot: Slot, abort: AbortRegistration) -> Result<(), Failed> {
        let machine = Arc::clone(&self.machine);
        let is_change = machine.is_live && request.is_change();
        if let Some(id) = slot.id().filter(|_| is_change) {
            machine.runs.outcomes().begin(id);
        }
        // A change comes to its end, so that it can be told how it went.
        let abort = if is_change { AbortHandle::new_pair().1 } else { abort };
        match request {
            // Requests of one file go into its queue here, in the order in which they came.
            Request::ReadPiece(file) => return self.files.ask(file.handle, Ask::Read, slot),
            Request::WritePiece(piece) => {
                return self.files.ask(piece.handle, Ask::Write(piece.data.0), slot);
            }
            Request::FinishWrite(file) => return self.files.ask(file.handle, Ask::Finish, slot),
            Request::SendFile(transfer) | Request::FetchFile(transfer) if !transfer.has_plain_id() => {
                return Err(Failed::new(ErrorKind::Invalid, "the transfer has no name"));
            }
            Request::SendFile(transfer) => {
                return self.files.ask(transfer.handle, Ask::Send(transfer, abort), slot);
            }
            Request::FetchFile(transfer) => {
                return self.files.ask(transfer.handle, Ask::Fetch(transfer, abort), slot);
            }
            Request::OpenRead(_) | Request::OpenWrite(_) => {
                let files = self.files.clone();
                self.tasks.spawn(Abortable::new(
                    async move {
                        let line = Line::begin(&machine, &request);
                        line.end(files.open(machine.clone(), request, slot.id()).await);
                    },
                    abort,
                ));
            }
            request => {
                self.tasks.spawn(Abortable::new(
                    async move {
                        let line = Line::begin(&machine, &request);
                        let _turn = match request {
                            Request::ReadFile(_) => machine.whole_files.acquire().await.ok(),
                            _ => None,
                        };
                        let response = machine.answer(request, slot.id()).await;
                        line.end(outcome(&response));
                        machine.answers.end(slot, &response).await;
                    },
                    abort,
                ));
            }
        }
        Ok(())
    }

    /// Tells how many requests are under way, also after the session.
    pub(crate) fn under_way(&self) -> impl Fn() -> usize + Send + Sync + use<> {
        let calls = self.calls.clone();
        move || calls.count()
    }

    fn give_up(&self) {
        self.calls.cancel_all();
        self.files.close_all();
        self.machine.streams.close_all();
        self.tasks.close();
    }

    /// Gives everything up, and waits a moment until it is gone.
    pub async fn close(self) {
        self.give_up();
        let _gone = tokio::time::timeout(CLOSING, self.tasks.wait()).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Machine {
    async fn answer(&self, request: Request, id: Option<&str>) -> Response {
        let done = match request {
            Request::Exec(asked) => self.exec(asked, id).await,
            Request::ReadFile(asked) => self.read_file(&asked.path).await,
            Request::WriteFile(asked) => self.write_file(asked).await,
            Request::Stat(asked) => self.stat(&asked.path).await,
            Request::ReadDir(asked) => self.read_dir(&asked.path, id).await,
            Request::MkdirAll(asked) => self.mkdir_all(&asked).await,
            Request::Remove(asked) => self.remove(&asked.path).await,
            Request::RemoveAll(asked) => self.remove_all(&asked.path).await,
            Request::Founding(asked) => self.founding(asked).await,
            request if self.is_live => self.take_part(request).await,
            other => Err(Failed::new(ErrorKind::Invalid, format!("unknown request type: {}", other.kind()))),
        };
        done.unwrap_or_else(Response::Error)
    }

    /// The path that `text` means: relative ones begin at the workspace.
    fn path(&self, text: &str) -> Result<SandboxPath, Failed> {
        self.workspace.join(text).map_err(|error| match error {
            // Above `/` is outside the workspace, as every other place there is.
            sandbox::SandboxPathError::AboveRoot(_) => {
                Failed::new(ErrorKind::PermissionDenied, "the path leads out of the workspace")
            }
            error => Failed::new(ErrorKind::Invalid, error.to_string()),
        })
    }
}

/// The word of the log for an answer.
fn outcome(response: &Response) -> String {
    match response {
        Response::Error(failed) => failed.code.clone(),
        Response::ExecResult(result) if result.timed_out => "timed out".to_owned(),
        Response::ExecResult(result) => format!("exit {}", result.exit_code),
        _ => "ok".to_owned(),
    }
}

/// A line of the log about a request: no contents, and no path outside the workspace.
struct Line {
    kind: &'static str,
    path: String,
    begun: Instant,
}

impl Line {
    fn begin(machine: &Machine, request: &Request) -> Self {
        let path = match request {
            Request::Exec(asked) => &asked.dir,
            Request::ReadFile(asked)
            | Request::Stat(asked)
            | Request::ReadDir(asked)
            | Request::Remove(asked)
            | Request::RemoveAll(asked) => &asked.path,
            Request::WriteFile(asked) => &asked.path,
            Request::MkdirAll(asked) => &asked.path,
            Request::OpenRead(asked) => &asked.path,
            Request::OpenWrite(asked) => &asked.path,
            Request::Begin(asked) => &asked.command.dir,
            Request::Founding(Founding::DownloadFile(asked)) => &asked.output_path,
            Request::Founding(Founding::BgExec(asked)) => &asked.command.dir,
            Request::Founding(Founding::StdioStart(asked) | Founding::PtyCreate(asked)) => &asked.dir,
            _ => "",
        };
        Self::of(machine, request.kind(), machine.path(path).ok().as_ref())
    }

    fn of(machine: &Machine, kind: &'static str, path: Option<&SandboxPath>) -> Self {
        let below = path.and_then(|path| path.below(&machine.workspace));
        let path = below.map_or("(outside)", |below| if below.is_empty() { "." } else { below });
        Self { kind, path: path.to_owned(), begun: Instant::now() }
    }

    fn end(self, outcome: String) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(kind = self.kind, path = %self.path, outcome = %outcome, ms, "served");
    }
}

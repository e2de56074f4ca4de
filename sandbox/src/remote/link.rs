//! [`Link`]: one connection to a runner. Requests go out, answers find the callers that wait for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::transfer::Transfers;
use crate::process::HeadTail;
use crate::wire::response::{DirEntry, Stream};
use crate::wire::{CALLS_MAX, FRAME_BYTES_MAX, Feature, Frame, Register, Request, Response};
use crate::{DIR_ENTRIES_MAX, Error, ErrorKind, Result, SandboxPath, UserId};

/// Frames that wait to be sent, at most.
const WAITING_FRAMES: usize = 64;
/// Bytes of frames that wait to be sent, at most: two of the largest.
const WAITING_BYTES: usize = 2 * FRAME_BYTES_MAX;
/// The shell of runners that tell none.
const SHELL: &str = "/bin/sh";
/// The longest name of a shell, in bytes.
const SHELL_BYTES: usize = 256;

/// A frame on its way to a runner; the room that it takes is free once it is dropped.
#[derive(Debug)]
pub struct Outgoing {
    /// The text of the frame.
    pub text: String,
    _room: OwnedSemaphorePermit,
}

/// A connection to the runner of one user.
///
/// * At most [`CALLS_MAX`] requests wait for answers; further ones are [`ErrorKind::Busy`].
/// * When the connection ends, every request that waits fails at once with [`ErrorKind::Disconnected`].
#[derive(Debug)]
pub struct Link {
    user: UserId,
    workspace: SandboxPath,
    shell: String,
    is_exact: bool,
    /// Where large files go over HTTP; `None` when the runner has no way there.
    transfers: Option<Arc<Transfers>>,
    /// Whether the runner found no way there.
    has_no_way: AtomicBool,
    outgoing: mpsc::Sender<Outgoing>,
    room: Arc<Semaphore>,
    next: AtomicU64,
    /// Requests that wait for their answers; `None` once the connection has ended.
    pending: Mutex<Option<HashMap<String, Pending>>>,
}

#[derive(Debug)]
struct Pending {
    answer: Answer,
    caller: oneshot::Sender<Result<Answer, Unusable>>,
}

/// An answer that makes no sense.
#[derive(Debug)]
struct Unusable;

/// An answer, with the parts that came ahead of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) stdout: HeadTail,
    pub(super) stderr: HeadTail,
    pub(super) entries: Vec<DirEntry>,
}

/// A request and what it may cost.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) operation: &'static str,
    pub(super) request: &'a Request,
    /// How long the answer may take.
    pub(super) patience: Duration,
    /// The most bytes of each output stream to keep.
    pub(super) output_bytes_max: usize,
}

impl Link {
    /// A connection of `user` that was registered so, and the frames to be sent on it.
    ///
    /// # Errors
    /// The sentence for the runner: its workspace is no absolute path.
    pub fn new(
        user: UserId,
        register: &Register,
        features: &[Feature],
    ) -> Result<(Arc<Self>, mpsc::Receiver<Outgoing>), String> {
        Self::with_transfers(user, register, features, None)
    }

    /// As [`Link::new`]; large files go through `transfers` when `features` has [`Feature::Transfers`].
    ///
    /// # Errors
    /// As [`Link::new`].
    pub fn with_transfers(
        user: UserId,
        register: &Register,
        features: &[Feature],
        transfers: Option<Arc<Transfers>>,
    ) -> Result<(Arc<Self>, mpsc::Receiver<Outgoing>), String> {
        let workspace = SandboxPath::parse(&register.workspace)
            .map_err(|_| "`workspace` must be an absolute path of at most 4095 bytes".to_owned())?;
        let is_usable = !register.shell.is_empty()
            && register.shell.len() <= SHELL_BYTES
            && !register.shell.chars().any(char::is_control);
        let shell = if is_usable { register.shell.clone() } else { SHELL.to_owned() };
        let (outgoing, sent) = mpsc::channel(WAITING_FRAMES);
        let link = Self {
            user,
            workspace,
            shell,
            is_exact: features.contains(&Feature::Exact),
            transfers: transfers.filter(|_| features.contains(&Feature::Transfers)),
            has_no_way: AtomicBool::new(false),
            outgoing,
            room: Arc::new(Semaphore::new(WAITING_BYTES)),
            // Names of two connections are not confused, should a runner mix them up.
            next: AtomicU64::new(getrandom::u64().unwrap_or_default()),
            pending: Mutex::new(Some(HashMap::new())),
        };
        Ok((Arc::new(link), sent))
    }

    /// The user whose machine it is.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }

    /// The user's directory on that machine, as the runner reported it.
    #[must_use]
    pub fn workspace(&self) -> &SandboxPath {
        &self.workspace
    }

    /// The shell there.
    #[must_use]
    pub fn shell(&self) -> &str {
        &self.shell
    }

    /// Whether the runner has [`Feature::Exact`].
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Where large files go over HTTP, if the runner has [`Feature::Transfers`] and a way there.
    pub(super) fn transfers(&self) -> Option<&Arc<Transfers>> {
        self.transfers.as_ref().filter(|_| !self.has_no_way.load(Ordering::Relaxed))
    }

    /// Notes that the runner found no way to the transfers: later files go in pieces.
    pub(super) fn has_no_way(&self) {
        self.has_no_way.store(true, Ordering::Relaxed);
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.pending.lock().is_none()
    }

    /// Takes a frame of the runner. What answers no request that waits is ignored.
    pub fn receive(&self, text: &str) {
        let Ok(frame) = Frame::parse(text) else { return };
        let (Some(id), Some(read)) = (frame.id.as_deref(), Response::read(&frame)) else { return };
        let mut pending = self.pending.lock();
        let Some(table) = pending.as_mut() else { return };
        let response = match read {
            Ok(part) if part.is_part() => match table.get_mut(id).map(|waiting| waiting.answer.take(part)) {
                Some(Err(unusable)) => Err(unusable),
                _ => return,
            },
            Ok(response) => Ok(response),
            Err(_) => Err(Unusable),
        };
        let Some(waiting) = table.remove(id) else { return };
        drop(pending);
        let answered = response.map(|response| Answer { response, ..waiting.answer });
        // The caller may have gone.
        let _ = waiting.caller.send(answered);
    }

    /// Ends the connection: every request that waits fails.
    pub fn end(&self) {
        drop(self.pending.lock().take());
    }

    /// Asks the runner, and waits for its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Timeout`], [`ErrorKind::Busy`]; [`ErrorKind::Internal`] for an answer that cannot be
    /// read.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Answer> {
        let Call { operation, request, patience, output_bytes_max } = call;
        let failed = |kind, message: &str| Error::new(kind, operation, message);
        let (caller, mut answered) = oneshot::channel();
        let id = format!("req_{:016x}", self.next.fetch_add(1, Ordering::Relaxed));
        let text = request.to_text(Some(&id), self.user.as_str());
        if text.len() > FRAME_BYTES_MAX {
            let message = format!(
                "a request to a runner has at most {FRAME_BYTES_MAX} bytes: write long input to a file"
            );
            return Err(failed(ErrorKind::TooLarge, &message));
        }
        {
            let mut pending = self.pending.lock();
            let table = pending.as_mut().ok_or_else(|| disconnected(operation))?;
            if table.len() >= CALLS_MAX {
                let message = format!("{CALLS_MAX} requests wait for the runner already: try again later");
                return Err(failed(ErrorKind::Busy, &message));
            }
            table.insert(id.clone(), Pending { answer: Answer::new(output_bytes_max), caller });
        }
        let mut waiting = Waiting { link: self, id: &id, was_sent: false };
        let asked = async {
            tokio::select! {
                sent = self.send(text) => sent.map_err(|()| disconnected(operation))?,
                // The connection ended while the frame waited for room.
                ended = &mut answered => return Ok::<_, Error>(ended),
            }
            waiting.was_sent = true;
            Ok(answered.await)
        };
        match tokio::time::timeout(patience, asked).await {
            Err(_) => Err(failed(ErrorKind::Timeout, "the runner did not answer in time")),
            Ok(Err(error)) => Err(error),
            Ok(Ok(Err(_))) => Err(disconnected(operation)),
            Ok(Ok(Ok(Err(Unusable)))) => {
                Err(failed(ErrorKind::Internal, "the runner's answer cannot be read: is it of this version?"))
            }
            Ok(Ok(Ok(Ok(answer)))) => Ok(answer),
        }
    }

    /// Says something that has no answer, when there is room for it.
    pub(super) fn tell(&self, request: &Request) {
        if self.has_ended() {
            return;
        }
        let text = request.to_text(None, self.user.as_str());
        let (outgoing, room) = (self.outgoing.clone(), Arc::clone(&self.room));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(send(outgoing, room, text));
        }
    }

    async fn send(&self, text: String) -> Result<(), ()> {
        send(self.outgoing.clone(), Arc::clone(&self.room), text).await
    }
}

async fn send(outgoing: mpsc::Sender<Outgoing>, room: Arc<Semaphore>, text: String) -> Result<(), ()> {
    let bytes = u32::try_from(text.len().min(WAITING_BYTES)).unwrap_or(u32::MAX);
    let room = room.acquire_many_owned(bytes).await.map_err(|_| ())?;
    outgoing.send(Outgoing { text, _room: room }).await.map_err(|_| ())
}

fn disconnected(operation: &'static str) -> Error {
    let message = "the runner is not connected: start it, or wait until it has connected again";
    Error::new(ErrorKind::Disconnected, operation, message)
}

impl Answer {
    fn new(output_bytes_max: usize) -> Self {
        Self {
            response: Response::Ok,
            stdout: HeadTail::new(output_bytes_max),
            stderr: HeadTail::new(output_bytes_max),
            entries: Vec::new(),
        }
    }

    fn take(&mut self, part: Response) -> Result<(), Unusable> {
        match part {
            Response::ExecOutput(output) => match output.stream {
                Stream::Stdout => self.stdout.push(&output.data.0),
                Stream::Stderr => self.stderr.push(&output.data.0),
            },
            Response::DirPart(part) => {
                if self.entries.len() + part.entries.len() > DIR_ENTRIES_MAX {
                    return Err(Unusable);
                }
                self.entries.extend(part.entries);
            }
            _ => return Err(Unusable),
        }
        Ok(())
    }
}

/// A request that is given up when this is dropped before the answer.
struct Waiting<'a> {
    link: &'a Link,
    id: &'a str,
    was_sent: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let is_waiting =
            self.link.pending.lock().as_mut().is_some_and(|table| table.remove(self.id).is_some());
        if is_waiting && self.was_sent && self.link.is_exact {
            self.link.tell(&Request::Cancel(crate::wire::request::Cancel { request: self.id.to_owned() }));
        }
    }
}

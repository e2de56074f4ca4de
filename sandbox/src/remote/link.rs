//! [`Link`]: one connection to a runner. Requests go out, answers find the callers that wait for them, and events of runs those who
//! take part in them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::answer::{Answer, Unusable};
use super::transfer::Transfers;
use crate::wire::request::Cancel;
use crate::wire::{CALLS_MAX, FRAME_BYTES_MAX, Feature, Frame, Register, Request, Response, live};
use crate::{Error, ErrorKind, Result, SandboxPath, UserId};

/// Frames that wait to be sent, at most.
const WAITING_FRAMES: usize = 64;
/// Bytes of frames that wait to be sent, at most: two of the largest.
const WAITING_BYTES: usize = 2 * FRAME_BYTES_MAX;
/// Words without an answer that wait until there is room to send them, at most: some 2 KiB of memory each.
const WAITING_WORDS: usize = 1024;
/// The shell of runners that tell none.
const SHELL: &str = "/bin/sh";
/// The longest name of a shell, in bytes.
const SHELL_BYTES: usize = 256;

/// The longest name of a process that is kept, in characters.
const INSTANCE_CHARACTERS: usize = 64;

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
    is_live: bool,
    has_versions: bool,
    /// Names the process of the runner; empty where none is told.
    instance: String,
    /// Where large files go over HTTP; `None` when the runner has no way there.
    transfers: Option<Arc<Transfers>>,
    /// Whether the runner found no way there.
    has_no_way: AtomicBool,
    outgoing: mpsc::Sender<Outgoing>,
    room: Arc<Semaphore>,
    /// Places for words that wait for room.
    words: Arc<Semaphore>,
    next: AtomicU64,
    /// Requests that wait for their answers; `None` once the connection has ended.
    pending: Mutex<Option<HashMap<String, Pending>>>,
    /// Runs that are attached to this connection; `None` once it has ended.
    runs: Mutex<Option<HashMap<String, mpsc::Sender<live::Event>>>>,
}

/// A run's place on a connection: its events, until the connection ends. The place is free when this is dropped.
#[derive(Debug)]
pub(super) struct Attached {
    link: Arc<Link>,
    run: String,
    events: mpsc::Receiver<live::Event>,
}

impl Attached {
    /// The next event; `None` when the connection has ended, or the runner sends more than was agreed.
    pub(super) async fn next(&mut self) -> Option<live::Event> {
        self.events.recv().await
    }

    /// The connection.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(runs) = self.link.runs.lock().as_mut() {
            runs.remove(&self.run);
        }
    }
}

#[derive(Debug)]
struct Pending {
    answer: Answer,
    caller: oneshot::Sender<Result<Answer, Unusable>>,
}

/// A request and what it may cost.
#[derive(Clone, Copy, Debug)]
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
            is_live: features.contains(&Feature::Exact) && features.contains(&Feature::Live),
            has_versions: features.contains(&Feature::Exact) && features.contains(&Feature::Swap),
            instance: register.instance.chars().take(INSTANCE_CHARACTERS).collect(),
            transfers: transfers.filter(|_| features.contains(&Feature::Transfers)),
            has_no_way: AtomicBool::new(false),
            outgoing,
            room: Arc::new(Semaphore::new(WAITING_BYTES)),
            words: Arc::new(Semaphore::new(WAITING_WORDS)),
            // Names of two connections are not confused, should a runner mix them up.
            next: AtomicU64::new(getrandom::u64().unwrap_or_default()),
            pending: Mutex::new(Some(HashMap::new())),
            runs: Mutex::new(Some(HashMap::new())),
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

    /// Whether the runner has [`Feature::Live`].
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether the runner has [`Feature::Swap`].
    #[must_use]
    pub fn has_versions(&self) -> bool {
        self.has_versions
    }

    /// Whether it is the same process of a runner as that of `former`.
    pub(super) fn is_same_process(&self, former: &Self) -> bool {
        !self.instance.is_empty() && self.instance == former.instance
    }

    /// Takes the events of `run` on this connection.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Busy`].
    pub(super) fn attached(self: &Arc<Self>, run: &str) -> Result<Attached> {
        let mut runs = self.runs.lock();
        let table = runs.as_mut().ok_or_else(|| disconnected("exec"))?;
        if table.len() >= live::RUNS_MAX {
            let message =
                format!("{} commands run on the runner already: wait for one of them", live::RUNS_MAX);
            return Err(Error::new(ErrorKind::Busy, "exec", message));
        }
        let (sender, events) = mpsc::channel(live::UNACKNOWLEDGED_MAX);
        table.insert(run.to_owned(), sender);
        Ok(Attached { link: Arc::clone(self), run: run.to_owned(), events })
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
        if let Some(event) = live::Event::read(&frame) {
            return self.hand_over(event);
        }
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

    /// Gives an event to who takes part in its run. A run with more events than were agreed, or larger ones, is attached no longer.
    fn hand_over(&self, event: std::result::Result<live::Event, String>) {
        let Ok(event) = event else { return };
        let mut runs = self.runs.lock();
        let Some(table) = runs.as_mut() else { return };
        let Some(sender) = table.get(&event.run) else { return };
        let is_small = match &event.what {
            live::What::Output(_, data) => data.0.len() <= live::EVENT_BYTES_MAX,
            live::What::End(Ok(result)) => result.stdout.is_empty() && result.stderr.is_empty(),
            live::What::End(Err(_)) => true,
        };
        let run = event.run.clone();
        if !is_small || matches!(sender.try_send(event), Err(TrySendError::Full(_))) {
            table.remove(&run);
        }
    }

    /// Ends the connection: every request that waits fails, and no run is attached to it any more.
    pub fn end(&self) {
        drop(self.pending.lock().take());
        drop(self.runs.lock().take());
    }

    /// Asks the runner, and waits for its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Timeout`], [`ErrorKind::Busy`]; [`ErrorKind::Internal`] for an answer that cannot be
    /// read.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Answer> {
        self.call_as(&self.name(), call).await
    }

    /// A name for a request.
    pub(super) fn name(&self) -> String {
        format!("req_{:016x}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// As [`Link::call`], under a name of [`Link::name`].
    pub(super) async fn call_as(&self, id: &str, call: Call<'_>) -> Result<Answer> {
        let Call { operation, request, patience, output_bytes_max } = call;
        let failed = |kind, message: &str| Error::new(kind, operation, message);
        let (caller, mut answered) = oneshot::channel();
        let text = request.to_text(Some(id), self.user.as_str());
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
            table.insert(id.to_owned(), Pending { answer: Answer::new(output_bytes_max), caller });
        }
        let mut waiting = Waiting { link: self, id, was_sent: false };
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

    /// Says something that has no answer, when there is room for it. When too much waits for that, the machine does not read, and
    /// the connection ends.
    pub(super) fn tell(&self, request: &Request) {
        if self.has_ended() {
            return;
        }
        let text = request.to_text(None, self.user.as_str());
        // At once where there is room, so that what is told comes in order.
        let bytes = u32::try_from(text.len().min(WAITING_BYTES)).unwrap_or(u32::MAX);
        let text = match (self.outgoing.try_reserve(), Arc::clone(&self.room).try_acquire_many_owned(bytes)) {
            (Ok(place), Ok(room)) => return place.send(Outgoing { text, _room: room }),
            _ => text,
        };
        let Ok(place) = Arc::clone(&self.words).try_acquire_owned() else { return self.end() };
        let (outgoing, room) = (self.outgoing.clone(), Arc::clone(&self.room));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The connection may have ended.
                let _ = send(outgoing, room, text).await;
                drop(place);
            });
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

pub(super) fn disconnected(operation: &'static str) -> Error {
    let message = "the runner is not connected: start it, or wait until it has connected again";
    Error::new(ErrorKind::Disconnected, operation, message)
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
            self.link.tell(&Request::Cancel(Cancel { request: self.id.to_owned() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> (Arc<Link>, mpsc::Receiver<Outgoing>) {
        let register = Register { workspace: "/w".to_owned(), ..Register::default() };
        Link::new(UserId::parse("u").unwrap(), &register, &[Feature::Exact]).unwrap()
    }

    fn word(number: usize) -> Request {
        Request::Cancel(Cancel { request: number.to_string() })
    }

    #[tokio::test]
    async fn what_a_machine_is_told_waits_until_it_reads() {
        let (link, mut frames) = link();
        let all = WAITING_FRAMES + WAITING_WORDS;
        (0..all).for_each(|number| link.tell(&word(number)));
        assert!(!link.has_ended());
        let mut told = std::collections::BTreeSet::new();
        for _ in 0..all {
            told.insert(frames.recv().await.unwrap().text);
        }
        assert_eq!(told.len(), all);
        // Places are free again.
        (0..all).for_each(|number| link.tell(&word(number)));
        assert!(!link.has_ended());
    }

    #[tokio::test]
    async fn a_machine_that_does_not_read_loses_its_connection() {
        let (link, frames) = link();
        (0..=WAITING_FRAMES + WAITING_WORDS).for_each(|number| link.tell(&word(number)));
        assert!(link.has_ended());
        // With the connection goes what waited.
        drop(frames);
        while link.words.available_permits() < WAITING_WORDS {
            tokio::task::yield_now().await;
        }
    }
}

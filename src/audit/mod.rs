//! The audit log: who changed what, in files that nobody who is logged can reach.
//!
//! Records are lines of JSON, each with the hash of the one before ([`record`]). They lie in `.filesecbox/audit/`, in
//! files that are only ever appended to by the process that made them: each start, and each file that grew too large,
//! is followed by another ([`files`]). One thread writes ([`writer`]); what it cannot write keeps further changes from
//! being made, so that nothing is done unseen. [`verify`] reads it all.
//!
//! A change goes through three steps: [`Audit::reserve`] before it, which refuses when there is no room or no way to
//! write; the change; and [`Slot::write`], which returns when the record is written, as durably as configured. A
//! change whose caller has gone meanwhile is recorded as `unanswered` when its slot is dropped.

pub mod files;
pub mod record;
pub mod verify;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::Dir;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

pub use self::record::{Entry, UNANSWERED};
use self::writer::{Job, Writer};
use crate::metrics::Shared;

/// How long the answer to a change waits for its record.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests of nobody known that are recorded in a second; of more, the number is.
const STRANGERS_PER_SECOND: u64 = 20;

/// How records are written.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether a record counts as written only when it survives a loss of power.
    pub is_strict: bool,
    /// The size from which a file is followed by another, in bytes.
    pub file_bytes: u64,
    /// What all files together may have, in bytes.
    pub total_bytes: u64,
    /// Records that may wait.
    pub queue: usize,
}

/// Why a change is not made, or not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unwritable {
    /// Too many records wait to be written.
    #[error("too many changes wait for the audit log: try again in a second")]
    Full,
    /// The disk has no room for records.
    #[error("the audit log cannot be written because the disk is full, and nothing is changed without it")]
    NoSpace,
    /// Writing fails.
    #[error(
        "the audit log cannot be written, and nothing is changed without it: the operator finds why in the log"
    )]
    Failing,
    /// The change was made, and its record was not written in time.
    #[error(
        "the change was made, but its audit record is not written yet: look at the outcome before another try"
    )]
    Late,
}

/// What the writer tells everybody.
#[derive(Debug, Default)]
struct State {
    is_failing: AtomicBool,
    is_full_disk: AtomicBool,
}

/// The way to the audit log.
pub struct Audit {
    /// `None` where nothing is recorded.
    open: Option<Open>,
}

struct Open {
    jobs: mpsc::Sender<Job>,
    slots: Arc<Semaphore>,
    state: Arc<State>,
    strangers: Mutex<Strangers>,
}

/// Counts the requests of callers whom nobody knows, who could otherwise push everything else out of the files.
struct Strangers {
    since: Instant,
    recorded: u64,
    suppressed: u64,
}

/// Room for one record about a change.
pub struct Slot {
    room: Option<(mpsc::Sender<Job>, OwnedSemaphorePermit)>,
    /// What to record when nobody is there any more to be answered.
    unanswered: Option<Box<dyn FnOnce() -> Entry + Send>>,
}

impl Audit {
    /// Records nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { open: None }
    }

    /// Goes on with the files in `dir`, and records that the service has started.
    ///
    /// # Errors
    /// Those of `dir`.
    pub fn open(dir: Dir, settings: Settings, metrics: Shared) -> storage::Result<Self> {
        let state = Arc::new(State::default());
        let writer = Writer::open(dir, settings, Arc::clone(&state), metrics)?;
        // Everybody who sends holds a permit or uses `try_send`, so that the channel is never what is waited for.
        let (jobs, queue) = mpsc::channel(settings.queue.max(1) * 2);
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|source| storage::Error::Io { operation: "start", path: "audit".to_owned(), source })?;
        let slots = Arc::new(Semaphore::new(settings.queue.clamp(1, Semaphore::MAX_PERMITS)));
        let strangers = Mutex::new(Strangers { since: Instant::now(), recorded: 0, suppressed: 0 });
        Ok(Self { open: Some(Open { jobs, slots, state, strangers }) })
    }

    /// Tells whether changes can be recorded, or none have to be.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.state.is_failing.load(Ordering::Relaxed))
    }

    /// Takes room for a record about a change that is about to be made.
    ///
    /// # Errors
    /// Every [`Unwritable`] but [`Unwritable::Late`]: the change must not be made.
    pub fn reserve(&self) -> Result<Slot, Unwritable> {
        let Some(open) = &self.open else { return Ok(Slot { room: None, unanswered: None }) };
        if open.state.is_failing.load(Ordering::Relaxed) {
            return Err(open.state.why());
        }
        let permit = Arc::clone(&open.slots).try_acquire_owned().map_err(|_| Unwritable::Full)?;
        Ok(Slot { room: Some((open.jobs.clone(), permit)), unanswered: None })
    }

    /// Records what was refused or read, if there is room; nobody waits for it.
    pub fn note(&self, entry: Entry) {
        let Some(open) = &self.open else { return };
        let Some(entry) =
            (if entry.role.is_some() { Some(entry) } else { open.strangers.lock().admit(entry) })
        else {
            return;
        };
        if open.jobs.try_send(Job { entry, written: None, permit: None }).is_err() {
            tracing::warn!("a refused request is missing from the audit log: too many records wait");
        }
    }

    /// Records an act of the service itself and waits until it is written, for at most ten seconds.
    pub async fn act(&self, action: &'static str) {
        match self.reserve() {
            Ok(slot) => drop(slot.write(Entry::of_service(action)).await),
            Err(error) => {
                tracing::error!(%error, action, "an act of the service is missing from the audit log")
            }
        }
    }
}

impl State {
    fn why(&self) -> Unwritable {
        if self.is_full_disk.load(Ordering::Relaxed) { Unwritable::NoSpace } else { Unwritable::Failing }
    }
}

impl Strangers {
    fn admit(&mut self, mut entry: Entry) -> Option<Entry> {
        if self.since.elapsed() >= Duration::from_secs(1) {
            (self.since, self.recorded) = (Instant::now(), 0);
        }
        if self.recorded >= STRANGERS_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.recorded += 1;
        entry.suppressed = std::mem::take(&mut self.suppressed);
        Some(entry)
    }
}

impl Slot {
    /// Lets `entry` be recorded if this slot is dropped before it is written to.
    pub fn expect(&mut self, entry: impl FnOnce() -> Entry + Send + 'static) {
        self.unanswered = Some(Box::new(entry));
    }

    /// Gives the room back unused.
    pub fn release(mut self) {
        self.unanswered = None;
    }

    /// Records `entry` and waits until it is written.
    ///
    /// # Errors
    /// [`Unwritable::Late`]: the record is kept and will be written when that becomes possible.
    pub async fn write(mut self, entry: Entry) -> Result<(), Unwritable> {
        self.unanswered = None;
        let Some((jobs, permit)) = self.room.take() else { return Ok(()) };
        let (written, done) = oneshot::channel();
        let job = Job { entry, written: Some(written), permit: Some(permit) };
        jobs.try_send(job).map_err(|_| Unwritable::Late)?;
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Unwritable::Late),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let (Some(entry), Some((jobs, permit))) = (self.unanswered.take(), self.room.take()) {
            let job = Job { entry: entry(), written: None, permit: Some(permit) };
            if jobs.try_send(job).is_err() {
                tracing::error!(
                    "a change is missing from the audit log: its caller had gone and too many records wait"
                );
            }
        }
    }
}

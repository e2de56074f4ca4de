//! The audit log: which caller changed what, in files that no logged caller can reach.
//!
//! Records are lines of JSON, each with the hash of the one before ([`record`]). They lie in `.filesecbox/audit/`, in
//! files that are only ever appended to by the process that made them: each start, and each file that grew too large,
//! is followed by another ([`files`]). [`verify`] reads it all.
//!
//! A change goes through three steps: [`Audit::reserve`] before it, which refuses when there is no room or no way to
//! write; the change; and [`Slot::write`], which returns when the record is written, as durably as configured. A
//! change whose caller has gone meanwhile is recorded as `unanswered` when its slot is dropped. So nothing is done
//! unseen. [`Audit::admit`] refuses changes of a caller who has filled the log with others ([`account`]).
//!
//! A file that is full is sealed ([`seals`]), and goes when the log is too large and the file old enough
//! ([`retention`]). So a caller can neither push out what others did nor have files go unnoticed.
//!
//! A record goes into the page cache where its request is answered, which takes microseconds ([`chain`]); what has to
//! wait, for the disk, for another file or for a record that is being written, is left to one thread ([`writer`]).

pub mod account;
mod chain;
pub mod files;
pub mod key;
pub mod page;
pub mod record;
mod retention;
pub mod seals;
mod slot;
mod standing;
pub mod text;
pub mod verify;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::Dir;
use thiserror::Error;
use tokio::sync::Semaphore;

use self::account::Accounts;
pub use self::account::{Account, Effect};
use self::chain::Chain;
pub use self::record::{Entry, UNANSWERED};
pub use self::slot::Slot;
use self::writer::Job;
use crate::metrics;

/// How records are written.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which records are on the disk before what they are about is acknowledged.
    pub syncs: Syncs,
    /// The size from which a file is followed by another, in bytes.
    pub file_bytes: u64,
    /// The size of all files together, in bytes.
    pub total_bytes: u64,
    /// How old a file is at least when it goes.
    pub least_age: Duration,
    /// Whether changes are refused while the log is too large and its files are too young to go; else it grows.
    pub refuses: bool,
    /// The bytes that one account may add in a day; 0 for any number.
    pub account_bytes: u64,
    /// Records that may wait.
    pub queue: usize,
}

/// Which records are waited for until they survive a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// None, and none is written to the disk before the kernel does so.
    Nothing,
    /// None; all are on the disk within about a second.
    Soon,
    /// Those about what is itself waited for: changes, but not runs, which leave their files to the kernel. The
    /// others are on the disk within about a second.
    Changes,
    /// All.
    Everything,
}

/// Why a change is not made, or not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unwritable {
    /// Too many records wait to be written.
    #[error("too many changes wait for the audit log: try again in a second")]
    Full,
    /// The caller has filled its part of the log.
    #[error(
        "this caller's changes have filled its part of the audit log (`audit.account_bytes` in a day): make fewer and \
         larger changes, or go on later; reading goes on"
    )]
    Spent {
        /// Until there is room for another record.
        seconds: u64,
    },
    /// The log may not grow, and nothing in it may go.
    #[error(
        "the audit log is full and keeps its files for `audit.keep_days`: the operator raises `audit.total_bytes` or \
         lowers `audit.keep_days`"
    )]
    Kept,
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

/// The way to the audit log.
pub struct Audit {
    /// `None` where nothing is recorded.
    open: Option<Open>,
}

struct Open {
    settings: Settings,
    /// The files, for reading.
    dir: Dir,
    way: Way,
    slots: Arc<Semaphore>,
}

/// How records get into the log.
#[derive(Clone)]
struct Way {
    shared: Arc<Shared>,
    jobs: SyncSender<Job>,
}

/// The state that requests and the writer share.
struct Shared {
    chain: Mutex<Chain>,
    accounts: Mutex<Accounts>,
    syncs: Syncs,
    /// Whether changes are refused while the log is overdue.
    refuses: bool,
    is_overdue: AtomicBool,
    /// Whether something was counted and not recorded since the writer looked last.
    has_folded: AtomicBool,
    is_failing: AtomicBool,
    is_full_disk: AtomicBool,
    /// Whether a record was written since the last wait for the disk for which no request waits.
    is_dirty: AtomicBool,
    metrics: metrics::Shared,
}

impl Audit {
    /// Records nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { open: None }
    }

    /// Goes on with the files in `dir`, seals them with the key in `keys`, and records that the service has started.
    ///
    /// # Errors
    /// Those of both directories.
    pub fn open(dir: Dir, keys: &Dir, settings: Settings, metrics: metrics::Shared) -> storage::Result<Self> {
        let read = dir.reopen()?;
        let (chain, started) = Chain::open(dir, keys, settings)?;
        let shared = Arc::new(Shared {
            chain: Mutex::new(chain),
            accounts: Mutex::new(Accounts::new(settings.account_bytes, Instant::now())),
            syncs: settings.syncs,
            refuses: settings.refuses,
            is_overdue: AtomicBool::new(false),
            has_folded: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            is_full_disk: AtomicBool::new(false),
            is_dirty: AtomicBool::new(false),
            metrics,
        });
        // A caller that waits for its record holds a permit, so that there is room for all of those and as many others.
        let (jobs, queue) = sync_channel(settings.queue.max(1) * 2);
        let writing = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer::run(&writing, started, &queue))
            .map_err(|source| storage::Error::Io { operation: "start", path: "audit".to_owned(), source })?;
        let slots = Arc::new(Semaphore::new(settings.queue.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self { open: Some(Open { settings, dir: read, way: Way { shared, jobs }, slots }) })
    }

    /// How records are written; `None` where none are.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        self.open.as_ref().map(|open| &open.settings)
    }

    /// Records behind number `after` that `keep` tells to keep, `most` at most; `None` where nothing is recorded. It blocks.
    ///
    /// # Errors
    /// Those of reading files.
    pub fn page(
        &self,
        after: u64,
        most: usize,
        keep: &dyn Fn(&Entry) -> bool,
    ) -> storage::Result<Option<page::Page>> {
        self.open.as_ref().map(|open| page::read(&open.dir, after, most, keep)).transpose()
    }

    /// Tells whether changes can be recorded, or none have to be.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.way.shared.is_failing.load(Ordering::Relaxed))
    }

    /// Takes room for a record about a change that is about to be made.
    ///
    /// # Errors
    /// Every [`Unwritable`] but [`Unwritable::Late`]: the change must not be made.
    pub fn reserve(&self) -> Result<Slot, Unwritable> {
        let Some(open) = &self.open else { return Ok(Slot { room: None, unanswered: None }) };
        let shared = &open.way.shared;
        if shared.is_failing.load(Ordering::Relaxed) {
            return Err(shared.why());
        }
        if shared.refuses && shared.is_overdue.load(Ordering::Relaxed) {
            return Err(Unwritable::Kept);
        }
        let permit = Arc::clone(&open.slots).try_acquire_owned().map_err(|_| Unwritable::Full)?;
        Ok(Slot { room: Some((open.way.clone(), permit)), unanswered: None })
    }

    /// Tells whether an account may make another change now.
    ///
    /// # Errors
    /// [`Unwritable::Spent`]: the change must not be made.
    pub fn admit(&self, account: &Account) -> Result<(), Unwritable> {
        let Some(open) = &self.open else { return Ok(()) };
        let admitted = open.way.shared.accounts.lock().admits(account, Instant::now());
        admitted.map_err(|seconds| Unwritable::Spent { seconds })
    }

    /// Records a request that was refused before it could change anything, or counts it where there are too many.
    pub fn note_refused(&self, account: &Account, entry: Entry) {
        let Some(open) = &self.open else { return };
        if let Some(entry) = open.way.charge(account, Effect::Nothing, entry) {
            self.note(entry);
        }
    }

    /// Records what a change of an account has led to, and charges it to the account as the change itself.
    pub fn note_charged(&self, account: &Account, entry: Entry) {
        let Some(open) = &self.open else { return };
        if let Some(entry) = open.way.charge(account, Effect::Change, entry) {
            self.note(entry);
        }
    }

    /// Records `entry`, if there is room, without waiting.
    pub fn note(&self, entry: Entry) {
        let Some(open) = &self.open else { return };
        if let Err(entry) = open.way.write_now(entry) {
            let job = Job { entry: Some(entry), is_durable: false, done: None, permit: None };
            if open.way.jobs.try_send(job).is_err() {
                tracing::warn!("dropped a record of the audit log: too many records wait");
            }
        }
    }

    /// Records an act of the service itself and waits until it is written, for at most ten seconds.
    pub async fn act(&self, action: &'static str) {
        let recorded = match self.reserve() {
            Ok(slot) => slot.write(Entry::of_service(action)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            tracing::error!(%error, action, "failed to record an act of the service in the audit log");
        }
    }
}

impl Audit {
    /// Records what was counted and not recorded, and that the service stops, and seals the file with both.
    pub async fn stop(&self) {
        let Some(open) = &self.open else { return };
        let (folded, _) = open.way.shared.accounts.lock().folded(true, Instant::now());
        folded.into_iter().for_each(|entry| self.note(entry));
        self.act("stop").await;
        if let Err(error) = open.way.shared.chain.lock().seal() {
            tracing::warn!(%error, "failed to seal the last file of the audit log: the next start seals it");
        }
    }
}

impl Shared {
    /// Tells whether there are records that are to be on the disk soon although no request waits for that.
    fn is_lazy(&self) -> bool {
        self.syncs != Syncs::Nothing
    }

    /// Tells whether the request of `entry` waits until the record is on the disk.
    fn waits_for(&self, entry: &Entry) -> bool {
        match self.syncs {
            Syncs::Nothing | Syncs::Soon => false,
            Syncs::Changes => entry.program.is_none(),
            Syncs::Everything => true,
        }
    }

    /// Notices whether the log is too large and its files too young to go.
    fn look(&self) {
        let is_overdue = self.chain.lock().is_overdue();
        self.is_overdue.store(is_overdue, Ordering::Relaxed);
        self.metrics.audit_overdue.set(i64::from(is_overdue));
    }

    fn why(&self) -> Unwritable {
        if self.is_full_disk.load(Ordering::Relaxed) { Unwritable::NoSpace } else { Unwritable::Failing }
    }
}

impl Way {
    /// Charges a record to an account; `None` when it is counted and not recorded.
    fn charge(&self, account: &Account, effect: Effect, entry: Entry) -> Option<Entry> {
        let charged = self.shared.accounts.lock().charge(account, effect, entry, Instant::now());
        // So that the number is told in time, also when nothing else happens.
        if charged.is_none() && !self.shared.has_folded.swap(true, Ordering::Relaxed) {
            let _ = self.jobs.try_send(Job { entry: None, is_durable: false, done: None, permit: None });
        }
        charged
    }

    /// Writes `entry` into the page cache, if that is possible at once; else gives it back.
    fn write_now(&self, entry: Entry) -> Result<(), Box<Entry>> {
        let shared = &self.shared;
        let Some(mut chain) = shared.chain.try_lock() else { return Err(Box::new(entry)) };
        let can_write = chain.has_room() && !shared.is_failing.load(Ordering::Relaxed);
        // A failure is the writer's to meet again, and to tell.
        if !can_write || chain.append(std::slice::from_ref(&entry)).is_err() {
            return Err(Box::new(entry));
        }
        drop(chain);
        shared.metrics.audited.inc();
        if shared.is_lazy() && !shared.waits_for(&entry) && !shared.is_dirty.swap(true, Ordering::Relaxed) {
            let _ = self.jobs.try_send(Job { entry: None, is_durable: false, done: None, permit: None });
        }
        Ok(())
    }
}

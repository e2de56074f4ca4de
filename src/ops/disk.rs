//! [`DiskWatch`]: looks at the trees that runs may fill, and ends runs that fill them too far.
//!
//! One task for the service. It does nothing while nothing runs, and nothing about runs of less than [`FIRST_LOOK`]
//! but one look a while after them, which finds what they left. Looks walk trees in blocking threads, a bounded number
//! at once. How soon a tree is looked at again depends on how it grows, and on what a look costs:
//!
//! * [`EAGER`] when the limit is nearer than what it grew by;
//! * [`USUAL`] when it grew, or when the disk as a whole has become fuller;
//! * twice as long as the last time when it did not, up to [`SLOWEST`];
//! * never sooner than [`COST`] times the processor time that the look took, of at most [`DEAREST`].
//!
//! While a user has more in all than runs may make it, a run that lets one of the user's trees grow is ended.
//!
//! While the disk has less room left than it is to keep, all trees are looked at, and a run that lets one grow is
//! ended. A run can also fill the disk where no tree shows it: with files that have no name any more. When next to
//! nothing is left and no tree shows by whom it is taken, all runs are ended.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exec::{Halt, HaltReason, Limit};
use parking_lot::Mutex;
use storage::{Ceiling, Gauge, GaugeKey, Look, Store, Use};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How old a run is when its trees are looked at first, and how long after a run they are looked at once more.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const USUAL: Duration = Duration::from_millis(250);
const EAGER: Duration = Duration::from_millis(50);
const SLOWEST: Duration = Duration::from_secs(4);
const COST: u32 = 8;
const DEAREST: Duration = Duration::from_secs(1);
/// Looks at once, each in a thread.
const AT_ONCE: usize = 4;
/// The loss of free space between two looks for which no tree is looked at, in bytes.
const UNNOTICED_BYTES: u64 = 16 * 1024 * 1024;
/// Which part of what the disk is to keep free must be left lest all runs are ended.
const LAST_PART: u64 = 4;
/// The least loss of free space, on a nearly full disk, that is taken for a write by a run, in bytes.
const NEGLIGIBLE_BYTES: u64 = 1024 * 1024;

/// The trees that runs may fill.
#[derive(Default)]
pub struct DiskWatch {
    trees: Mutex<HashMap<GaugeKey, Watched>>,
    runs: AtomicU64,
    begun: Notify,
}

/// A run whose trees are watched, until this is dropped.
pub struct Watching {
    disk: Arc<DiskWatch>,
    run: u64,
    keys: Vec<GaugeKey>,
    /// Says when the run is to end.
    pub halt: Halt,
    halting: Arc<watch::Sender<Option<HaltReason>>>,
}

impl Watching {
    /// Has the run end, because its files are taken from it.
    pub fn withdraw(&self) {
        halt(&self.halting, HaltReason::Withdrawn);
    }
}

struct Watched {
    gauge: Arc<Gauge>,
    runs: Vec<Run>,
    last: Option<Use>,
    interval: Duration,
    due: Instant,
    /// Before which it is not looked at again, because looking has its price.
    earliest: Instant,
    /// Whether a run has ended since it was looked at.
    is_owed: bool,
}

struct Run {
    number: u64,
    ceiling: Ceiling,
    /// Whether it was there at the last look: what has grown since the one before need not be its doing.
    is_known: bool,
    halt: Arc<watch::Sender<Option<HaltReason>>>,
}

/// The findings of one round of looks.
struct Round {
    free: Option<u64>,
    looks: Vec<(GaugeKey, storage::Result<Look>, Duration)>,
}

impl DiskWatch {
    /// Watches what a run may fill.
    #[must_use]
    pub fn watch(self: &Arc<Self>, gauges: Vec<Gauge>) -> Watching {
        let (sender, halt) = watch::channel(None);
        let sender = Arc::new(sender);
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let mut keys = Vec::with_capacity(gauges.len());
        let due = Instant::now() + FIRST_LOOK;
        {
            let mut trees = self.trees.lock();
            for gauge in gauges {
                let run =
                    Run { number, ceiling: gauge.ceiling(), is_known: false, halt: Arc::clone(&sender) };
                let key = gauge.key();
                keys.push(key.clone());
                let watched = match trees.entry(key) {
                    Entry::Occupied(entry) => {
                        let watched = entry.into_mut();
                        if watched.runs.is_empty() {
                            watched.gauge = Arc::new(gauge);
                        }
                        watched
                    }
                    Entry::Vacant(entry) => entry.insert(Watched::new(gauge, due)),
                };
                watched.hasten(due);
                watched.runs.push(run);
            }
        }
        self.begun.notify_one();
        Watching { disk: Arc::clone(self), run: number, keys, halt, halting: sender }
    }

    /// Looks at trees as long as there are any, until `stop`.
    pub async fn look(self: Arc<Self>, store: Store, stop: CancellationToken) {
        let floor = store.options().disk.free_bytes;
        let mut free_before = None;
        let mut is_full = false;
        loop {
            let next = self.trees.lock().values().map(|watched| watched.due).min();
            if next.is_none() {
                free_before = None;
            }
            let wait = async {
                match next {
                    // The disk is looked at more often than trees are.
                    Some(due) => tokio::time::sleep_until(due.min(Instant::now() + USUAL).into()).await,
                    None => self.begun.notified().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = wait => {}
            }
            let all_are_looked_at = is_full;
            let Some(round) = self.round(&store, all_are_looked_at).await else { continue };
            let Some(free) = round.free else { continue };
            is_full = free < floor;
            let has_grown = self.judge(round.looks, is_full);
            let before: u64 = *free_before.get_or_insert(free);
            let lost = before.saturating_sub(free);
            let is_at_its_end = free < floor / LAST_PART;
            if is_at_its_end && all_are_looked_at && !has_grown && lost > NEGLIGIBLE_BYTES {
                self.end_all();
            }
            if lost > UNNOTICED_BYTES {
                self.hasten();
            }
            if free > before || lost > UNNOTICED_BYTES || (is_full && (has_grown || lost > NEGLIGIBLE_BYTES))
            {
                free_before = Some(free);
            }
        }
    }

    /// Looks at the trees that are due, or at all of them.
    async fn round(&self, store: &Store, all: bool) -> Option<Round> {
        let now = Instant::now();
        let due: Vec<(GaugeKey, Arc<Gauge>)> = {
            let mut trees = self.trees.lock();
            let due = trees
                .iter_mut()
                .filter(|(_, watched)| watched.due <= now || (all && watched.earliest <= now));
            let look = |(key, watched): (&GaugeKey, &mut Watched)| {
                watched.is_owed = false;
                (key.clone(), Arc::clone(&watched.gauge))
            };
            due.map(look).collect()
        };
        let store = store.clone();
        let mut round = Round { free: None, looks: Vec::with_capacity(due.len()) };
        let free = tokio::task::spawn_blocking(move || store.make_space(0));
        let mut due = due.into_iter();
        loop {
            let some = due.by_ref().take(AT_ONCE);
            let looking: Vec<_> = some
                .map(|(key, gauge)| {
                    tokio::task::spawn_blocking(move || {
                        let begun = processor_time();
                        let look = gauge.look();
                        (key, look, processor_time().saturating_sub(begun))
                    })
                })
                .collect();
            if looking.is_empty() {
                break;
            }
            for look in looking {
                round.looks.extend(look.await.ok());
            }
        }
        round.free = free.await.ok()?.ok();
        Some(round)
    }

    /// Ends the runs that went too far. Tells whether a tree with a run has grown.
    fn judge(&self, looks: Vec<(GaugeKey, storage::Result<Look>, Duration)>, is_full: bool) -> bool {
        let now = Instant::now();
        let mut has_grown = false;
        let mut trees = self.trees.lock();
        for (key, look, took) in looks {
            let Some(watched) = trees.get_mut(&key) else { continue };
            match look {
                Ok(look) => has_grown |= watched.judge(look, is_full),
                Err(error) => tracing::debug!(%error, "a tree could not be counted"),
            }
            watched.earliest = now + took.saturating_mul(COST).min(DEAREST);
            watched.due = watched.earliest.max(now + watched.interval);
            if watched.runs.is_empty() && !watched.is_owed {
                trees.remove(&key);
            }
        }
        has_grown
    }

    /// Looks at everything soon: something fills the disk.
    fn hasten(&self) {
        let soon = Instant::now() + EAGER;
        let mut trees = self.trees.lock();
        trees
            .values_mut()
            .filter(|watched| watched.interval > USUAL)
            .for_each(|watched| watched.hasten(soon));
    }

    /// Ends every run that is old enough to have been looked at: the disk goes on filling, and no tree tells by whom.
    fn end_all(&self) {
        tracing::warn!("the disk is nearly full and something goes on filling it: ending the runs under way");
        for watched in self.trees.lock().values().filter(|watched| watched.last.is_some()) {
            watched.end(|_| true);
        }
    }
}

/// The processor time of this thread (clock_gettime(2)): waiting costs nothing.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Watched {
    /// A tree that is to be looked at first by `due`.
    fn new(gauge: Gauge, due: Instant) -> Self {
        Self {
            gauge: Arc::new(gauge),
            runs: Vec::new(),
            last: None,
            interval: USUAL,
            due,
            earliest: due,
            is_owed: false,
        }
    }

    /// Has it looked at by `due`, if that is not too soon.
    fn hasten(&mut self, due: Instant) {
        self.interval = self.interval.min(USUAL);
        self.due = self.due.min(due).max(self.earliest);
    }

    /// Takes in what a look found. Tells whether the tree has grown.
    fn judge(&mut self, look: Look, is_full: bool) -> bool {
        let limits = self.gauge.limits();
        let grown = self.last.map_or(Use::default(), |last| look.taken.minus(last));
        for run in &mut self.runs {
            run.ceiling = run.ceiling.seen(look.taken, limits);
        }
        let is_too_much = |run: &Run| match run.ceiling {
            Ceiling::At(most) => !look.is_whole || look.taken.exceeds(most),
            Ceiling::Unknown => !look.is_whole,
        };
        // Another tree of the user may be what has grown: a run that lets its own be is not ended for it.
        let is_users = look.excess.bytes > 0 && grown.bytes > 0 || look.excess.files > 0 && grown.files > 0;
        let fills = is_full && grown.bytes > 0 || is_users;
        let ended = self.end(|run| (fills && run.is_known) || is_too_much(run));
        self.runs.iter_mut().for_each(|run| run.is_known = true);
        if ended > 0 {
            let (key, Use { bytes, files }) = (self.gauge.key().tree, look.taken);
            tracing::info!(
                tree = %key.sandbox_path(), user = %key.user(), bytes, files, ended,
                "ended runs that filled the disk"
            );
        }
        let left = limits.minus(look.taken);
        self.interval = match self.last {
            Some(last) if look.taken == last => (self.interval * 2).min(SLOWEST),
            Some(_) if grown.exceeds(left) => EAGER,
            _ => USUAL,
        };
        self.last = Some(look.taken);
        grown != Use::default()
    }

    /// Ends the runs that `which` names; how many there were to end.
    fn end(&self, which: impl Fn(&Run) -> bool) -> usize {
        let tell = |run: &&Run| halt(&run.halt, HaltReason::Limit(Limit::Disk));
        self.runs.iter().filter(|run| which(run)).filter(tell).count()
    }
}

/// Has a run end, unless it was told to before; whether it is told now.
fn halt(run: &watch::Sender<Option<HaltReason>>, reason: HaltReason) -> bool {
    run.send_if_modified(|told| {
        let is_first = told.is_none();
        told.get_or_insert(reason);
        is_first
    })
}

impl Drop for Watching {
    fn drop(&mut self) {
        let due = Instant::now() + FIRST_LOOK;
        let mut trees = self.disk.trees.lock();
        for key in &self.keys {
            let Some(watched) = trees.get_mut(key) else { continue };
            watched.runs.retain(|run| run.number != self.run);
            watched.hasten(due);
            watched.is_owed = true;
            if !watched.runs.is_empty() {
                continue;
            }
            match watched.gauge.afterwards() {
                Some(gauge) => watched.gauge = Arc::new(gauge),
                None => drop(trees.remove(key)),
            }
        }
    }
}

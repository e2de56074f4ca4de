//! The one thread that writes what cannot be written on the spot, and waits for the disk.
//!
//! It takes all that waits, writes it at once and makes it durable at once, so that many changes share one wait for
//! the disk. What cannot be written it keeps and tries again every second; meanwhile changes are refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use storage::Result;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Shared;
use super::chain;
use super::record::Entry;

/// Jobs taken at once.
const BATCH_MAX: usize = 256;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// How soon a record for which no request waits is on the disk.
const SOON: Duration = Duration::from_secs(1);
/// How often it is looked whether files that were too young may go.
const AGING: Duration = Duration::from_secs(60);

/// Something to be done for the log.
pub(super) struct Job {
    /// A record to be written; without one, there is only something to wait for.
    pub(super) entry: Option<Box<Entry>>,
    /// Whether it is to be on the disk before it counts as done.
    pub(super) is_durable: bool,
    /// Told when it is done.
    pub(super) done: Option<oneshot::Sender<()>>,
    /// Given back when it is done.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// Does the jobs of the queue until all its senders are gone.
pub(super) fn run(shared: &Arc<Shared>, started: Entry, queue: &Receiver<Job>) {
    let start = Job { entry: Some(Box::new(started)), is_durable: false, done: None, permit: None };
    shared.look();
    do_all(shared, vec![start]);
    let mut due = shared.is_lazy().then(|| Instant::now() + SOON);
    loop {
        let ripe = tell_folded(shared);
        let first = match due.into_iter().chain(ripe).min() {
            Some(due) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match first {
            Ok(first) => {
                let mut batch = vec![first];
                while batch.len() < BATCH_MAX
                    && let Ok(next) = queue.try_recv()
                {
                    batch.push(next);
                }
                due = if do_all(shared, batch) {
                    None
                } else {
                    due.or_else(|| shared.is_lazy().then(|| Instant::now() + SOON))
                };
            }
            Err(RecvTimeoutError::Timeout) if due.is_none_or(|due| Instant::now() < due) => {
                shared.chain.lock().make_room();
                shared.look();
            }
            Err(RecvTimeoutError::Timeout) => {
                shared.is_dirty.store(false, Ordering::Relaxed);
                until_it_works(shared, || sync(shared));
                due = None;
            }
            Err(RecvTimeoutError::Disconnected) => {
                if due.is_some() {
                    let _ = sync(shared);
                }
                return;
            }
        }
    }
}

/// Writes how many requests had no record, where that is due. Returns when there is something to do of its own.
fn tell_folded(shared: &Shared) -> Option<Instant> {
    let now = Instant::now();
    shared.has_folded.store(false, Ordering::Relaxed);
    let (entries, next) = shared.accounts.lock().folded(false, now);
    if !entries.is_empty() {
        until_it_works(shared, || shared.chain.lock().append(&entries));
        shared.metrics.audited.inc_by(u64::try_from(entries.len()).unwrap_or(0));
        shared.look();
    }
    let aging = shared.is_overdue.load(Ordering::Relaxed).then_some(AGING);
    next.into_iter().chain(aging).min().map(|after| now + after)
}

/// Writes a batch, however often that takes. Tells whether all that was ever written is on the disk.
fn do_all(shared: &Shared, mut batch: Vec<Job>) -> bool {
    let entries: Vec<Entry> =
        batch.iter_mut().filter_map(|job| job.entry.take()).map(|entry| *entry).collect();
    let is_durable = batch.iter().any(|job| job.is_durable);
    if !entries.is_empty() {
        until_it_works(shared, || shared.chain.lock().append(&entries));
        shared.metrics.audited.inc_by(u64::try_from(entries.len()).unwrap_or(0));
        shared.look();
    }
    if is_durable {
        // Before the wait: what is written meanwhile says so again.
        shared.is_dirty.store(false, Ordering::Relaxed);
        until_it_works(shared, || sync(shared));
    }
    for job in batch {
        drop(job.permit);
        if let Some(done) = job.done {
            let _ = done.send(());
        }
    }
    is_durable
}

/// Waits for the disk without keeping others from appending.
fn sync(shared: &Shared) -> Result<()> {
    let file = shared.chain.lock().file();
    file.map_or(Ok(()), |file| chain::sync(&file))
}

fn until_it_works(shared: &Shared, mut attempt: impl FnMut() -> Result<()>) {
    while let Err(error) = attempt() {
        if !shared.is_failing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                %error,
                "failed to write the audit log: changes are refused until it works again"
            );
        }
        let is_full = matches!(&error, storage::Error::NoSpace(_) | storage::Error::OverQuota(_))
            || matches!(&error, storage::Error::Io { source, .. } if is_no_space(source));
        shared.is_full_disk.store(is_full, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    if shared.is_failing.swap(false, Ordering::Relaxed) {
        tracing::warn!("the audit log can be written again: changes are accepted");
    }
}

fn is_no_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

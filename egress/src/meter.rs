//! [`Meter`]: what a connection has moved, when last, and whether it may move more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::pass::Run;

/// Counts the bytes of one connection.
pub(super) struct Meter {
    run: Option<Arc<Run>>,
    sent: AtomicU64,
    received: AtomicU64,
    began: Instant,
    /// Milliseconds from `began` to the last byte.
    last_ms: AtomicU64,
    idle: Duration,
}

impl Meter {
    /// Counts for `run` too, and calls a connection idle after `idle`.
    pub(super) fn new(run: Arc<Run>, idle: Duration) -> Self {
        Self { run: Some(run), ..Self::unbounded(idle) }
    }

    /// Counts for no run.
    pub(super) fn unbounded(idle: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self { run: None, sent: zero(), received: zero(), began: Instant::now(), last_ms: zero(), idle }
    }

    /// Counts bytes from the command, before they are passed on.
    ///
    /// # Errors
    /// The run's bound: they may not be.
    pub(super) fn sent(&self, bytes: usize) -> Result<(), u64> {
        self.moved(&self.sent, bytes)
    }

    /// Counts bytes to the command, before they are passed on.
    ///
    /// # Errors
    /// The run's bound: they may not be.
    pub(super) fn received(&self, bytes: usize) -> Result<(), u64> {
        self.moved(&self.received, bytes)
    }

    fn moved(&self, counter: &AtomicU64, bytes: usize) -> Result<(), u64> {
        self.run.as_ref().map_or(Ok(()), |run| run.moves(bytes as u64))?;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now_ms, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until nothing has moved for as long as a connection may be idle; gives that time.
    pub(super) async fn idle(&self) -> Duration {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = self.began + last + self.idle;
            if Instant::now() >= until {
                return self.idle;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Bytes from the command, and to it.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

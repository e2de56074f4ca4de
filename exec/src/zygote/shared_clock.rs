//! [`SharedClock`]: what the launcher knows of a first process that serves several runs, without being told.
//!
//! The process and the launcher share a few numbers. So a short run costs the launcher nothing; it looks from time to
//! time whether one has become long.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::deadline::allowed;
use crate::sys::Shared;

/// How much text of former commands a first process may have in its memory, in bytes.
const LEFT_BYTES_MAX: u64 = 1024 * 1024;

/// Whether a first process has a run, since when and until when, by the clock of the machine in milliseconds
/// (`CLOCK_MONOTONIC`, clock_gettime(2)).
#[derive(Debug)]
pub(super) struct SharedClock {
    shared: Shared,
}

/// The run of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CurrentRun {
    /// How long it has lived.
    pub(super) age: Duration,
    /// How long it may go on.
    pub(super) left: Duration,
}

impl SharedClock {
    /// Nothing to do yet.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { shared: Shared::new()? })
    }

    /// A run begins that may take `deadline_ms`.
    pub(super) fn begin(&self, deadline_ms: u64) {
        let [since, until, ..] = self.shared.words();
        let now = now_ms();
        let allowed = u64::try_from(allowed(deadline_ms).as_millis()).unwrap_or(u64::MAX);
        until.store(now.saturating_add(allowed), Ordering::Relaxed);
        // A process that sees this value also sees the stores before it.
        since.store(now, Ordering::Release);
    }

    /// It has ended.
    pub(super) fn end(&self) {
        let [since, ..] = self.shared.words();
        since.store(0, Ordering::Release);
    }

    /// The run of the moment; `None` between runs.
    pub(super) fn current_run(&self) -> Option<CurrentRun> {
        let [since, until, ..] = self.shared.words();
        let since = since.load(Ordering::Acquire);
        if since == 0 {
            return None;
        }
        let (now, until) = (now_ms(), until.load(Ordering::Relaxed));
        let age = Duration::from_millis(now.saturating_sub(since));
        Some(CurrentRun { age, left: Duration::from_millis(until.saturating_sub(now)) })
    }

    /// Notes that the memory monitor was told of the process, which from then on serves no other run.
    pub(super) fn is_watched_now(&self) {
        let [_, _, watched, _] = self.shared.words();
        watched.store(1, Ordering::Release);
    }

    /// Tells whether the memory monitor was told.
    pub(super) fn is_watched(&self) -> bool {
        let [_, _, watched, _] = self.shared.words();
        watched.load(Ordering::Acquire) != 0
    }

    /// Notes that a command has left its text, twice as much as its `bytes`, in the memory of the first process.
    pub(super) fn has_grown_by(&self, bytes: usize) {
        let [.., grown] = self.shared.words();
        grown.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(2), Ordering::Relaxed);
    }

    /// Tells whether the first process has more in its memory than one should keep.
    pub(super) fn is_large(&self) -> bool {
        let [.., grown] = self.shared.words();
        grown.load(Ordering::Relaxed) > LEFT_BYTES_MAX
    }
}

/// Never 0: the clock starts with the machine.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let milliseconds = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    (seconds * 1000 + milliseconds).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_an_age_and_an_end_and_between_runs_there_is_none() {
        let busy = SharedClock::new().unwrap();
        assert_eq!(busy.current_run(), None);
        busy.begin(5_000);
        let current_run = busy.current_run().unwrap();
        assert!(
            current_run.age < Duration::from_secs(60) && current_run.left > Duration::from_secs(1),
            "{current_run:?}"
        );
        assert!(current_run.left <= Duration::from_secs(6), "{current_run:?}");
        busy.end();
        assert_eq!(busy.current_run(), None);
        assert!(!busy.is_watched());
        busy.is_watched_now();
        assert!(busy.is_watched());
    }
}

//! [`Feed`]: the task that looks at one tree when the kernel has notices, and tells what it finds.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use parking_lot::Mutex;
use storage::TreeWatch;
use storage::watch::Changes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::history::{History, Reason, What};
use super::shares::Share;
use crate::ops::error::Result;
use crate::ops::{Error, blocking};

/// How long the tree must be quiet before the feed looks, so that the many steps of one change are told as one.
const QUIET: Duration = Duration::from_millis(50);
/// The longest time without a look while the tree is not quiet.
const UNQUIET_MAX: Duration = Duration::from_millis(500);
/// How often a tree is looked at that becomes another without a notice.
const HELD_LOOK: Duration = Duration::from_secs(1);
/// How long a feed stays without a listener.
const LINGER: Duration = Duration::from_secs(30);

/// The state that one tree's listeners share.
pub(super) struct Feed {
    pub(super) history: History,
    /// More changes at once than this are told as one.
    burst_max: usize,
    listeners: Mutex<Listeners>,
    share: Share,
    stop: CancellationToken,
}

struct Listeners {
    count: usize,
    /// When the last one left.
    left: Instant,
}

impl Feed {
    pub(super) fn new(history: usize, share: Share, stop: CancellationToken) -> Self {
        let listeners = Mutex::new(Listeners { count: 0, left: Instant::now() });
        Self { history: History::new(history), burst_max: history / 2, listeners, share, stop }
    }

    /// Counts another listener.
    pub(super) fn enter(&self) {
        self.listeners.lock().count += 1;
    }

    pub(super) fn leave(&self) {
        let mut listeners = self.listeners.lock();
        listeners.count = listeners.count.saturating_sub(1);
        listeners.left = Instant::now();
    }

    /// Ends the feed: it has no listener any more.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Cancelled when the feed is to end.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Waits until the feed holds no watch any more.
    pub(super) async fn ended(&self) {
        let mut news = self.history.subscribe();
        while !self.history.has_ended() && news.changed().await.is_ok() {}
    }

    /// How long the feed has had no listener; `None` while it has one.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let listeners = self.listeners.lock();
        (listeners.count == 0).then(|| listeners.left.elapsed())
    }

    /// Counts what is watched by now among what the user of the tree has.
    fn count(&self, watch: &TreeWatch) -> Result<()> {
        if self.share.set(watch.entries()) {
            Ok(())
        } else {
            Err(Error::Storage(storage::Error::TooManyEntries(self.share.most())))
        }
    }

    /// Tells what happens in the tree, until it has had no listener for a while or the tree cannot be watched any
    /// longer.
    pub(super) async fn run(&self, watch: TreeWatch) {
        let told = tokio::select! {
            told = self.tell(watch) => told,
            () = self.stop.cancelled() => Ok(()),
        };
        let reason = match told {
            Ok(()) => "stopped",
            Err(Error::Storage(storage::Error::TooManyEntries(_))) => "too many entries",
            Err(Error::Storage(storage::Error::Watches)) => "no more watches",
            Err(error) => {
                tracing::warn!(%error, "failed to watch a tree: its listeners are told `failed`");
                "failed"
            }
        };
        self.share.set(0);
        self.history.add([What::End(reason)]);
    }

    async fn tell(&self, mut watch: TreeWatch) -> Result<()> {
        self.count(&watch)?;
        let fd =
            watch.as_fd().try_clone_to_owned().and_then(|fd| exec::watch_descriptor(fd, Interest::READABLE));
        let fd = fd.map_err(|source| storage::Error::from_io("epoll", "events", source))?;
        loop {
            // Also while the tree keeps changing: listeners that have left must not keep a watch.
            if self.idle_for().is_some_and(|idle| idle >= LINGER) {
                return Ok(());
            }
            let wait = if watch.is_held() { HELD_LOOK } else { LINGER };
            let is_held = watch.is_held();
            match tokio::time::timeout(wait, read(&fd, &mut watch)).await {
                Ok(read) => read?,
                Err(_) if is_held => {}
                Err(_) => continue,
            }
            let until = Instant::now() + UNQUIET_MAX;
            while watch.has_notices() && Instant::now() < until {
                match tokio::time::timeout(QUIET, read(&fd, &mut watch)).await {
                    Ok(read) => read?,
                    Err(_) => break,
                }
            }
            if !watch.has_notices() && !is_held {
                continue;
            }
            let (back, changes) = blocking(move || {
                let changes = watch.look();
                Ok((watch, changes))
            })
            .await?;
            watch = back;
            self.count(&watch)?;
            self.history.add(self.events(changes?));
        }
    }

    fn events(&self, changes: Changes) -> Vec<What> {
        if changes.is_rebased {
            return vec![What::Rescan(Reason::Baseline)];
        }
        if changes.notices.len() > self.burst_max {
            return vec![What::Rescan(Reason::Overflow)];
        }
        changes.notices.into_iter().map(What::Entry).collect()
    }
}

/// Waits until the kernel has notices, and reads them.
async fn read(fd: &AsyncFd<OwnedFd>, watch: &mut TreeWatch) -> Result<()> {
    let failed = |source| storage::Error::from_io("epoll", "events", source);
    let mut ready = fd.readable().await.map_err(failed)?;
    if watch.read()? {
        ready.clear_ready();
    }
    Ok(())
}

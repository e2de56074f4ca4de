//! [`Readiness`]: whether the data directory can be written to, asked on a thread that no request shares.
//!
//! Without a question nothing is looked at. A caller gets the finding of a moment ago, or has the directory looked at
//! again; when that takes long, because the disk hangs, the answer does not wait for it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use storage::Store;
use tokio::sync::watch;

/// How long what was found is as good as new.
const FRESH: Duration = Duration::from_millis(500);
/// How long an answer waits for a look.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long what was found is better than nothing.
const STALE: Duration = Duration::from_secs(10);

/// The findings of a look at the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// When it was found.
    at: Instant,
    /// Whether it takes changes: a file was written, and there is as much room left as it is to keep.
    pub is_writable: bool,
    /// Bytes that are free; 0 when that cannot be told.
    pub free_bytes: u64,
    /// Skills that are mounted for commands.
    pub live_views: usize,
    /// The trash that waits to be removed, and how often a removal failed.
    pub trash: (usize, u64),
}

/// Looks at the data directory.
pub struct Readiness {
    asks: SyncSender<Store>,
    found: watch::Receiver<Option<Found>>,
}

impl Readiness {
    /// Starts its thread, which ends with it.
    ///
    /// # Errors
    /// When the kernel gives no thread.
    pub fn start() -> io::Result<Self> {
        // One question is enough for all requests that wait.
        let (asks, asked) = sync_channel(1);
        let (tell, found) = watch::channel(None);
        thread::Builder::new().name("readiness".to_owned()).spawn(move || look(&asked, &tell))?;
        Ok(Self { asks, found })
    }

    /// The findings of now, or of a moment ago; `None` when no look has ended for long.
    pub async fn look(&self, store: &Store) -> Option<Found> {
        let mut found = self.found.clone();
        let last = *found.borrow_and_update();
        if let Some(last) = last.filter(|last| last.at.elapsed() < FRESH) {
            return Some(last);
        }
        // Full: another request has asked already.
        let _ = self.asks.try_send(store.clone());
        let looked = tokio::time::timeout(PATIENCE, found.changed()).await;
        let last = if looked.is_ok() { *found.borrow() } else { last };
        last.filter(|last| last.at.elapsed() < STALE)
    }
}

fn look(asked: &Receiver<Store>, tell: &watch::Sender<Option<Found>>) {
    while let Ok(store) = asked.recv() {
        let found = Found {
            at: Instant::now(),
            is_writable: store.check_usable().is_ok(),
            free_bytes: store.free_bytes().unwrap_or(0),
            live_views: store.live_views(),
            trash: store.trash_figures(),
        };
        tell.send_replace(Some(found));
    }
}

#[cfg(test)]
mod tests {
    use storage::{Options, Store};

    use super::*;

    #[tokio::test]
    async fn what_was_found_a_moment_ago_is_told_again_and_what_is_old_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path(), Options::default()).unwrap();
        let readiness = Readiness::start().unwrap();
        let first = readiness.look(&store).await.unwrap();
        assert!(first.is_writable && first.free_bytes > 0, "{first:?}");
        assert_eq!(readiness.look(&store).await, Some(first));
        tokio::time::sleep(FRESH).await;
        let second = readiness.look(&store).await.unwrap();
        assert!(second.at > first.at);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_told_as_one_that_cannot_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path(), Options::default()).unwrap();
        // No thread takes the questions.
        let (asks, _asked) = sync_channel(1);
        let (_tell, found) = watch::channel(None);
        assert_eq!(Readiness { asks, found }.look(&store).await, None);
    }
}

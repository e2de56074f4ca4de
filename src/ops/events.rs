//! The events of trees: what became of their files, for whoever listens.
//!
//! A tree that somebody listens to has one *feed*: a watch, a bounded history, and a task that fills it. All listeners of
//! the tree read the same history, each at the own pace. The feed stays for a while after the last of them has left, so that
//! one who comes back finds what happened meanwhile.
//!
//! | File | Holds |
//! | --- | --- |
//! | `history` | the events of one tree, the newest ones |
//! | `feed` | the task that looks and tells |
//! | `listener` | one reader of a history |

mod feed;
mod history;
mod listener;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::{EventLimits, TreeId, UserId};
use storage::Store;
use tokio_util::sync::CancellationToken;

pub use self::history::{Event, EventId, Reason, What};
pub use self::listener::{Heard, Listener};
use super::error::{Error, Result};
use super::places::{Place, RunPlaces};
use super::{Service, blocking};
use feed::Feed;

/// Which trees have feeds, and how many listen.
pub struct EventTable {
    limits: EventLimits,
    places: RunPlaces,
    feeds: Arc<Mutex<HashMap<TreeId, Arc<Feed>>>>,
}

impl EventTable {
    /// No feeds yet.
    #[must_use]
    pub fn new(limits: EventLimits) -> Self {
        let places = RunPlaces::without_queue(limits.listeners.max(1), limits.listeners_per_user.max(1));
        Self { limits, places, feeds: Arc::default() }
    }

    /// How many there may be.
    #[must_use]
    pub fn limits(&self) -> &EventLimits {
        &self.limits
    }

    async fn place(&self, user: &UserId) -> Result<Place> {
        self.places.take(user).await.map_err(|error| match error {
            Error::Busy { .. } => {
                Error::Busy { what: "too many streams of events are open", retry_after_seconds: 5 }
            }
            other => other,
        })
    }

    /// The feed of `id`, if it has one that has not ended, with another listener counted.
    fn join(&self, id: &TreeId) -> Option<Arc<Feed>> {
        let feeds = self.feeds.lock();
        let feed = feeds.get(id).filter(|feed| !feed.history.has_ended())?;
        feed.enter();
        Some(Arc::clone(feed))
    }

    async fn open(&self, store: &Store, id: &TreeId, stop: &CancellationToken) -> Result<Arc<Feed>> {
        if let Some(feed) = self.join(id) {
            return Ok(feed);
        }
        let (store, tree, entries) = (store.clone(), id.clone(), self.limits.entries);
        let watch = blocking(move || Ok(storage::TreeWatch::new(store, tree, entries)?)).await?;
        let mut feeds = self.feeds.lock();
        if let Some(feed) = feeds.get(id).filter(|feed| !feed.history.has_ended()) {
            // Somebody was faster.
            feed.enter();
            return Ok(Arc::clone(feed));
        }
        // Every listener listens to one tree, so there is one that nobody listens to when there are too many.
        while feeds.len() >= self.limits.listeners.max(1) {
            let Some(idle) = feeds.iter().find(|(_, feed)| feed.is_idle()).map(|(id, _)| id.clone()) else {
                return Err(Error::Busy { what: "too many trees are listened to", retry_after_seconds: 5 });
            };
            if let Some(feed) = feeds.remove(&idle) {
                feed.end();
            }
        }
        let feed = Arc::new(Feed::new(self.limits.history.max(1), stop.child_token()));
        feed.enter();
        feeds.insert(id.clone(), Arc::clone(&feed));
        let (table, id) = (Arc::clone(&self.feeds), id.clone());
        let of_task = Arc::clone(&feed);
        tokio::spawn(async move {
            of_task.run(watch).await;
            let mut feeds = table.lock();
            if feeds.get(&id).is_some_and(|feed| Arc::ptr_eq(feed, &of_task)) {
                feeds.remove(&id);
            }
        });
        Ok(feed)
    }
}

impl Service {
    /// Listens to what becomes of the files of the tree `id`, from now on or from behind the event `after`.
    ///
    /// # Errors
    /// [`Error::Busy`]; as [`storage::TreeWatch::new`].
    pub async fn listen(&self, id: TreeId, after: Option<EventId>) -> Result<Listener> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopping);
        }
        let place = self.events.place(id.user()).await?;
        let feed = self.events.open(&self.store, &id, &self.stop).await?;
        Ok(Listener::new(feed, place, after))
    }
}

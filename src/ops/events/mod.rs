//! The events of trees: the changes of their files, for listeners.
//!
//! A tree with listeners has one *feed*: a watch, a bounded history, and a task that fills it. All listeners of the
//! tree read the same history, each at the own pace. The feed stays for a while after the last of them has left, so
//! that one who comes back finds what happened meanwhile.
//!
//! | File | Holds |
//! | --- | --- |
//! | `history` | the events of one tree, the newest ones |
//! | `feed` | the task that looks and tells |
//! | `listener` | one reader of a history |
//! | `shares` | how many entries are watched for each user |

mod feed;
mod history;
mod listener;
mod shares;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::{EventLimits, TreeId, UserId};
use storage::TreeWatch;

pub use self::history::{Event, EventId, Reason, What};
pub use self::listener::{Heard, Listener};
use super::Service;
use super::admission::holds::Mode;
use super::admission::permit_kind::PermitKind;
use super::admission::permits::{Permit, Permits};
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use feed::Feed;
use shares::Shares;

/// Which trees have feeds, and how many listen.
pub struct EventTable {
    limits: EventLimits,
    permits: Permits,
    feeds: Arc<Mutex<Feeds>>,
    shares: Shares,
}

type Feeds = HashMap<TreeId, Arc<Feed>>;

impl EventTable {
    /// No feeds yet.
    #[must_use]
    pub fn new(limits: EventLimits) -> Self {
        let permits = Permits::without_queue(
            PermitKind::STREAMS,
            limits.listeners.max(1),
            limits.listeners_per_user.max(1),
        );
        Self { limits, permits, feeds: Arc::default(), shares: Shares::default() }
    }

    /// How many there may be.
    #[must_use]
    pub fn limits(&self) -> &EventLimits {
        &self.limits
    }

    async fn permit(&self, user: &UserId) -> Result<Permit> {
        self.permits.take(user).await
    }

    /// The feed of `id`, if it has one that has not ended, with another listener counted.
    fn join(&self, id: &TreeId) -> Option<Arc<Feed>> {
        let feeds = self.feeds.lock();
        let feed = feeds.get(id).filter(|feed| !feed.history.has_ended())?;
        feed.enter();
        Some(Arc::clone(feed))
    }

    /// Watches a tree. When the kernel watches no more, feeds without listeners give way, one by one.
    async fn watch(&self, service: &Service, id: &TreeId) -> Result<TreeWatch> {
        loop {
            let (store, tree, entries) = (service.store.clone(), id.clone(), self.limits.entries);
            let job = Job::on(id, Weight::Scan, Mode::ShortRead);
            match service.work(job, move || Ok(TreeWatch::new(store, tree, entries)?)).await {
                Err(Error::Storage(storage::Error::Watches)) => {}
                watch => return watch,
            }
            let Some(idle) = self.take_idle() else { return Err(Error::Storage(storage::Error::Watches)) };
            idle.end();
            idle.ended().await;
        }
    }

    /// Takes the feed that has been without listeners for longest out of the table.
    fn take_idle(&self) -> Option<Arc<Feed>> {
        take_idle(&mut self.feeds.lock(), |_| true)
    }

    async fn open(&self, service: &Service, id: &TreeId) -> Result<Arc<Feed>> {
        if let Some(feed) = self.join(id) {
            return Ok(feed);
        }
        let watch = self.watch(service, id).await?;
        let mut feeds = self.feeds.lock();
        if let Some(feed) = feeds.get(id).filter(|feed| !feed.history.has_ended()) {
            // Another request was faster.
            feed.enter();
            return Ok(Arc::clone(feed));
        }
        // Every listener has a permit and listens to one tree, so there is an idle feed when there are too many. Those of
        // the same user give way first: what is kept for others who come back is not theirs to push out.
        let of_user = |feeds: &Feeds| feeds.keys().filter(|tree| tree.user() == id.user()).count();
        while of_user(&feeds) >= self.limits.listeners_per_user.max(1) {
            end_idle(&mut feeds, |tree| tree.user() == id.user())?;
        }
        while feeds.len() >= self.limits.listeners.max(1) {
            end_idle(&mut feeds, |_| true)?;
        }
        let share = self.shares.of(id.user(), self.limits.entries);
        let feed = Arc::new(Feed::new(self.limits.history.max(1), share, service.stop.child_token()));
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

/// Takes the feed that has been without listeners for longest out of the table, of those of the trees `among`.
fn take_idle(feeds: &mut Feeds, among: impl Fn(&TreeId) -> bool) -> Option<Arc<Feed>> {
    let idle = feeds.iter().filter(|(id, _)| among(id)).filter_map(|(id, feed)| Some((feed.idle_for()?, id)));
    let id = idle.max_by_key(|(idle, _)| *idle).map(|(_, id)| id.clone())?;
    feeds.remove(&id)
}

/// Ends the feed that has been without listeners for longest, of those of the trees `among`.
///
/// # Errors
/// [`Error::Busy`] when each has a listener.
fn end_idle(feeds: &mut Feeds, among: impl Fn(&TreeId) -> bool) -> Result<()> {
    let idle = take_idle(feeds, among);
    idle.ok_or(Error::Busy { what: "too many trees are listened to", retry_after_seconds: 5 })?.end();
    Ok(())
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
        let permit = self.events.permit(id.user()).await?;
        let feed = self.events.open(self, &id).await?;
        Ok(Listener::new(feed, permit, after))
    }
}

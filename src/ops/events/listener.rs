//! [`Listener`]: one reader of a tree's events.

use std::sync::Arc;

use tokio::sync::watch;

use super::feed::Feed;
use super::history::{Event, EventId, Reason};
use crate::ops::admission::permits::Permit;

/// Events handed over at once.
const EVENTS_MAX: usize = 128;

/// One reader of a tree's events. Dropping it leaves.
pub struct Listener {
    feed: Arc<Feed>,
    /// The number of the last event that was heard.
    heard: u64,
    /// Whether what was asked for first was not there any more.
    is_late: bool,
    news: watch::Receiver<u64>,
    _permit: Permit,
}

/// An item that a listener gets.
#[derive(Debug)]
pub enum Heard {
    /// The next events.
    Events(Vec<Arc<Event>>),
    /// Some are not there any more: everything has to be looked at.
    Missed(Reason),
    /// The service is stopping.
    End,
}

impl Listener {
    pub(super) fn new(feed: Arc<Feed>, permit: Permit, after: Option<EventId>) -> Self {
        let news = feed.history.subscribe();
        let last = feed.history.last();
        let found = after.filter(|after| {
            after.history == feed.history.number && feed.history.behind(after.seq, 0).is_some()
        });
        let heard = found.map_or(last, |after| after.seq);
        Self { feed, heard, is_late: after.is_some() && found.is_none(), news, _permit: permit }
    }

    /// The event behind which it goes on.
    #[must_use]
    pub fn position(&self) -> EventId {
        EventId { history: self.feed.history.number, seq: self.heard }
    }

    /// Waits for the next events.
    pub async fn next(&mut self) -> Heard {
        if std::mem::take(&mut self.is_late) {
            return Heard::Missed(Reason::Gone);
        }
        loop {
            self.news.mark_unchanged();
            let Some(events) = self.feed.history.behind(self.heard, EVENTS_MAX) else {
                self.heard = self.feed.history.last();
                return Heard::Missed(Reason::Overflow);
            };
            if let Some(last) = events.last() {
                self.heard = last.seq;
                return Heard::Events(events);
            }
            tokio::select! {
                changed = self.news.changed() => if changed.is_err() {
                    return Heard::End;
                },
                () = self.feed.stop().cancelled() => return Heard::End,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.feed.leave();
    }
}

//! [`Subscription`]: the trees that a client listens to, and telling it what becomes of them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::select_all;
use rmcp::ErrorData;
use rmcp::service::SubscriptionContext;
use storage::watch::Became;
use tokio::time::{Instant, sleep_until};

use super::refusal;
use crate::ops::events::{Heard, Listener, What};

/// The method that begins a subscription.
pub(super) const METHOD: &str = "subscriptions/listen";
/// How often the same is told.
const PAUSE: Duration = Duration::from_millis(250);

/// One URI that is subscribed to.
pub(super) struct Subscribed {
    pub(super) uri: String,
    /// Which of the trees.
    pub(super) tree: usize,
    pub(super) path: String,
    /// Whether everything below counts: its URI ends with a slash.
    pub(super) is_whole: bool,
}

/// The changes that are to be told.
#[derive(Default)]
struct Pending {
    uris: BTreeSet<usize>,
    is_list_changed: bool,
}

/// The trees of a subscription, and the URIs in them.
pub(super) struct Subscription {
    pub(super) listeners: Vec<Listener>,
    pub(super) uris: Vec<Subscribed>,
}

impl Subscription {
    /// Waits for changes and tells them, each at most four times a second.
    pub(super) async fn tell(
        &mut self,
        context: &SubscriptionContext,
        is_list_wanted: bool,
    ) -> Result<(), ErrorData> {
        if self.listeners.is_empty() {
            return std::future::pending().await;
        }
        let mut pending = Pending::default();
        let mut due = Instant::now();
        loop {
            if pending.is_empty() {
                due = due.max(Instant::now());
            }
            let heard = tokio::select! {
                heard = next(&mut self.listeners) => heard,
                () = sleep_until(due), if !pending.is_empty() => {
                    if !self.send(context, std::mem::take(&mut pending)).await {
                        return Ok(());
                    }
                    due = Instant::now() + PAUSE;
                    continue;
                }
            };
            match heard {
                (tree, Heard::Events(events)) => {
                    for event in &events {
                        match &event.what {
                            What::Entry(notice) => self.note(&mut pending, tree, notice),
                            What::Rescan(_) => self.note_all(&mut pending, tree),
                            What::End(reason) => return Err(refusal::unwatched(reason)),
                        }
                    }
                }
                (tree, Heard::Missed(_)) => self.note_all(&mut pending, tree),
                (_, Heard::End) => return Ok(()),
            }
            pending.is_list_changed &= is_list_wanted;
        }
    }

    /// Notes a change of one entry.
    fn note(&self, pending: &mut Pending, tree: usize, notice: &storage::watch::Notice) {
        let from = match &notice.became {
            Became::Moved { from } => Some(from.as_str()),
            Became::Created | Became::Modified | Became::Deleted => None,
        };
        pending.is_list_changed |= !matches!(notice.became, Became::Modified);
        let is_about = |one: &Subscribed| {
            [Some(notice.path.as_str()), from].into_iter().flatten().any(|changed| one.is_about(changed))
        };
        let uris = self.uris.iter().enumerate();
        pending
            .uris
            .extend(uris.filter(|(_, one)| one.tree == tree && is_about(one)).map(|(index, _)| index));
    }

    /// Notes that anything in a tree may have changed.
    fn note_all(&self, pending: &mut Pending, tree: usize) {
        pending.is_list_changed = true;
        let uris = self.uris.iter().enumerate();
        pending.uris.extend(uris.filter(|(_, one)| one.tree == tree).map(|(index, _)| index));
    }

    /// Tells changes; `false` when the client has left.
    async fn send(&self, context: &SubscriptionContext, pending: Pending) -> bool {
        if pending.is_list_changed && context.sink().notify_resource_list_changed().await.is_err() {
            return false;
        }
        for one in pending.uris.iter().filter_map(|index| self.uris.get(*index)) {
            if context.sink().notify_resource_updated(one.uri.clone()).await.is_err() {
                return false;
            }
        }
        true
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.uris.is_empty() && !self.is_list_changed
    }
}

impl Subscribed {
    /// Tells whether a change of the entry `changed` is one of what is subscribed to: of itself, of a directory that it is in, or of
    /// something below it.
    fn is_about(&self, changed: &str) -> bool {
        self.path == changed
            || is_below(&self.path, changed)
            || self.is_whole && (self.path.is_empty() || is_below(changed, &self.path))
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// The next that is heard of any tree.
async fn next(listeners: &mut [Listener]) -> (usize, Heard) {
    let waiting = listeners.iter_mut().map(|listener| Box::pin(listener.next()));
    let (heard, tree, _) = select_all(waiting).await;
    (tree, heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_about_a_file_its_directories_and_what_is_below_a_whole_one() {
        let of = |path: &str, is_whole| Subscribed {
            uri: String::new(),
            tree: 0,
            path: path.to_owned(),
            is_whole,
        };
        for (path, is_whole, changed, expected) in [
            ("a/b", false, "a/b", true),
            ("a/b", false, "a", true),
            ("a/b", false, "a/b/c", false),
            ("a/b", false, "a/bc", false),
            ("a/b", false, "a/c", false),
            ("a", true, "a/b/c", true),
            ("a", true, "ab", false),
            ("", true, "x", true),
            ("", false, "x", false),
        ] {
            assert_eq!(of(path, is_whole).is_about(changed), expected, "{path} {changed}");
        }
    }
}

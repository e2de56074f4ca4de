//! The janitor: a thread that removes what could not be removed at once.
//!
//! It takes what is due, one thing after the other, and a bounded part of each at a time, so that no user's trash keeps
//! another's waiting. It is started by the first thing that waits and ends when nothing does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Item, Shared, TrashCan};

/// Entries that are removed before it is another thing's turn.
const PART: u64 = 10_000;
/// How soon a removal that failed is tried again; twice as long after each failure,
const AGAIN: Duration = Duration::from_millis(50);
/// up to this.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// The failures at which it is told that something is being filled.
const TOLD_AT: [u32; 2] = [2, 5];
/// Entries of one thing after which something must be filling it: more than two trees may have.
const REFILLED: u64 = 1_000_000;

impl Item {
    /// Whether this failure is one that is told: not every one, because runs that begin later cannot reach it.
    pub(super) fn is_to_be_told(&self) -> bool {
        TOLD_AT.contains(&self.failures)
    }

    /// Whether more was removed of it than can have been there at first.
    pub(super) fn was_refilled(&self) -> bool {
        self.removed >= REFILLED
    }

    fn due(&self) -> Instant {
        let now = Instant::now();
        match self.failures.checked_sub(1) {
            None => now,
            Some(doublings) => now + AGAIN.saturating_mul(1 << doublings.min(16)).min(AGAIN_MAX),
        }
    }
}

impl TrashCan {
    /// Has `item` removed by the janitor when it is due.
    pub(super) fn wait_for(&self, item: Item) {
        let mut table = self.shared.table.lock();
        if table.is_closed {
            return;
        }
        table.last += 1;
        let key = (item.due(), table.last);
        table.waiting.insert(key, item);
        if table.janitor.is_none() {
            let can = self.clone();
            match std::thread::Builder::new().name("trash".to_owned()).spawn(move || can.tidy()) {
                Ok(janitor) => table.janitor = Some(janitor),
                Err(error) => tracing::warn!(%error, "what was thrown away stays until something else is"),
            }
        }
        drop(table);
        self.shared.changed.notify_all();
    }

    fn tidy(&self) {
        while let Some(item) = next(&self.shared) {
            self.remove(item, PART);
        }
    }
}

/// Waits for the next thing that is due; `None` when nothing waits any more, or the store closes.
fn next(shared: &Arc<Shared>) -> Option<Item> {
    let mut table = shared.table.lock();
    loop {
        if table.is_closed {
            return None;
        }
        let Some(first) = table.waiting.first_entry() else {
            // The next thing that waits starts another.
            table.janitor = None;
            return None;
        };
        let due = first.key().0;
        if due <= Instant::now() {
            return Some(first.remove());
        }
        shared.changed.wait_until(&mut table, due);
    }
}

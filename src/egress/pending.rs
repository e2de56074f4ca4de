//! [`Pending`]: connections that have not yet said whose they are.
//!
//! Nobody can be charged for them, so there is a bound for all, and a new one pushes out the oldest: an honest head
//! comes at once, and only who dawdles grows old.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Connections without a head at once.
pub(super) const PENDING_MAX: usize = 256;

/// Connections by the order in which they came.
#[derive(Default)]
pub(super) struct Pending(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    waiting: BTreeMap<u64, CancellationToken>,
}

/// A connection among those that wait, until dropped.
pub(super) struct Arrival {
    pending: Arc<Pending>,
    number: u64,
    pushed_out: CancellationToken,
}

impl Pending {
    pub(super) fn arrive(self: &Arc<Self>) -> Arrival {
        let pushed_out = CancellationToken::new();
        let mut inner = self.0.lock();
        let number = inner.next;
        inner.next += 1;
        inner.waiting.insert(number, pushed_out.clone());
        if inner.waiting.len() > PENDING_MAX
            && let Some((_, oldest)) = inner.waiting.pop_first()
        {
            oldest.cancel();
        }
        Arrival { pending: Arc::clone(self), number, pushed_out }
    }
}

impl Arrival {
    pub(super) async fn pushed_out(&self) {
        self.pushed_out.cancelled().await;
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.pending.0.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_those_that_left_do_not_count() {
        let pending = Arc::new(Pending::default());
        let mut arrivals: Vec<Arrival> = (0..PENDING_MAX).map(|_| pending.arrive()).collect();
        assert!(!arrivals[0].pushed_out.is_cancelled());
        drop(arrivals.remove(5));
        let _last = pending.arrive();
        assert!(!arrivals[0].pushed_out.is_cancelled());
        let _one_more = pending.arrive();
        assert!(arrivals[0].pushed_out.is_cancelled() && !arrivals[1].pushed_out.is_cancelled());
    }
}

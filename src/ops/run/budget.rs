//! [`Budget`]: what the logs of all runs may take on the disk together.

use std::sync::Arc;

use parking_lot::Mutex;

/// By how much a log grows at once, in bytes.
const STEP_BYTES: u64 = 1024 * 1024;

/// The room for all logs.
pub(crate) struct Budget {
    limit: u64,
    used: Mutex<u64>,
}

/// The part of one log; given back when dropped.
pub(crate) struct Share {
    budget: Arc<Budget>,
    granted: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: Mutex::new(0) })
    }

    /// The bytes that logs have now.
    pub(crate) fn used(&self) -> u64 {
        *self.used.lock()
    }

    /// The most bytes for all logs.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// A share of nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), granted: 0 }
    }
}

impl Share {
    /// The bytes of this part.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Takes what is lacking up to `bytes`, in whole steps; tells whether there was enough.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let target = bytes.div_ceil(STEP_BYTES) * STEP_BYTES;
        let lacking = target.saturating_sub(self.granted);
        let mut used = self.budget.used.lock();
        if *used + lacking > self.budget.limit {
            return false;
        }
        *used += lacking;
        self.granted += lacking;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.used.lock() -= self.granted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget_and_come_back() {
        let budget = Budget::new(3 * STEP_BYTES);
        let mut one = budget.share();
        let mut two = budget.share();
        assert!(one.grow_to(1) && one.grow_to(STEP_BYTES) && two.grow_to(STEP_BYTES + 1));
        assert_eq!(
            (one.granted(), two.granted(), budget.used()),
            (STEP_BYTES, 2 * STEP_BYTES, 3 * STEP_BYTES)
        );
        assert!(!one.grow_to(STEP_BYTES + 1));
        drop(two);
        assert!(one.grow_to(3 * STEP_BYTES));
        drop(one);
        assert_eq!(budget.used(), 0);
    }
}

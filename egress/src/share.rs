//! [`Share`]: what one user may have of the proxy at once, over all its runs and agents.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use policy::UserId;
use tokio::sync::Semaphore;

/// A user's share, common to all of its runs.
#[derive(Debug)]
pub(super) struct Share {
    /// Connections that are served; each takes two descriptors of the service.
    pub(super) connections: Semaphore,
}

/// The shares of the users that have a run.
#[derive(Default)]
pub(super) struct Shares(Mutex<HashMap<UserId, Weak<Share>>>);

impl Shares {
    /// The share of `user`, of `connections` when it is new.
    pub(super) fn of(&self, user: &UserId, connections: usize) -> Arc<Share> {
        let mut shares = self.0.lock();
        if let Some(share) = shares.get(user).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(Share { connections: Semaphore::new(connections) });
        shares.insert(user.clone(), Arc::downgrade(&share));
        share
    }

    /// Forgets the users that have no run and no connection any more.
    pub(super) fn forget_unused(&self) {
        self.0.lock().retain(|_, share| share.strong_count() > 0);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

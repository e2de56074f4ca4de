//! [`Shares`]: how many entries are watched for each user.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use policy::UserId;

/// The watched trees of all users.
#[derive(Default)]
pub(super) struct Shares {
    users: Mutex<HashMap<UserId, Weak<AtomicUsize>>>,
}

/// The part of one feed in the watched entries of its user. Dropping it gives the part back.
pub(super) struct Share {
    all: Arc<AtomicUsize>,
    own: AtomicUsize,
    most: usize,
}

impl Shares {
    /// A share of `user`, who may have `most` entries watched in all.
    pub(super) fn of(&self, user: &UserId, most: usize) -> Share {
        let mut users = self.users.lock();
        // As many as there are users with feeds, of which there are few.
        users.retain(|_, all| all.strong_count() > 0);
        let all = users.get(user).and_then(Weak::upgrade).unwrap_or_default();
        users.insert(user.clone(), Arc::downgrade(&all));
        Share { all, own: AtomicUsize::new(0), most }
    }
}

impl Share {
    /// Says how many entries are watched by now. Tells whether the user may have so many.
    pub(super) fn set(&self, entries: usize) -> bool {
        let before = self.own.swap(entries, Ordering::Relaxed);
        let all = if entries >= before {
            self.all.fetch_add(entries - before, Ordering::Relaxed) + (entries - before)
        } else {
            self.all.fetch_sub(before - entries, Ordering::Relaxed) - (before - entries)
        };
        all <= self.most
    }

    /// How many entries the user may have watched in all.
    pub(super) fn most(&self) -> usize {
        self.most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_one_user_are_counted_together_and_those_of_others_are_not() {
        let shares = Shares::default();
        let user = |name: &str| UserId::parse(name).unwrap();
        let (one, two) = (shares.of(&user("a"), 10), shares.of(&user("a"), 10));
        assert!(one.set(6) && !two.set(5) && two.set(4));
        assert!(shares.of(&user("b"), 10).set(10));
        drop(one);
        assert!(two.set(10));
        drop(two);
        assert!(shares.of(&user("a"), 10).set(10));
        assert_eq!(shares.users.lock().len(), 1);
    }
}

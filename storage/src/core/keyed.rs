//! [`Keyed`]: a value for each key that is in use, such as the lock of each tree.
//!
//! No two keys share a value, so that a request which holds the lock of one tree for long keeps no request from another tree.
//! Values that are not in use are forgotten when there are many.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

/// Parts of the table, so that threads seldom wait for each other at it.
const SHARDS: usize = 16;
/// Values of one part from which on those that are not in use are forgotten.
const IDLE_MAX: usize = 256;

/// A value that may be in use after it was found.
pub(crate) trait Used {
    /// Tells whether a part of it is in use, although the value itself is not.
    fn is_used(&self) -> bool;
}

/// The values of keys.
pub(crate) struct Keyed<K, V> {
    hasher: RandomState,
    shards: [Mutex<HashMap<K, Arc<V>>>; SHARDS],
}

impl<K: Eq + Hash, V: Used> Keyed<K, V> {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// The value of `key`; `make` makes it when there is none.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut values = self.shard(&key).lock();
        if let Some(value) = values.get(&key) {
            return Arc::clone(value);
        }
        if values.len() >= IDLE_MAX {
            // No thread finds one meanwhile: this one holds the part.
            values.retain(|_, value| Arc::strong_count(value) > 1 || value.is_used());
        }
        Arc::clone(values.entry(key).or_insert_with(|| Arc::new(make())))
    }

    /// The value of `key`, if there is one.
    pub(crate) fn find(&self, key: &K) -> Option<Arc<V>> {
        self.shard(key).lock().get(key).map(Arc::clone)
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the length, which is never 0")]
    fn shard(&self, key: &K) -> &Mutex<HashMap<K, Arc<V>>> {
        let hash = usize::try_from(self.hasher.hash_one(key) & 0xFFFF).unwrap_or(0);
        &self.shards[hash % SHARDS]
    }

    /// How many values there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(usize, bool);

    impl Used for Number {
        fn is_used(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn what_is_used_stays_and_of_the_rest_no_more_than_some() {
        let all = Keyed::new();
        let held = all.get(usize::MAX, || Number(1, false));
        drop(all.get(usize::MAX - 1, || Number(2, true)));
        for key in 0..100_000 {
            drop(all.get(key, || Number(3, false)));
        }
        assert!(all.len() <= SHARDS * IDLE_MAX, "{}", all.len());
        assert!(Arc::ptr_eq(&held, &all.get(usize::MAX, || Number(4, false))));
        assert_eq!(all.find(&(usize::MAX - 1)).map(|value| value.0), Some(2));
        assert!(all.find(&0).is_none(), "the control: it was forgotten");
    }
}

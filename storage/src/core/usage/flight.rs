//! [`Flight`]: bytes that a user's requests have on the disk before they are in a tree, or on their way out of one.
//!
//! A file that is being received, an archive that is being unpacked or packed, a copy that is not in its place yet: each
//! has a flight, and takes its bytes before it writes them. All flights of a user together have a bound
//! (`limits.disk.in_flight_bytes`), and none goes on when the file system would keep too little free. What a flight took
//! is given back when it is dropped.

use std::collections::HashMap;

use policy::{TreeId, UserId};

use crate::core::growth::Growth;
use crate::core::store::Store;
use crate::error::{Error, Result};
use crate::layers::stage::Allowance;
use crate::stat::Use;

/// Bytes after which the file system is asked again what it has left.
const LOOK_BYTES: u64 = 1024 * 1024;

/// Bytes in flight of one request, until this is dropped.
pub struct Flight {
    store: Store,
    user: UserId,
    /// The tree that they are for, when they are for one.
    tree: Option<TreeId>,
    bytes: u64,
    /// Bytes that were taken since the file system was asked.
    unwatched: u64,
}

impl Store {
    /// Begins a flight of `user` with nothing in it.
    #[must_use]
    pub fn flight(&self, user: &UserId) -> Flight {
        Flight { store: self.clone(), user: user.clone(), tree: None, bytes: 0, unwatched: 0 }
    }

    /// Begins a flight of what is to be placed in the tree `id`.
    pub(crate) fn flight_to(&self, id: &TreeId) -> Flight {
        let mut flight = self.flight(id.user());
        flight.tree = Some(id.clone());
        flight
    }

    /// Bytes that `user` has in flight.
    #[must_use]
    pub fn in_flight(&self, user: &UserId) -> u64 {
        self.inner.flights.users.lock().get(user).copied().unwrap_or(0)
    }

    /// Refuses what is on its way into the tree `id`, by all requests together, when it has no room there even when it
    /// takes the place of `replaced` bytes.
    ///
    /// # Errors
    /// [`Error::Quota`], [`Error::Countless`], [`Error::Full`].
    pub(crate) fn admit_arriving(&self, id: &TreeId, replaced: u64) -> Result<()> {
        let arriving = self.inner.flights.trees.lock().get(id).copied().unwrap_or(0);
        let adds = Use { bytes: arriving, files: 0 };
        let growth = Growth { adds, takes: Use { bytes: replaced, files: 0 }, is_exact: true };
        if !self.has_room(id, &growth) {
            // The tree may have to be counted.
            let _held = self.inner.locks.read(id);
            drop(self.admit(id, &growth)?);
        }
        Ok(())
    }
}

impl Flight {
    /// Takes `bytes` more, which are about to be written.
    ///
    /// # Errors
    /// [`Error::InFlight`] when the user has too many; [`Error::TooLarge`] when these alone are; [`Error::Full`]. Then
    /// none is taken.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        let limit = self.store.disk_limits().in_flight_bytes;
        if self.bytes.saturating_add(bytes) > limit {
            let what = "what one request has on its way (`limits.disk.in_flight_bytes`)".to_owned();
            return Err(Error::TooLarge { what, limit });
        }
        if self.unwatched.saturating_add(bytes) >= LOOK_BYTES {
            self.store.admit_space_for(bytes)?;
            self.unwatched = 0;
        }
        {
            let mut users = self.store.inner.flights.users.lock();
            let used = users.get(&self.user).copied().unwrap_or(0);
            if used.saturating_add(bytes) > limit {
                return Err(Error::InFlight { used, needs: bytes, limit });
            }
            match users.get_mut(&self.user) {
                Some(used) => *used = used.saturating_add(bytes),
                None if bytes > 0 => drop(users.insert(self.user.clone(), bytes)),
                None => {}
            }
        }
        if let Some(tree) = &self.tree
            && bytes > 0
        {
            let mut trees = self.store.inner.flights.trees.lock();
            match trees.get_mut(tree) {
                Some(arriving) => *arriving = arriving.saturating_add(bytes),
                None => drop(trees.insert(tree.clone(), bytes)),
            }
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.unwatched = self.unwatched.saturating_add(bytes);
        Ok(())
    }

    /// Takes as many bytes more as it needs to have `bytes` in all.
    ///
    /// # Errors
    /// As [`Flight::take`].
    pub fn take_up_to(&mut self, bytes: u64) -> Result<()> {
        match bytes.saturating_sub(self.bytes) {
            0 => Ok(()),
            more => self.take(more),
        }
    }
}

impl Allowance for Flight {
    fn take(&mut self, bytes: u64) -> Result<()> {
        Self::take(self, bytes)
    }

    fn explain(&self, error: Error) -> Error {
        match &self.tree {
            Some(tree) => self.store.in_numbers(tree, error),
            None => error,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let flights = &self.store.inner.flights;
        give_back(&mut flights.users.lock(), &self.user, self.bytes);
        if let Some(tree) = &self.tree {
            give_back(&mut flights.trees.lock(), tree, self.bytes);
        }
    }
}

fn give_back<K: Eq + std::hash::Hash>(table: &mut HashMap<K, u64>, key: &K, bytes: u64) {
    let Some(used) = table.get_mut(key) else { return };
    *used = used.saturating_sub(bytes);
    if *used == 0 {
        table.remove(key);
    }
}

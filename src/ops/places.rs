//! [`RunPlaces`]: how many commands run at once, per user and in all, and who waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use policy::{RunLimits, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{Error, Result};

/// Waiting requests per place before further ones are sent away at once.
const WAITING_PER_PLACE: usize = 8;

/// How many commands may run at once.
pub struct RunPlaces {
    all: Arc<Semaphore>,
    places: usize,
    users: Arc<Mutex<HashMap<UserId, Arc<Semaphore>>>>,
    per_user: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    queue: Duration,
}

/// A place taken; dropping it gives it back.
pub struct Place {
    // In this order: the user's place must be free before the map is looked at.
    _all: OwnedSemaphorePermit,
    mine: Option<OwnedSemaphorePermit>,
    user: UserId,
    users: Arc<Mutex<HashMap<UserId, Arc<Semaphore>>>>,
}

struct Waiting<'a>(&'a AtomicUsize);

impl RunPlaces {
    /// Makes as many places as `limits` says.
    #[must_use]
    pub fn new(limits: &RunLimits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.runs.max(1))),
            places: limits.runs.max(1),
            users: Arc::new(Mutex::new(HashMap::new())),
            per_user: limits.runs_per_user.max(1),
            waiting: AtomicUsize::new(0),
            waiting_max: limits.runs.max(1) * WAITING_PER_PLACE,
            queue: Duration::from_millis(limits.queue_ms),
        }
    }

    /// Places for which nobody waits: who finds none is sent away at once.
    #[must_use]
    pub fn without_queue(all: usize, per_user: usize) -> Self {
        Self::new(&RunLimits { runs: all, runs_per_user: per_user, queue_ms: 0, ..RunLimits::default() })
    }

    /// Waits for a place for `user`, in order of arrival, as long as the queue's limit says.
    ///
    /// The user's own place is taken first, so that one user's waiting commands hold up nobody else's.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub async fn take(&self, user: &UserId) -> Result<Place> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Busy { what: "too many commands are waiting", retry_after_seconds: 5 });
        }
        let _waiting = Waiting(&self.waiting);
        let per_user = self.per_user;
        let semaphore = Arc::clone(
            self.users.lock().entry(user.clone()).or_insert_with(|| Arc::new(Semaphore::new(per_user))),
        );
        let taken = tokio::time::timeout(self.queue, async {
            let mine = semaphore.acquire_owned().await;
            let all = Arc::clone(&self.all).acquire_owned().await;
            (mine, all)
        });
        match taken.await {
            Ok((Ok(mine), Ok(all))) => {
                Ok(Place { _all: all, mine: Some(mine), user: user.clone(), users: Arc::clone(&self.users) })
            }
            Ok(_) => Err(Error::Stopping),
            Err(_) => {
                forget_idle(&self.users, user);
                Err(Error::Busy { what: "too many commands are running", retry_after_seconds: 5 })
            }
        }
    }

    /// Requests that wait for a place.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Places taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.places.saturating_sub(self.all.available_permits())
    }

    /// Users with a command running or waiting.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.lock().len()
    }
}

/// Removes a user's entry when nobody holds or awaits a place of it.
fn forget_idle(users: &Mutex<HashMap<UserId, Arc<Semaphore>>>, user: &UserId) {
    let mut users = users.lock();
    // Every permit and every waiter holds an `Arc`; the map's own is the last.
    if users.get(user).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
        users.remove(user);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.mine.take());
        forget_idle(&self.users, &self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn one_user_never_takes_the_last_place_of_another() {
        let places =
            RunPlaces::new(&RunLimits { runs: 3, runs_per_user: 2, queue_ms: 20, ..RunLimits::default() });
        let _first = places.take(&user("甲")).await.unwrap();
        let _second = places.take(&user("甲")).await.unwrap();
        assert!(matches!(places.take(&user("甲")).await, Err(Error::Busy { .. })));
        assert!(places.take(&user("乙")).await.is_ok());
    }

    #[tokio::test]
    async fn a_user_who_is_done_leaves_nothing_behind() {
        let places =
            RunPlaces::new(&RunLimits { runs: 1, runs_per_user: 1, queue_ms: 5, ..RunLimits::default() });
        let held = places.take(&user("a")).await.unwrap();
        assert!(places.take(&user("a")).await.is_err());
        assert!(places.take(&user("b")).await.is_err());
        drop(held);
        assert!(places.take(&user("b")).await.is_ok());
        assert_eq!(places.users(), 0);
    }
}

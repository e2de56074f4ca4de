//! [`RunPlaces`]: how many of one kind of work go on at once, per user and in all, and who waits.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use policy::{RunLimits, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{Error, Result};

/// Waiting requests per place before further ones are sent away at once, of one user and of all.
const WAITING_PER_PLACE: usize = 16;
/// When another try may succeed, in seconds.
const RETRY_SECONDS: u64 = 5;

/// The purpose of places, in the words of a refusal: "4 terminals of this user are open (`…`): close one".
#[derive(Clone, Copy, Debug)]
pub struct Purpose {
    /// Several of them: `terminals`.
    pub many: &'static str,
    /// The state of those that have a place: `are open`.
    pub state: &'static str,
    /// The setting that says how many one user has; empty where it is fixed.
    pub setting_per_user: &'static str,
    /// The setting that says how many there are in all; empty where it is fixed.
    pub setting: &'static str,
    /// The advice to a user who needs a place.
    pub next: &'static str,
}

impl Purpose {
    /// Commands whose callers wait for their ends.
    pub const COMMANDS: Self = Self {
        many: "commands",
        state: "run",
        setting_per_user: "limits.runs.runs_per_user",
        setting: "limits.runs.runs",
        next: "wait until one has ended",
    };
    /// Commands in the background.
    pub const BACKGROUND: Self = Self {
        many: "background runs",
        state: "are under way",
        setting_per_user: "limits.sessions.background_per_user",
        setting: "limits.sessions.background",
        next: "end one with `DELETE exec/{exec_id}`, or wait until one has ended",
    };
    /// Terminals.
    pub const TERMINALS: Self = Self {
        many: "terminals",
        state: "are open",
        setting_per_user: "limits.sessions.terminals_per_user",
        setting: "limits.sessions.terminals",
        next: "close one",
    };
    /// Commands that work on a copy until a caller decides.
    pub const UNDECIDED: Self = Self {
        many: "runs with `\"commit\": \"ask\"`",
        state: "are under way or wait for a decision",
        setting_per_user: "limits.sessions.undecided_per_user",
        setting: "limits.sessions.undecided",
        next: "commit or discard one",
    };
    /// Streams of events.
    pub const STREAMS: Self = Self {
        many: "streams of events",
        state: "are open",
        setting_per_user: "limits.events.listeners_per_user",
        setting: "limits.events.listeners",
        next: "close one",
    };
    /// Searches.
    pub const SEARCHES: Self = Self {
        many: "searches",
        state: "run",
        setting_per_user: "",
        setting: "",
        next: "wait until one has ended",
    };
    /// Work on snapshots.
    pub const SNAPSHOTS: Self = Self {
        many: "snapshots",
        state: "are being worked on",
        setting_per_user: "",
        setting: "limits.snapshots.at_once",
        next: "wait until one is done",
    };
}

/// How many of one kind of work may go on at once. Places belong to users, or to others that have an id.
pub struct RunPlaces<K: Eq + Hash + Clone = UserId> {
    purpose: Purpose,
    all: Arc<Semaphore>,
    places: usize,
    users: Users<K>,
    per_user: usize,
    waiting: AtomicUsize,
    queue: Duration,
}

type Users<K> = Arc<Mutex<HashMap<K, Arc<OfUser>>>>;

/// The places of one user.
struct OfUser {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A place taken; dropping it gives it back.
pub struct Place<K: Eq + Hash = UserId> {
    // In this order: the user's place must be free before the map is looked at.
    _all: OwnedSemaphorePermit,
    mine: Option<OwnedSemaphorePermit>,
    user: K,
    users: Users<K>,
}

/// A request that waits; dropping it, also before it has got anything, ends that.
struct Waiting<'a, K: Eq + Hash> {
    all: &'a AtomicUsize,
    mine: Option<Arc<OfUser>>,
    user: &'a K,
    users: &'a Users<K>,
}

impl RunPlaces {
    /// Makes as many places for commands as `limits` says.
    #[must_use]
    pub fn new(limits: &RunLimits) -> Self {
        let queue = Duration::from_millis(limits.queue_ms);
        Self::with(Purpose::COMMANDS, limits.runs, limits.runs_per_user, queue)
    }
}

impl<K: Eq + Hash + Clone> RunPlaces<K> {
    /// Makes `all` places of which one user has `per_user` at most; a request waits for one as long as `queue`.
    #[must_use]
    pub fn with(purpose: Purpose, all: usize, per_user: usize, queue: Duration) -> Self {
        Self {
            purpose,
            all: Arc::new(Semaphore::new(all.max(1))),
            places: all.max(1),
            users: Arc::default(),
            per_user: per_user.max(1),
            waiting: AtomicUsize::new(0),
            queue,
        }
    }

    /// Places without a queue: a request that finds none is refused at once.
    #[must_use]
    pub fn without_queue(purpose: Purpose, all: usize, per_user: usize) -> Self {
        Self::with(purpose, all, per_user, Duration::ZERO)
    }

    /// Waits for a place for `user`, in order of arrival, as long as the queue's limit says.
    ///
    /// The user's own place is taken first, so that one user's waiting commands hold up no other user's.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn take(&self, user: &K) -> Result<Place<K>> {
        match self.try_take(user) {
            Some(place) => Ok(place),
            None => Ok(self.take_behind(user, std::future::ready(())).await?.1),
        }
    }

    /// A place for `user`, if nothing has to be waited for.
    pub fn try_take(&self, user: &K) -> Option<Place<K>> {
        let mine = self.of(user);
        let taken = Arc::clone(&mine.free).try_acquire_owned().ok().and_then(|mine| {
            let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
            Some(self.place(user, mine, all))
        });
        drop(mine);
        if taken.is_none() {
            forget_idle(&self.users, user);
        }
        taken
    }

    /// Waits for a place for `user`, in order of arrival, as long as it takes and however many wait: for work that has begun
    /// and cannot be refused any more. What bounds the number of such work bounds the number that waits.
    ///
    /// # Errors
    /// [`Error::Stopping`], which does not happen while the places exist.
    pub async fn take_in_turn(&self, user: &K) -> Result<Place<K>> {
        if let Some(place) = self.try_take(user) {
            return Ok(place);
        }
        let (waiting, ..) = self.enqueue(user);
        let free = waiting.mine.as_ref().map(|mine| Arc::clone(&mine.free)).ok_or(Error::Stopping)?;
        let mine = free.acquire_owned().await.map_err(|_| Error::Stopping)?;
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(|_| Error::Stopping)?;
        Ok(self.place(user, mine, all))
    }

    /// Waits for `count` places at once, or for all that one user can have when those are fewer.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn take_many(&self, user: &K, count: usize) -> Result<Place<K>> {
        let most = self.per_user.min(self.places);
        let count = u32::try_from(count.min(most)).unwrap_or(u32::MAX);
        let waiting = self.wait(user)?;
        let free = waiting.mine.as_ref().map(|mine| Arc::clone(&mine.free)).ok_or(Error::Stopping)?;
        let taken = tokio::time::timeout(self.queue, async {
            let mine = free.acquire_many_owned(count).await;
            (mine, Arc::clone(&self.all).acquire_many_owned(count).await)
        });
        match taken.await {
            Ok((Ok(mine), Ok(all))) => Ok(self.place(user, mine, all)),
            Ok(_) => Err(Error::Stopping),
            Err(_) => Err(self.full(user)),
        }
    }

    /// Waits for what comes before a place, then for the place: together as long as the queue's limit says.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn take_behind<B>(&self, user: &K, before: impl Future<Output = B>) -> Result<(B, Place<K>)> {
        let waiting = self.wait(user)?;
        let free = waiting.mine.as_ref().map(|mine| Arc::clone(&mine.free)).ok_or(Error::Stopping)?;
        let taken = tokio::time::timeout(self.queue, async {
            let before = before.await;
            let mine = free.acquire_owned().await;
            let all = Arc::clone(&self.all).acquire_owned().await;
            (before, mine, all)
        });
        match taken.await {
            Ok((before, Ok(mine), Ok(all))) => Ok((before, self.place(user, mine, all))),
            Ok(_) => Err(Error::Stopping),
            Err(_) => Err(self.full(user)),
        }
    }

    fn place(&self, user: &K, mine: OwnedSemaphorePermit, all: OwnedSemaphorePermit) -> Place<K> {
        Place { _all: all, mine: Some(mine), user: user.clone(), users: Arc::clone(&self.users) }
    }

    fn of(&self, user: &K) -> Arc<OfUser> {
        let mut users = self.users.lock();
        if let Some(mine) = users.get(user) {
            return Arc::clone(mine);
        }
        let free = Arc::new(Semaphore::new(self.per_user));
        let mine = Arc::new(OfUser { free, waiting: AtomicUsize::new(0) });
        users.insert(user.clone(), Arc::clone(&mine));
        mine
    }

    /// Counts a request that waits. Tells how many of its user, and of all, waited before.
    fn enqueue<'a>(&'a self, user: &'a K) -> (Waiting<'a, K>, usize, usize) {
        let mine = self.of(user);
        let (before, before_all) =
            (mine.waiting.fetch_add(1, Ordering::Relaxed), self.waiting.fetch_add(1, Ordering::Relaxed));
        (Waiting { all: &self.waiting, mine: Some(mine), user, users: &self.users }, before, before_all)
    }

    /// Counts a request that waits, unless too many do.
    fn wait<'a>(&'a self, user: &'a K) -> Result<Waiting<'a, K>> {
        let (waiting, before, before_all) = self.enqueue(user);
        let Purpose { many, state, .. } = self.purpose;
        if before >= self.per_user * WAITING_PER_PLACE {
            let what = format!("{before} requests of this user wait already while other {many} {state}");
            return Err(Error::Full { what, next: "send fewer at once", retry_after_seconds: RETRY_SECONDS });
        }
        if before_all >= self.places * WAITING_PER_PLACE {
            let what = format!("{before_all} requests of all users wait already while other {many} {state}");
            return Err(Error::Full { what, next: "wait", retry_after_seconds: RETRY_SECONDS });
        }
        Ok(waiting)
    }

    /// Says what is full, how many there are, and what to do.
    fn full(&self, user: &K) -> Error {
        let Purpose { many, state, setting_per_user, setting, next } = self.purpose;
        let by = |setting: &str| match setting {
            "" => String::new(),
            setting => format!(" (`{setting}`)"),
        };
        // A request that held its user's place waited for one of all users.
        let own = self.users.lock().get(user).map_or(self.per_user, |mine| mine.free.available_permits());
        let (what, next) = if own < self.all.available_permits() || own == 0 {
            (format!("{} {many} of this user {state}{}", self.per_user, by(setting_per_user)), next)
        } else {
            (format!("{} {many} of all users {state}{}", self.places, by(setting)), "wait")
        };
        Error::Full { what, next, retry_after_seconds: RETRY_SECONDS }
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

/// Removes a user's entry when no request holds or awaits a place of it.
fn forget_idle<K: Eq + Hash>(users: &Mutex<HashMap<K, Arc<OfUser>>>, user: &K) {
    let mut users = users.lock();
    // Every permit holds the semaphore, every waiter the entry; the map's own is the last.
    let is_idle = |mine: &Arc<OfUser>| Arc::strong_count(mine) == 1 && Arc::strong_count(&mine.free) == 1;
    if users.get(user).is_some_and(is_idle) {
        users.remove(user);
    }
}

impl<K: Eq + Hash> Drop for Waiting<'_, K> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(mine) = self.mine.take() {
            mine.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        forget_idle(self.users, self.user);
    }
}

impl<K: Eq + Hash> fmt::Debug for Place<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Place").finish_non_exhaustive()
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
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

    fn places(all: usize, per_user: usize, queue_ms: u64) -> RunPlaces {
        RunPlaces::with(Purpose::COMMANDS, all, per_user, Duration::from_millis(queue_ms))
    }

    #[tokio::test]
    async fn one_user_never_takes_the_last_place_of_another() {
        let places = places(3, 2, 20);
        let _first = places.take(&user("甲")).await.unwrap();
        let _second = places.take(&user("甲")).await.unwrap();
        assert!(matches!(places.take(&user("甲")).await, Err(Error::Full { .. })));
        assert!(places.take(&user("乙")).await.is_ok());
    }

    #[tokio::test]
    async fn a_user_who_is_done_leaves_nothing_behind() {
        let places = places(1, 1, 5);
        let held = places.take(&user("a")).await.unwrap();
        assert!(places.take(&user("a")).await.is_err());
        assert!(places.take(&user("b")).await.is_err());
        assert!(places.try_take(&user("c")).is_none());
        // A request that leaves while it waits.
        let left = tokio::time::timeout(Duration::ZERO, places.take(&user("d"))).await;
        assert!(left.is_err());
        drop(held);
        assert!(places.take(&user("b")).await.is_ok());
        assert_eq!((places.users(), places.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn waiting_requests_of_one_user_leave_room_for_those_of_another() {
        let places = Arc::new(places(4, 1, 60_000));
        let held = places.take(&user("a")).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_PER_PLACE)
            .map(|_| {
                let places = Arc::clone(&places);
                tokio::spawn(async move { places.take(&user("a")).await.map(drop) })
            })
            .collect();
        while places.waiting() < WAITING_PER_PLACE {
            tokio::task::yield_now().await;
        }
        let refused = places.take(&user("a")).await.map(drop).unwrap_err().to_string();
        assert!(refused.starts_with("16 requests of this user wait already"), "{refused}");
        drop(places.take(&user("b")).await.unwrap());
        drop(held);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        assert_eq!((places.users(), places.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_refusal_says_what_is_full_and_what_to_do() {
        let places = RunPlaces::without_queue(Purpose::UNDECIDED, 3, 2);
        let _held = (places.take(&user("a")).await.unwrap(), places.take(&user("a")).await.unwrap());
        let refused = |name: &'static str| {
            let places = &places;
            async move { places.take(&user(name)).await.map(drop).unwrap_err().to_string() }
        };
        assert_eq!(
            refused("a").await,
            "2 runs with `\"commit\": \"ask\"` of this user are under way or wait for a decision \
             (`limits.sessions.undecided_per_user`): commit or discard one, or try again in 5 s"
        );
        let _last = places.take(&user("b")).await.unwrap();
        assert_eq!(
            refused("c").await,
            "3 runs with `\"commit\": \"ask\"` of all users are under way or wait for a decision \
             (`limits.sessions.undecided`): wait, or try again in 5 s"
        );
    }
}

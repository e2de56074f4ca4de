//! [`Permits`]: how many of one kind of work go on at once, per user and in all, and who waits.

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

use super::permit_kind::PermitKind;
use crate::ops::error::{Error, Result};

/// Waiting requests per permit before further ones are sent away at once, of one user and of all.
const WAITING_PER_PERMIT: usize = 16;
/// When another try may succeed, in seconds.
const RETRY_SECONDS: u64 = 5;

/// How many of one kind of work may go on at once. Permits belong to users, or to others that have an id.
pub struct Permits<K: Eq + Hash + Clone = UserId> {
    kind: PermitKind,
    all: Arc<Semaphore>,
    permits: usize,
    users: Users<K>,
    per_user: usize,
    waiting: AtomicUsize,
    queue: Duration,
}

type Users<K> = Arc<Mutex<HashMap<K, Arc<OfUser>>>>;

/// The permits of one user.
struct OfUser {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Leave to work; dropping it gives it back.
pub struct Permit<K: Eq + Hash = UserId> {
    // In this order: the user's permit must be free before the map is looked at.
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

impl Permits {
    /// Makes as many permits for commands as `limits` says.
    #[must_use]
    pub fn new(limits: &RunLimits) -> Self {
        let queue = Duration::from_millis(limits.queue_ms);
        Self::with(PermitKind::COMMANDS, limits.runs, limits.runs_per_user, queue)
    }
}

impl<K: Eq + Hash + Clone> Permits<K> {
    /// Makes `all` permits of which one user has `per_user` at most; a request waits for one as long as `queue`.
    #[must_use]
    pub fn with(kind: PermitKind, all: usize, per_user: usize, queue: Duration) -> Self {
        Self {
            kind,
            all: Arc::new(Semaphore::new(all.max(1))),
            permits: all.max(1),
            users: Arc::default(),
            per_user: per_user.max(1),
            waiting: AtomicUsize::new(0),
            queue,
        }
    }

    /// Permits without a queue: a request that finds none is refused at once.
    #[must_use]
    pub fn without_queue(kind: PermitKind, all: usize, per_user: usize) -> Self {
        Self::with(kind, all, per_user, Duration::ZERO)
    }

    /// Waits for a permit for `user`, in order of arrival, as long as the queue's limit says.
    ///
    /// The user's own permit is taken first, so that one user's waiting commands hold up no other user's.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn take(&self, user: &K) -> Result<Permit<K>> {
        match self.try_take(user) {
            Some(permit) => Ok(permit),
            None => Ok(self.take_behind(user, std::future::ready(())).await?.1),
        }
    }

    /// A permit for `user`, if nothing has to be waited for.
    pub fn try_take(&self, user: &K) -> Option<Permit<K>> {
        let mine = self.of(user);
        let taken = Arc::clone(&mine.free).try_acquire_owned().ok().and_then(|mine| {
            let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
            Some(self.permit(user, mine, all))
        });
        drop(mine);
        if taken.is_none() {
            forget_idle(&self.users, user);
        }
        taken
    }

    /// Waits for a permit for `user`, in order of arrival, as long as it takes and however many wait: for work that has begun
    /// and cannot be refused any more. What bounds the number of such work bounds the number that waits.
    ///
    /// # Errors
    /// [`Error::Stopping`], which does not happen while the permits exist.
    pub async fn take_in_turn(&self, user: &K) -> Result<Permit<K>> {
        if let Some(permit) = self.try_take(user) {
            return Ok(permit);
        }
        let (waiting, ..) = self.enqueue(user);
        let free = waiting.mine.as_ref().map(|mine| Arc::clone(&mine.free)).ok_or(Error::Stopping)?;
        let mine = free.acquire_owned().await.map_err(|_| Error::Stopping)?;
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(|_| Error::Stopping)?;
        Ok(self.permit(user, mine, all))
    }

    /// Waits for `count` permits at once, or for all that one user can have when those are fewer.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn take_many(&self, user: &K, count: usize) -> Result<Permit<K>> {
        let most = self.per_user.min(self.permits);
        let count = u32::try_from(count.min(most)).unwrap_or(u32::MAX);
        let waiting = self.wait(user)?;
        let free = waiting.mine.as_ref().map(|mine| Arc::clone(&mine.free)).ok_or(Error::Stopping)?;
        let taken = tokio::time::timeout(self.queue, async {
            let mine = free.acquire_many_owned(count).await;
            (mine, Arc::clone(&self.all).acquire_many_owned(count).await)
        });
        match taken.await {
            Ok((Ok(mine), Ok(all))) => Ok(self.permit(user, mine, all)),
            Ok(_) => Err(Error::Stopping),
            Err(_) => Err(self.full(user)),
        }
    }

    /// Waits for what comes before a permit, then for the permit: together as long as the queue's limit says.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn take_behind<B>(&self, user: &K, before: impl Future<Output = B>) -> Result<(B, Permit<K>)> {
        let waiting = self.wait(user)?;
        let free = waiting.mine.as_ref().map(|mine| Arc::clone(&mine.free)).ok_or(Error::Stopping)?;
        let taken = tokio::time::timeout(self.queue, async {
            let before = before.await;
            let mine = free.acquire_owned().await;
            let all = Arc::clone(&self.all).acquire_owned().await;
            (before, mine, all)
        });
        match taken.await {
            Ok((before, Ok(mine), Ok(all))) => Ok((before, self.permit(user, mine, all))),
            Ok(_) => Err(Error::Stopping),
            Err(_) => Err(self.full(user)),
        }
    }

    fn permit(&self, user: &K, mine: OwnedSemaphorePermit, all: OwnedSemaphorePermit) -> Permit<K> {
        Permit { _all: all, mine: Some(mine), user: user.clone(), users: Arc::clone(&self.users) }
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
        let PermitKind { many, state, .. } = self.kind;
        if before >= self.per_user * WAITING_PER_PERMIT {
            let what = format!("{before} requests of this user wait already while other {many} {state}");
            return Err(Error::Full { what, next: "send fewer at once", retry_after_seconds: RETRY_SECONDS });
        }
        if before_all >= self.permits * WAITING_PER_PERMIT {
            let what = format!("{before_all} requests of all users wait already while other {many} {state}");
            return Err(Error::Full { what, next: "wait", retry_after_seconds: RETRY_SECONDS });
        }
        Ok(waiting)
    }

    /// Says what is full, how many there are, and what to do.
    fn full(&self, user: &K) -> Error {
        let PermitKind { many, state, setting_per_user, setting, next } = self.kind;
        let by = |setting: &str| match setting {
            "" => String::new(),
            setting => format!(" (`{setting}`)"),
        };
        // A request that held its user's permit waited for one of all users.
        let own = self.users.lock().get(user).map_or(self.per_user, |mine| mine.free.available_permits());
        let (what, next) = if own < self.all.available_permits() || own == 0 {
            (format!("{} {many} of this user {state}{}", self.per_user, by(setting_per_user)), next)
        } else {
            (format!("{} {many} of all users {state}{}", self.permits, by(setting)), "wait")
        };
        Error::Full { what, next, retry_after_seconds: RETRY_SECONDS }
    }

    /// Requests that wait for a permit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Permits taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.permits.saturating_sub(self.all.available_permits())
    }

    /// Users with a command running or waiting.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.lock().len()
    }
}

/// Removes a user's entry when no request holds or awaits a permit of it.
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

impl<K: Eq + Hash> fmt::Debug for Permit<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Place").finish_non_exhaustive()
    }
}

impl<K: Eq + Hash> Drop for Permit<K> {
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

    fn permits(all: usize, per_user: usize, queue_ms: u64) -> Permits {
        Permits::with(PermitKind::COMMANDS, all, per_user, Duration::from_millis(queue_ms))
    }

    #[tokio::test]
    async fn one_user_never_takes_the_last_place_of_another() {
        let permits = permits(3, 2, 20);
        let _first = permits.take(&user("甲")).await.unwrap();
        let _second = permits.take(&user("甲")).await.unwrap();
        assert!(matches!(permits.take(&user("甲")).await, Err(Error::Full { .. })));
        assert!(permits.take(&user("乙")).await.is_ok());
    }

    #[tokio::test]
    async fn a_user_who_is_done_leaves_nothing_behind() {
        let permits = permits(1, 1, 5);
        let held = permits.take(&user("a")).await.unwrap();
        assert!(permits.take(&user("a")).await.is_err());
        assert!(permits.take(&user("b")).await.is_err());
        assert!(permits.try_take(&user("c")).is_none());
        // A request that leaves while it waits.
        let left = tokio::time::timeout(Duration::ZERO, permits.take(&user("d"))).await;
        assert!(left.is_err());
        drop(held);
        assert!(permits.take(&user("b")).await.is_ok());
        assert_eq!((permits.users(), permits.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn waiting_requests_of_one_user_leave_room_for_those_of_another() {
        let permits = Arc::new(permits(4, 1, 60_000));
        let held = permits.take(&user("a")).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_PER_PERMIT)
            .map(|_| {
                let permits = Arc::clone(&permits);
                tokio::spawn(async move { permits.take(&user("a")).await.map(drop) })
            })
            .collect();
        while permits.waiting() < WAITING_PER_PERMIT {
            tokio::task::yield_now().await;
        }
        let refused = permits.take(&user("a")).await.map(drop).unwrap_err().to_string();
        assert!(refused.starts_with("16 requests of this user wait already"), "{refused}");
        drop(permits.take(&user("b")).await.unwrap());
        drop(held);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        assert_eq!((permits.users(), permits.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_refusal_says_what_is_full_and_what_to_do() {
        let permits = Permits::without_queue(PermitKind::UNDECIDED, 3, 2);
        let _held = (permits.take(&user("a")).await.unwrap(), permits.take(&user("a")).await.unwrap());
        let refused = |name: &'static str| {
            let permits = &permits;
            async move { permits.take(&user(name)).await.map(drop).unwrap_err().to_string() }
        };
        assert_eq!(
            refused("a").await,
            "2 runs with `\"commit\": \"ask\"` of this user are under way or wait for a decision \
             (`limits.sessions.undecided_per_user`): commit or discard one, or try again in 5 s"
        );
        let _last = permits.take(&user("b")).await.unwrap();
        assert_eq!(
            refused("c").await,
            "3 runs with `\"commit\": \"ask\"` of all users are under way or wait for a decision \
             (`limits.sessions.undecided`): wait, or try again in 5 s"
        );
    }
}

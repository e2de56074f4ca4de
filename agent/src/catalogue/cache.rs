//! [`Cache`]: something for each user, for a while.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use sandbox::{Result, UserId};

/// How long what was read is used: 5 minutes.
pub const TTL: Duration = Duration::from_secs(5 * 60);
/// Users that are remembered.
const USERS_MAX: usize = 10_000;
/// The memory for all of them together, in bytes: 256 MiB.
const BYTES_MAX: usize = 256 << 20;

/// A clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// A clock of one's own.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}

/// The clock of the system.
#[must_use]
pub fn system_clock() -> Clock {
    Clock::new(SystemTime::now)
}

/// A value that takes room.
pub(super) trait Weigh {
    /// About how many bytes.
    fn bytes(&self) -> usize;
}

/// One value a user, each with the time it was read at. When there is no room for a further one, it is not kept.
#[derive(Debug)]
pub(super) struct Cache<T> {
    clock: Clock,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// Each with the time it was read at, and its bytes.
    values: HashMap<UserId, (SystemTime, Arc<T>, usize)>,
    /// Counts what was forgotten, so that a value which was being read meanwhile is not kept.
    forgotten: u64,
}

impl<T> State<T> {
    fn has_room(&self, bytes: usize) -> bool {
        let kept: usize = self.values.values().map(|(.., bytes)| bytes).sum();
        self.values.len() < USERS_MAX && kept.saturating_add(bytes) <= BYTES_MAX
    }
}

impl<T: Weigh> Cache<T> {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::new(State { values: HashMap::new(), forgotten: 0 }) }
    }

    /// The value for a user, read by `read` when none is there or it is too old. What fails is not kept.
    pub(super) async fn get<F: Future<Output = Result<T>>>(
        &self,
        user: &UserId,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<T>> {
        let now = self.clock.now();
        let forgotten = {
            let state = self.state();
            // A clock that was set back makes a value too old, not young for ever.
            if let Some((since, value, _)) = state.values.get(user)
                && now.duration_since(*since).is_ok_and(|age| age < TTL)
            {
                return Ok(Arc::clone(value));
            }
            state.forgotten
        };
        let value = Arc::new(read().await?);
        let mut state = self.state();
        if state.forgotten == forgotten {
            let bytes = value.bytes();
            state.values.remove(user);
            if !state.has_room(bytes) {
                state.values.retain(|_, (since, ..)| now.duration_since(*since).is_ok_and(|age| age < TTL));
            }
            if state.has_room(bytes) {
                state.values.insert(user.clone(), (now, Arc::clone(&value), bytes));
            }
        }
        Ok(value)
    }

    /// Forgets the value of a user.
    pub(super) fn forget(&self, user: &UserId) {
        let mut state = self.state();
        state.values.remove(user);
        state.forgotten += 1;
    }

    /// Forgets everything.
    pub(super) fn forget_all(&self) {
        let mut state = self.state();
        state.values.clear();
        state.forgotten += 1;
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

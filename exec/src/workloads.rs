//! How much of the processors each user's commands have used lately. The commands of a user who has used more than a fair part
//! begin as those that give way to all others.
//!
//! A run with many busy processes is lowered (`zygote/memory/priority.rs`), but not before it has lived for a while. Without this
//! account, a user who begins one short run with a hundred busy processes after the other would never give way. Neither would one
//! whose processes only make calls that the [supervisors](crate::supervisor) of their runs answer: these wait, and the service works.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::UserId;

/// The part of all processors that a user's commands may use for ever without giving way: one of two.
const PART: u32 = 2;
/// For how long they may use all of that at once.
const AT_ONCE: Duration = Duration::from_millis(500);
/// How many times as much is remembered: after so much work a user waits for so many times [`AT_ONCE`], and no longer.
const REMEMBERED: u32 = 4;
/// How long a run is accounted for that is ended by force: a longer one with many busy processes was lowered meanwhile.
const BY_FORCE: Duration = Duration::from_millis(200);
/// How many times what the service works for a call is accounted for: its caller is taken to work as long.
const CALLER: u32 = 2;
/// Users of whom no work need be remembered are forgotten when there are so many.
const USERS: usize = 1_024;

/// The work of all users.
#[derive(Debug)]
pub(crate) struct Workloads {
    processors: u32,
    numbers: RandomState,
    of_users: Mutex<HashMap<UserId, Load>>,
}

/// The work of one user: what was used, and of that not worked off at `when`.
#[derive(Clone, Copy, Debug)]
struct Load {
    worked: Duration,
    when: Instant,
}

impl Default for Workloads {
    /// No user has worked yet, on the processors of this machine that the service may use.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            processors: u32::try_from(processors).unwrap_or(u32::MAX),
            numbers: RandomState::new(),
            of_users: Mutex::default(),
        }
    }
}

impl Workloads {
    /// Begins to account for a run of `user`; one without a user is not accounted for.
    pub(crate) fn begin(self: &Arc<Self>, user: Option<&UserId>) -> Working {
        Working { account: user.map(|user| (Arc::clone(self), user.clone())), began: Instant::now() }
    }

    /// A number that no other user is likely to have.
    pub(crate) fn number_of(&self, user: &UserId) -> u64 {
        self.numbers.hash_one(user)
    }

    /// Tells whether the next command of `user` is to give way.
    pub(crate) fn is_heavy(&self, user: &UserId, now: Instant) -> bool {
        let of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        of_users.get(user).is_some_and(|load| self.left(*load, now) > self.at_once())
    }

    fn add(&self, user: &UserId, worked: Duration, now: Instant) {
        let mut of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        if of_users.len() >= USERS && !of_users.contains_key(user) {
            of_users.retain(|_, load| !self.left(*load, now).is_zero());
        }
        let before = of_users.get(user).map_or(Duration::ZERO, |load| self.left(*load, now));
        let worked = before.saturating_add(worked).min(self.at_once() * REMEMBERED);
        of_users.insert(user.clone(), Load { worked, when: now });
    }

    /// What is not worked off at `now`.
    fn left(&self, load: Load, now: Instant) -> Duration {
        load.worked.saturating_sub(now.saturating_duration_since(load.when) * self.processors / PART)
    }

    fn at_once(&self) -> Duration {
        AT_ONCE * self.processors / PART
    }
}

/// The work that a thread of the service does for the calls of one run.
#[derive(Debug)]
pub(crate) struct ServiceWork {
    workloads: Arc<Workloads>,
    user: UserId,
}

impl ServiceWork {
    /// Accounts for what was worked for the run's calls; tells whether its user has used more than a fair part lately. It counts
    /// [twice](CALLER): no account knows of the caller's own work before the run has ended.
    pub(crate) fn add(&self, worked: Duration) -> bool {
        let now = Instant::now();
        self.workloads.add(&self.user, worked * CALLER, now);
        self.workloads.is_heavy(&self.user, now)
    }
}

/// The work of one run. When it is dropped, the run was ended by force: then it counts as if it had used all processors for
/// [`BY_FORCE`], because the kernel drops the figures of processes that it kills with their namespace.
#[derive(Debug)]
pub(crate) struct Working {
    account: Option<(Arc<Workloads>, UserId)>,
    began: Instant,
}

impl Working {
    /// Whether the command is to give way.
    pub(crate) fn gives_way(&self) -> bool {
        self.account.as_ref().is_some_and(|(workloads, user)| workloads.is_heavy(user, self.began))
    }

    /// The account for what the service does for the calls of the run.
    pub(crate) fn of_service(&self) -> Option<ServiceWork> {
        let (workloads, user) = self.account.clone()?;
        Some(ServiceWork { workloads, user })
    }

    /// The run has ended by itself, after all its processes together had used the processors for `worked`.
    pub(crate) fn end(mut self, worked: Duration) {
        if let Some((workloads, user)) = self.account.take() {
            workloads.add(&user, worked, Instant::now());
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some((workloads, user)) = self.account.take() {
            let now = Instant::now();
            let worked = now.duration_since(self.began).min(BY_FORCE);
            workloads.add(&user, worked * workloads.processors, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn of_two_processors() -> Workloads {
        Workloads { processors: 2, ..Workloads::default() }
    }

    #[test]
    fn more_than_half_of_the_processors_is_much_and_is_worked_off() {
        let workloads = of_two_processors();
        let (now, alice) = (Instant::now(), user("alice"));
        let after = |milliseconds| now + Duration::from_millis(milliseconds);
        assert!(!workloads.is_heavy(&alice, now));
        workloads.add(&alice, Duration::from_millis(500), now);
        assert!(!workloads.is_heavy(&alice, now));
        workloads.add(&alice, Duration::from_millis(100), now);
        assert!(workloads.is_heavy(&alice, now) && !workloads.is_heavy(&user("bob"), now));
        assert!(workloads.is_heavy(&alice, after(90)) && !workloads.is_heavy(&alice, after(110)));
        // One of two processors, for ever.
        for tenth in 2..100 {
            workloads.add(&alice, Duration::from_millis(100), after(100 * tenth));
            assert!(!workloads.is_heavy(&alice, after(100 * tenth)), "{tenth}");
        }
        workloads.add(&alice, Duration::from_secs(3_600), after(10_000));
        assert!(workloads.is_heavy(&alice, after(11_400)) && !workloads.is_heavy(&alice, after(11_600)));
    }

    #[test]
    fn a_run_that_was_ended_by_force_counts_as_one_that_used_all() {
        let workloads = Arc::new(of_two_processors());
        let alice = user("alice");
        let began = Instant::now() - Duration::from_secs(1);
        workloads.begin(Some(&alice)).end(Duration::from_millis(1));
        drop(workloads.begin(None));
        assert!(!workloads.begin(Some(&alice)).gives_way());
        let by_force = || drop(Working { account: Some((Arc::clone(&workloads), alice.clone())), began });
        by_force();
        let one = workloads.begin(Some(&alice));
        assert!(!one.gives_way());
        (0..4).for_each(|_| by_force());
        assert!(workloads.begin(Some(&alice)).gives_way());
        one.end(Duration::ZERO);
        assert!(!workloads.begin(Some(&user("bob"))).gives_way());
    }

    #[test]
    fn work_for_the_calls_of_a_run_is_much_while_the_run_goes_on() {
        let workloads = Arc::new(of_two_processors());
        let alice = user("alice");
        let run = workloads.begin(Some(&alice));
        let work = run.of_service().unwrap();
        assert!(!work.add(Duration::from_millis(200)) && !run.gives_way());
        assert!(work.add(Duration::from_millis(200)));
        assert!(
            workloads.begin(Some(&alice)).gives_way() && !workloads.begin(Some(&user("bob"))).gives_way()
        );
        assert!(workloads.begin(None).of_service().is_none());
    }

    #[test]
    fn users_whose_work_is_worked_off_are_forgotten() {
        let workloads = of_two_processors();
        let now = Instant::now();
        for number in 0..3 * USERS {
            let now = now + Duration::from_secs(number as u64);
            workloads.add(&user(&format!("user-{number}")), Duration::from_millis(20), now);
        }
        assert!(workloads.of_users.lock().unwrap().len() <= USERS);
    }
}

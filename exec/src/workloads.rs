//! How much of the processors each user's commands have used lately. The commands of a user who has used more than a fair part
//! begin as those that give way to all others.
//!
//! A run with many busy processes is lowered (`zygote/memory/priority.rs`), but not before it has lived for a while. Without this
//! account, a user who begins one short run with a hundred busy processes after the other would never give way. Neither would one
//! whose processes only make calls that the [supervisors](crate::supervisor) of their runs answer: these wait, and the service works.
//!
//! For each command the service works, too, and goes before all commands. So while another user is there, commands begin in turns: short
//! ones without end would keep the service at work on every processor, and a command of somebody else waits for a second where the kernel
//! shares out processors by session.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
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
/// How long after one another the commands of a user begin, in the long run, and how many at once.
const APART: Duration = Duration::from_millis(5);
const TURNS_AT_ONCE: u32 = 50;
/// How long a command waits for its turn at most.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Users of whom no work need be remembered are forgotten when there are so many.
const USERS: usize = 1_024;

/// The work of all users.
#[derive(Debug)]
pub(crate) struct Workloads {
    processors: u32,
    numbers: RandomState,
    of_users: Mutex<HashMap<UserId, Arc<Load>>>,
}

/// The work of one user. No lock guards it: who adds to it may be a thread that gives way to all others, and nobody waits for that.
#[derive(Debug)]
struct Load {
    processors: u32,
    /// The moment from which `worked_off` counts.
    since: Instant,
    /// When all that was used is worked off, in nanoseconds.
    worked_off: AtomicU64,
    /// The moment at which all turns that were taken are over, in nanoseconds.
    turns_over: AtomicU64,
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
    pub(crate) fn begin(&self, user: Option<&UserId>) -> Working {
        let began = Instant::now();
        Working { load: user.map(|user| self.of(user, began)), began }
    }

    /// Takes a turn of `user`: how long until it comes.
    pub(crate) fn turn(&self, user: &UserId) -> Duration {
        let now = Instant::now();
        self.of(user, now).turn(now)
    }

    /// A number that no other user is likely to have.
    pub(crate) fn number_of(&self, user: &UserId) -> u64 {
        self.numbers.hash_one(user)
    }

    fn of(&self, user: &UserId, now: Instant) -> Arc<Load> {
        let mut of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(load) = of_users.get(user) {
            return Arc::clone(load);
        }
        if of_users.len() >= USERS {
            of_users.retain(|_, load| Arc::strong_count(load) > 1 || load.is_remembered(now));
        }
        let load = Load {
            processors: self.processors,
            since: now,
            worked_off: AtomicU64::new(0),
            turns_over: AtomicU64::new(0),
        };
        Arc::clone(of_users.entry(user.clone()).or_insert(Arc::new(load)))
    }
}

impl Load {
    /// Adds what was worked, as far as it is [remembered](REMEMBERED).
    fn add(&self, worked: Duration, now: Instant) {
        let worked = worked.min(AT_ONCE * REMEMBERED * self.processors) * PART / self.processors;
        let now = nanoseconds(now.saturating_duration_since(self.since));
        let _before = self.worked_off.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |worked_off| {
            let after = worked_off.max(now).saturating_add(nanoseconds(worked));
            Some(after.min(now.saturating_add(nanoseconds(AT_ONCE * REMEMBERED))))
        });
    }

    /// How long it takes until all is worked off.
    fn left(&self, now: Instant) -> Duration {
        let worked_off = Duration::from_nanos(self.worked_off.load(Ordering::Relaxed));
        worked_off.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Takes a turn: how long until it comes, [`WAIT_MAX`] at most. Those whose callers leave meanwhile have taken theirs, too.
    fn turn(&self, now: Instant) -> Duration {
        let now = nanoseconds(now.saturating_duration_since(self.since));
        let latest = now.saturating_add(nanoseconds(APART * TURNS_AT_ONCE + WAIT_MAX));
        let over = |before: u64| before.max(now).saturating_add(nanoseconds(APART)).min(latest);
        let before =
            self.turns_over.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(over(before)));
        let (Ok(before) | Err(before)) = before;
        Duration::from_nanos(over(before).saturating_sub(now)).saturating_sub(APART * TURNS_AT_ONCE)
    }

    /// Tells whether something is to be worked off, or a turn that was taken is not over yet.
    fn is_remembered(&self, now: Instant) -> bool {
        let turns_over = Duration::from_nanos(self.turns_over.load(Ordering::Relaxed));
        !self.left(now).is_zero() || turns_over > now.saturating_duration_since(self.since)
    }

    /// Tells whether the next command of the user is to give way.
    fn is_heavy(&self, now: Instant) -> bool {
        self.left(now) > AT_ONCE
    }
}

/// Enough for 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The work that a thread of the service does for the calls of one run.
#[derive(Debug)]
pub(crate) struct ServiceWork(Arc<Load>);

impl ServiceWork {
    /// Accounts for what was worked for the run's calls; tells whether its user has used more than a fair part lately. It counts
    /// [twice](CALLER): no account knows of the caller's own work before the run has ended.
    pub(crate) fn add(&self, worked: Duration) -> bool {
        let now = Instant::now();
        self.0.add(worked * CALLER, now);
        self.0.is_heavy(now)
    }
}

/// The work of one run. When it is dropped, the run was ended by force: then it counts as if it had used all processors for
/// [`BY_FORCE`], because the kernel drops the figures of processes that it kills with their namespace.
#[derive(Debug)]
pub(crate) struct Working {
    load: Option<Arc<Load>>,
    began: Instant,
}

impl Working {
    /// Whether the command is to give way.
    pub(crate) fn gives_way(&self) -> bool {
        self.load.as_ref().is_some_and(|load| load.is_heavy(self.began))
    }

    /// The account for what the service does for the calls of the run.
    pub(crate) fn of_service(&self) -> Option<ServiceWork> {
        self.load.clone().map(ServiceWork)
    }

    /// The run has ended by itself, after all its processes together had used the processors for `worked`.
    pub(crate) fn end(mut self, worked: Duration) {
        if let Some(load) = self.load.take() {
            load.add(worked, Instant::now());
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(load) = self.load.take() {
            let now = Instant::now();
            let worked = now.duration_since(self.began).min(BY_FORCE);
            load.add(worked * load.processors, now);
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
        let now = Instant::now();
        let alice = workloads.of(&user("alice"), now);
        let after = |milliseconds| now + Duration::from_millis(milliseconds);
        assert!(!alice.is_heavy(now));
        alice.add(Duration::from_millis(500), now);
        assert!(!alice.is_heavy(now));
        alice.add(Duration::from_millis(100), now);
        assert!(alice.is_heavy(now) && !workloads.of(&user("bob"), now).is_heavy(now));
        assert!(alice.is_heavy(after(90)) && !alice.is_heavy(after(110)));
        // One of two processors, for ever.
        for tenth in 2..100 {
            alice.add(Duration::from_millis(100), after(100 * tenth));
            assert!(!alice.is_heavy(after(100 * tenth)), "{tenth}");
        }
        alice.add(Duration::from_secs(3_600), after(10_000));
        assert!(alice.is_heavy(after(11_400)) && !alice.is_heavy(after(11_600)));
    }

    #[test]
    fn turns_come_one_after_the_other_when_many_were_taken_at_once() {
        let workloads = of_two_processors();
        let now = Instant::now();
        let alice = workloads.of(&user("alice"), now);
        let waits = |at: Instant, turns: u32| (0..turns).map(|_| alice.turn(at)).sum::<Duration>();
        assert_eq!(waits(now, TURNS_AT_ONCE), Duration::ZERO);
        assert_eq!([alice.turn(now), alice.turn(now)], [APART, APART * 2]);
        assert_eq!(workloads.of(&user("bob"), now).turn(now), Duration::ZERO);
        assert!((0..1_000).map(|_| alice.turn(now)).all(|wait| wait <= WAIT_MAX));
        // With so many users that some are forgotten, too.
        let carol = user("carol");
        (0..=TURNS_AT_ONCE).for_each(|_| _ = workloads.of(&carol, now).turn(now));
        (0..USERS).for_each(|number| drop(workloads.of(&user(&format!("user-{number}")), now)));
        assert!(workloads.of(&carol, now).turn(now) > Duration::ZERO);
        // However long nobody takes one, no more are saved up.
        let later = now + Duration::from_secs(10);
        assert_eq!((waits(later, TURNS_AT_ONCE), alice.turn(later)), (Duration::ZERO, APART));
    }

    #[test]
    fn a_run_that_was_ended_by_force_counts_as_one_that_used_all() {
        let workloads = of_two_processors();
        let alice = user("alice");
        let began = Instant::now() - Duration::from_secs(1);
        workloads.begin(Some(&alice)).end(Duration::from_millis(1));
        drop(workloads.begin(None));
        assert!(!workloads.begin(Some(&alice)).gives_way());
        let by_force = || {
            let mut run = workloads.begin(Some(&alice));
            run.began = began;
        };
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
        let workloads = of_two_processors();
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
            workloads.of(&user(&format!("user-{number}")), now).add(Duration::from_millis(20), now);
        }
        assert!(workloads.of_users.lock().unwrap().len() <= USERS);
    }

    #[test]
    fn a_user_who_has_a_run_is_not_forgotten() {
        let workloads = of_two_processors();
        let work = workloads.begin(Some(&user("alice"))).of_service().unwrap();
        for number in 0..2 * USERS {
            let _nothing = workloads.begin(Some(&user(&format!("user-{number}"))));
        }
        assert!(work.add(Duration::from_secs(1)) && workloads.begin(Some(&user("alice"))).gives_way());
    }
}

//! How much of the processors each user's commands have used lately. The commands of a user who has used more than a fair part
//! begin as those that give way to all others.
//!
//! A run with many busy processes is lowered (`zygote/memory/priority.rs`), but not before it has lived for a while. Without this
//! account, a user who begins one short run with a hundred busy processes after the other would never give way. Neither would one
//! whose processes only make calls that the [supervisors](crate::supervisor) of their runs answer: these wait, and the service works.
//!
//! For each command the service works, too, and goes before all commands. So while another user is there, commands begin in turns: short
//! ones without end would keep the service at work on every processor, and a command of another user waits for a second where the kernel
//! shares out processors by session. A user whose short commands have written much to the disk waits until that is worked off, as the
//! processes of longer ones do (`zygote/memory/pace.rs`).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::UserId;

use crate::sys::Work;

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
/// A run that lasts twice as long is watched, and what it writes accounted for there.
const UNWATCHED: Duration = Duration::from_millis(100);
/// How long a user's runs may have written for at once, at the rate that they may keep up, and how long the next one waits at most.
const WRITING_AT_ONCE: Duration = Duration::from_secs(4);
const WRITING_WAIT_MAX: Duration = Duration::from_secs(10);
/// How many times as much as that rate a run is taken to have written that was not watched before it was ended by force.
const WRITTEN_BY_FORCE: u32 = 32;
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
    /// When the account began.
    since: Instant,
    /// What was used of the processors.
    worked: Debt,
    /// The turns that were taken.
    turns: Debt,
    /// What was written to the disk.
    written: Debt,
}

/// Something that is worked off as time goes by: at which moment all of it is, in nanoseconds after the account began.
#[derive(Debug, Default)]
struct Debt(AtomicU64);

impl Debt {
    /// Adds `lasting`, so that no more than `most` is left; what is left then.
    fn add(&self, lasting: Duration, most: Duration, now: Duration) -> Duration {
        let (now, lasting, most) = (nanoseconds(now), nanoseconds(lasting), nanoseconds(most));
        let after = |before: u64| before.max(now).saturating_add(lasting).min(now.saturating_add(most));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(after(before)));
        let (Ok(before) | Err(before)) = before;
        Duration::from_nanos(after(before).saturating_sub(now))
    }

    fn left(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)).saturating_sub(now)
    }
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
    /// Begins to account for a run of `user`, who may write `write_rate` bytes to the disk in a second, 0 for any number. A run without a
    /// user is not accounted for.
    pub(crate) fn begin(&self, user: Option<&UserId>, write_rate: u64) -> Working {
        let began = Instant::now();
        Working { load: user.map(|user| self.of(user, began)), write_rate, is_under_way: false, began }
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
            worked: Debt::default(),
            turns: Debt::default(),
            written: Debt::default(),
        };
        Arc::clone(of_users.entry(user.clone()).or_insert(Arc::new(load)))
    }
}

impl Load {
    /// Adds what was worked, as far as it is [remembered](REMEMBERED).
    fn add(&self, worked: Duration, now: Instant) {
        let worked = worked.min(AT_ONCE * REMEMBERED * self.processors) * PART / self.processors;
        self.worked.add(worked, AT_ONCE * REMEMBERED, self.age(now));
    }

    /// How long it takes until all is worked off.
    fn left(&self, now: Instant) -> Duration {
        self.worked.left(self.age(now))
    }

    /// Adds what was written, as time at the rate that the user may keep up.
    fn add_written(&self, lasting: Duration, now: Instant) {
        self.written.add(lasting, WRITING_AT_ONCE + WRITING_WAIT_MAX, self.age(now));
    }

    /// Takes a turn: how long until it comes, [`WAIT_MAX`] at most, or [`WRITING_WAIT_MAX`] after much was written. Those whose callers
    /// leave meanwhile have taken theirs, too.
    fn turn(&self, now: Instant) -> Duration {
        let at_once = APART * TURNS_AT_ONCE;
        let left = self.turns.add(APART, at_once + WAIT_MAX, self.age(now));
        let written = self.written.left(self.age(now));
        left.saturating_sub(at_once).max(written.saturating_sub(WRITING_AT_ONCE))
    }

    /// Tells whether something is to be worked off, or a turn that was taken is not over yet.
    fn is_remembered(&self, now: Instant) -> bool {
        [&self.worked, &self.turns, &self.written].into_iter().any(|debt| !debt.left(self.age(now)).is_zero())
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
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
    write_rate: u64,
    /// Whether its command may have begun.
    is_under_way: bool,
    began: Instant,
}

impl Working {
    /// The command may have begun from now on.
    pub(crate) fn hand_over(&mut self) {
        self.is_under_way = true;
    }

    /// Whether the command is to give way.
    pub(crate) fn gives_way(&self) -> bool {
        self.load.as_ref().is_some_and(|load| load.is_heavy(self.began))
    }

    /// The account for what the service does for the calls of the run.
    pub(crate) fn of_service(&self) -> Option<ServiceWork> {
        self.load.clone().map(ServiceWork)
    }

    /// The run has ended by itself, after all its processes together have done `work`.
    pub(crate) fn end(mut self, work: Work) {
        if let Some(load) = self.load.take() {
            let now = Instant::now();
            load.add(work.lasted, now);
            let written =
                work.blocks.saturating_mul(512).saturating_mul(1_000_000).checked_div(self.write_rate);
            // A longer run may have written so much without pausing, or at its end, after the last look.
            let lasted = Some(now.duration_since(self.began)).filter(|lasted| *lasted >= UNWATCHED);
            if let Some(lasting) = written {
                load.add_written(
                    Duration::from_micros(lasting).saturating_sub(lasted.unwrap_or_default()),
                    now,
                );
            }
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(load) = self.load.take() {
            let now = Instant::now();
            let lasted = now.duration_since(self.began);
            load.add(lasted.min(BY_FORCE) * load.processors, now);
            if self.is_under_way && lasted < UNWATCHED * 2 && self.write_rate > 0 {
                load.add_written(lasted.min(UNWATCHED) * WRITTEN_BY_FORCE, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 32 << 20;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn of_two_processors() -> Workloads {
        Workloads { processors: 2, ..Workloads::default() }
    }

    fn worked(milliseconds: u64) -> Work {
        Work { lasted: Duration::from_millis(milliseconds), blocks: 0 }
    }

    #[test]
    fn after_short_commands_that_wrote_much_the_next_waits() {
        let workloads = of_two_processors();
        let (alice, mib) = (user("alice"), 1 << 20);
        let writes =
            |mib: u64| workloads.begin(Some(&alice), RATE).end(Work { blocks: mib << 11, ..worked(1) });
        // As much as may be written at once; where there is no rate, nothing counts.
        writes(128);
        workloads.begin(Some(&alice), 0).end(Work { blocks: u64::MAX, ..worked(1) });
        assert_eq!(workloads.turn(&alice), Duration::ZERO);
        writes(64);
        let wait = workloads.turn(&alice);
        assert!(Duration::from_secs(1) < wait && wait <= Duration::from_secs(2), "{wait:?}");
        writes(100 * mib);
        assert!(workloads.turn(&alice) <= WRITING_WAIT_MAX && workloads.turn(&user("bob")).is_zero());
        // One that is ended by force is taken to have written all the time, if it had begun.
        for (who, has_begun) in [("dave", true), ("erin", false)] {
            for _ in 0..3 {
                let mut killed = workloads.begin(Some(&user(who)), RATE);
                killed.is_under_way = has_begun;
                killed.began -= UNWATCHED / 2;
            }
            assert_eq!(workloads.turn(&user(who)) > Duration::ZERO, has_begun);
        }
        // A longer one may have written as long as it lasted.
        let lasted = |mib: u64| {
            let mut watched = workloads.begin(Some(&user("carol")), RATE);
            watched.began -= Duration::from_secs(10);
            watched.end(Work { blocks: mib << 11, ..worked(1) });
            workloads.turn(&user("carol"))
        };
        assert_eq!(lasted(320 + 128), Duration::ZERO);
        assert!(lasted(320 + 64) > Duration::ZERO);
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
        // However long none is taken, no more are saved up.
        let later = now + Duration::from_secs(10);
        assert_eq!((waits(later, TURNS_AT_ONCE), alice.turn(later)), (Duration::ZERO, APART));
    }

    #[test]
    fn a_run_that_was_ended_by_force_counts_as_one_that_used_all() {
        let workloads = of_two_processors();
        let alice = user("alice");
        let began = Instant::now() - Duration::from_secs(1);
        workloads.begin(Some(&alice), RATE).end(worked(1));
        drop(workloads.begin(None, RATE));
        assert!(!workloads.begin(Some(&alice), RATE).gives_way());
        let by_force = || {
            let mut run = workloads.begin(Some(&alice), RATE);
            run.began = began;
        };
        by_force();
        let one = workloads.begin(Some(&alice), RATE);
        assert!(!one.gives_way());
        (0..4).for_each(|_| by_force());
        assert!(workloads.begin(Some(&alice), RATE).gives_way());
        one.end(worked(0));
        assert!(!workloads.begin(Some(&user("bob")), RATE).gives_way());
    }

    #[test]
    fn work_for_the_calls_of_a_run_is_much_while_the_run_goes_on() {
        let workloads = of_two_processors();
        let alice = user("alice");
        let run = workloads.begin(Some(&alice), RATE);
        let work = run.of_service().unwrap();
        assert!(!work.add(Duration::from_millis(200)) && !run.gives_way());
        assert!(work.add(Duration::from_millis(200)));
        assert!(
            workloads.begin(Some(&alice), RATE).gives_way()
                && !workloads.begin(Some(&user("bob")), RATE).gives_way()
        );
        assert!(workloads.begin(None, RATE).of_service().is_none());
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
        let work = workloads.begin(Some(&user("alice")), RATE).of_service().unwrap();
        for number in 0..2 * USERS {
            let _nothing = workloads.begin(Some(&user(&format!("user-{number}"))), RATE);
        }
        assert!(work.add(Duration::from_secs(1)) && workloads.begin(Some(&user("alice")), RATE).gives_way());
    }
}

//! [`Interrupt`]: ends a job whose caller has left, or which takes too long.
//!
//! A job of this crate runs on one thread from its beginning to its end. Its caller enters an interrupt on that thread
//! ([`Interrupt::enter`]), and each loop over entries or bytes asks it with [`check`]. Outside of a job, and in a job
//! without an interrupt, [`check`] always agrees. A thread that helps with a job enters the job's interrupt itself
//! ([`current`]).
//!
//! A job ends early only while nothing of it can be seen. What makes a change visible calls [`commit`] first; from then
//! on the job goes on to its end.
//!
//! A job that takes long may have to give way to others: each of its threads does so when it asks ([`Interrupt::giving_way_after`]).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
    static HAS_GIVEN_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Ends a job early. Clones are of the same job.
#[derive(Clone, Debug)]
pub struct Interrupt {
    job: Arc<Job>,
}

#[derive(Debug)]
struct Job {
    /// Set when the caller does not wait for the answer any more.
    is_abandoned: AtomicBool,
    /// Set when the job goes on to its end without regard to its caller and deadline.
    is_committed: AtomicBool,
    deadline: Instant,
    allowed: Duration,
    /// From when on the job is a slow one, and what each of its threads does then.
    slow: Option<(Instant, fn())>,
}

/// Puts the interrupt back that the thread had before.
struct Entered(Option<Interrupt>);

impl Interrupt {
    /// Of a job that begins now and may take as long as `allowed`.
    #[must_use]
    pub fn after(allowed: Duration) -> Self {
        Self::new(allowed, None)
    }

    /// The same, but each thread of the job calls `give_way` when it asks and the job has taken longer than `quick`: once, because a
    /// thread that has given way is taken to end with the job.
    #[must_use]
    pub fn giving_way_after(quick: Duration, give_way: fn(), allowed: Duration) -> Self {
        Self::new(allowed, Some((quick, give_way)))
    }

    fn new(allowed: Duration, slow: Option<(Duration, fn())>) -> Self {
        let now = Instant::now();
        // A time beyond the clock's range never comes: a far one stands for it.
        let after =
            |time| now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()));
        Self {
            job: Arc::new(Job {
                is_abandoned: AtomicBool::new(false),
                is_committed: AtomicBool::new(false),
                deadline: after(allowed),
                allowed,
                slow: slow.map(|(quick, give_way)| (after(quick), give_way)),
            }),
        }
    }

    /// Tells the job that its caller has left.
    pub fn abandon(&self) {
        self.job.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Tells whether the caller has left.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.job.is_abandoned.load(Ordering::Relaxed)
    }

    /// Tells whether the job has made, or is making, its change visible.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.job.is_committed.load(Ordering::Relaxed)
    }

    /// Agrees that the job goes on. A thread of a slow job gives way here.
    ///
    /// # Errors
    /// [`Error::Abandoned`] when the caller has left; [`Error::TooLong`] when the time is over.
    pub fn check(&self) -> Result<()> {
        if self.is_committed() {
            return Ok(());
        }
        if self.is_abandoned() {
            return Err(Error::Abandoned);
        }
        let now = Instant::now();
        if let Some((slow, give_way)) = self.job.slow
            && now >= slow
            && !HAS_GIVEN_WAY.replace(true)
        {
            give_way();
        }
        if now >= self.job.deadline {
            return Err(Error::TooLong { seconds: self.job.allowed.as_secs_f64().ceil() as u64 });
        }
        Ok(())
    }

    /// Runs `work` as the job of this interrupt.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = Entered(CURRENT.replace(Some(self.clone())));
        work()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The interrupt of the job on this thread, if it has one.
#[must_use]
pub fn current() -> Option<Interrupt> {
    CURRENT.with_borrow(Clone::clone)
}

/// Agrees that the job on this thread goes on.
///
/// To be asked for each entry and for each mebibyte at least; it takes some tens of nanoseconds.
///
/// # Errors
/// As [`Interrupt::check`].
pub fn check() -> Result<()> {
    CURRENT.with_borrow(|current| current.as_ref().map_or(Ok(()), Interrupt::check))
}

/// Agrees for the last time: from here on the job on this thread goes on to its end.
///
/// # Errors
/// As [`Interrupt::check`].
pub fn commit() -> Result<()> {
    CURRENT.with_borrow(|current| {
        let Some(current) = current else { return Ok(()) };
        current.check()?;
        current.job.is_committed.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// Does work on a thread that does not give way, because it does not end with the job.
pub fn without_giving_way<T>(work: impl FnOnce() -> T) -> T {
    let before = HAS_GIVEN_WAY.replace(true);
    let done = work();
    HAS_GIVEN_WAY.set(before);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_ends_when_its_caller_leaves_or_its_time_is_over_and_another_job_does_not() {
        assert!(check().is_ok());
        let left = Interrupt::after(Duration::from_secs(3600));
        assert!(left.enter(check).is_ok());
        left.abandon();
        assert!(matches!(left.enter(check), Err(Error::Abandoned)));
        let late = Interrupt::after(Duration::ZERO);
        assert!(matches!(late.enter(check), Err(Error::TooLong { .. })));
        // A job within a job, and the thread afterwards.
        let inner = Interrupt::after(Duration::MAX);
        let (within, after) = left.enter(|| (inner.enter(check), check()));
        assert!(within.is_ok() && after.is_err());
        assert!(check().is_ok() && current().is_none());
    }

    #[test]
    fn each_thread_of_a_slow_job_gives_way_once() {
        thread_local! {
            static TIMES: Cell<u32> = const { Cell::new(0) };
        }
        let give_way = || TIMES.set(TIMES.get() + 1);
        let times = |quick| {
            let job = Interrupt::giving_way_after(quick, give_way, Duration::MAX);
            let thread = || {
                without_giving_way(|| job.enter(check)).unwrap();
                assert_eq!(TIMES.get(), 0);
                for _ in 0..3 {
                    job.enter(check).unwrap();
                }
                TIMES.get()
            };
            std::thread::scope(|threads| {
                [threads.spawn(thread), threads.spawn(thread)].map(|one| one.join().unwrap())
            })
        };
        assert_eq!(times(Duration::ZERO), [1, 1]);
        assert_eq!(times(Duration::from_secs(3600)), [0, 0]);
    }

    #[test]
    fn what_is_committed_goes_on_to_its_end() {
        let interrupt = Interrupt::after(Duration::from_secs(3600));
        interrupt.enter(|| {
            commit().unwrap();
            interrupt.abandon();
            check().unwrap();
        });
        let too_late = Interrupt::after(Duration::from_secs(3600));
        too_late.abandon();
        assert!(too_late.enter(commit).is_err());
        assert!(!too_late.is_committed());
    }
}

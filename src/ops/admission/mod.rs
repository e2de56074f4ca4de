//! [`Admission`]: what stands in front of every blocking job of a request.
//!
//! The threads that block are few, and the runtime gives one to every job. So a job says which user it is for, how
//! heavy it is and what it does to its tree, and gets a thread only when
//!
//! 1. no other job holds its tree for long ([`holds`]),
//! 2. its user has a permit left, and
//! 3. there is one left in all ([`Permits`]).
//!
//! Until then it waits without a thread, in the order of arrival among the jobs of its user, for a bounded time and with a
//! bounded number of others; then it is [`Error::Full`], which says of what. Each weight has permits of
//! its own, so that long jobs of all users together leave threads for short ones, and no user has more than a part of any.
//!
//! A job whose caller leaves, or which takes too long, is interrupted ([`Interrupt`]). It keeps its permit until it has
//! ended. The permits of runs, terminals, searches and snapshots are counted beside these, and so are those of reads for
//! answers that are on their way ([`reads`]).

pub mod holds;
pub mod permit_kind;
pub mod permits;
mod publications;
pub mod reads;

use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use exec::Launcher;
use parking_lot::Mutex;
use policy::{TreeId, UserId, WorkLimits};
use storage::Interrupt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::holds::{Hold, Holds, Mode};
use self::permit_kind::PermitKind;
use self::permits::{Permit, Permits};
use super::Service;
use super::error::{Error, Result};

/// How heavy a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// A few system calls: one small file, one directory.
    Light,
    /// Looks through a whole tree, or works on whole texts.
    Scan,
    /// Moves the bytes of whole trees.
    Long,
}

/// The owner of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The user whose tree it is about.
    User(UserId),
    /// Those who may ask about all users.
    Operators,
}

/// A blocking job of a request.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its owner.
    pub owner: Owner,
    /// How heavy it is.
    pub weight: Weight,
    /// The tree that it works on, if it is one.
    pub hold: Option<(TreeId, Mode)>,
    /// Whether it goes on when its caller has left.
    pub goes_on: bool,
    /// For how long it is at work before it gives way as a command at work does; `None` when it never does. Long ones do from their
    /// beginning; others share the processors until then as a command that begins.
    pub gives_way_after: Option<Duration>,
}

/// For how long a job that is usually short shares the processors as a command that begins.
const QUICK: Duration = Duration::from_millis(10);

/// The permits of all jobs.
pub struct Admission {
    light: Permits<Owner>,
    scans: Permits<Owner>,
    long: Permits<Owner>,
    bodies: Permits<Owner>,
    reads: Arc<Permits<Owner>>,
    holds: Holds,
    longest: Duration,
    /// Who is told of each user that is here.
    launcher: Option<Arc<Launcher>>,
}

impl Owner {
    fn of(user: Option<&UserId>) -> Self {
        user.map_or(Self::Operators, |user| Self::User(user.clone()))
    }

    fn user(&self) -> Option<&UserId> {
        match self {
            Self::User(user) => Some(user),
            Self::Operators => None,
        }
    }
}

/// `bytes` in KiB, rounded up.
fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

/// Interrupts a job when it is dropped before the job has ended.
struct Caller(Interrupt);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Job {
    /// A job of `user` that holds no tree.
    #[must_use]
    pub fn of(user: &UserId, weight: Weight) -> Self {
        Self { owner: Owner::User(user.clone()), weight, hold: None, goes_on: false, gives_way_after: None }
    }

    /// A job about one user, or about all.
    #[must_use]
    pub fn about(user: Option<&UserId>, weight: Weight) -> Self {
        Self { owner: Owner::of(user), weight, hold: None, goes_on: false, gives_way_after: None }
    }

    /// A job on a tree.
    #[must_use]
    pub fn on(tree: &TreeId, weight: Weight, mode: Mode) -> Self {
        Self {
            owner: Owner::User(tree.user().clone()),
            weight,
            hold: Some((tree.clone(), mode)),
            goes_on: false,
            gives_way_after: None,
        }
    }

    /// The same, which goes on when its caller has left.
    #[must_use]
    pub fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// The same, which gives way to the service's other threads if it `is_large`: it works for long on one text.
    #[must_use]
    pub fn giving_way_if(self, is_large: bool) -> Self {
        Self { gives_way_after: is_large.then_some(Duration::ZERO), ..self }
    }

    /// The same, which gives way to the service's other threads, and more so once it has taken long.
    #[must_use]
    pub fn giving_way_when_slow(self) -> Self {
        Self { gives_way_after: Some(QUICK), ..self }
    }

    /// A light job that reads a tree.
    #[must_use]
    pub fn read(tree: &TreeId) -> Self {
        Self::on(tree, Weight::Light, Mode::ShortRead)
    }

    /// A light job that changes a tree.
    #[must_use]
    pub fn change(tree: &TreeId) -> Self {
        Self::on(tree, Weight::Light, Mode::ShortChange)
    }
}

impl Admission {
    /// As many permits as `limits` says.
    #[must_use]
    pub fn new(limits: &WorkLimits) -> Self {
        let queue = Duration::from_millis(limits.queue_ms);
        let permits = |many, setting_per_user, setting, all, per_user| {
            let next = "wait until one has ended";
            let kind = PermitKind { many, state: "are being worked on", setting_per_user, setting, next };
            Permits::with(kind, all, per_user, queue)
        };
        Self {
            light: permits(
                "requests for files",
                "limits.work.light_per_user",
                "limits.work.light",
                limits.light,
                limits.light_per_user,
            ),
            scans: permits(
                "requests that look through whole trees or texts",
                "limits.work.scans_per_user",
                "limits.work.scans",
                limits.scans,
                limits.scans_per_user,
            ),
            long: permits(
                "downloads, uploads, copies and the like",
                "limits.work.long_per_user",
                "limits.work.long",
                limits.long,
                limits.long_per_user,
            ),
            bodies: Permits::with(
                PermitKind {
                    many: "KiB of request bodies",
                    state: "are held",
                    setting_per_user: "limits.work.bodies_bytes_per_user",
                    setting: "limits.work.bodies_bytes",
                    next: "send large bodies one after the other",
                },
                kibibytes(limits.bodies_bytes),
                kibibytes(limits.bodies_bytes_per_user),
                queue,
            ),
            reads: reads::permits(),
            holds: Holds::default(),
            longest: Duration::from_millis(limits.long_ms),
            launcher: None,
        }
    }

    /// The same, which tells `launcher` of each user that is here.
    #[must_use]
    pub fn telling(self, launcher: Arc<Launcher>) -> Self {
        Self { launcher: Some(launcher), ..self }
    }

    fn permits(&self, weight: Weight) -> &Permits<Owner> {
        match weight {
            Weight::Light => &self.light,
            Weight::Scan => &self.scans,
            Weight::Long => &self.long,
        }
    }

    /// Waits until a body of `bytes` bytes has room among those that are held in memory, of `user` and of all.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub async fn hold_bytes(&self, user: Option<&UserId>, bytes: usize) -> Result<Permit<Owner>> {
        self.bodies.take_many(&Owner::of(user), kibibytes(bytes)).await
    }

    /// Waits until `job` may have a thread.
    ///
    /// # Errors
    /// [`Error::Full`].
    async fn admit(&self, job: &Job) -> Result<(Option<Hold>, Permit<Owner>)> {
        if let (Owner::User(user), Some(launcher)) = (&job.owner, &self.launcher) {
            launcher.note_user(user);
        }
        let permits = self.permits(job.weight);
        let Some((tree, mode)) = &job.hold else { return Ok((None, permits.take(&job.owner).await?)) };
        if let Some(hold) = self.holds.try_take(tree, *mode)
            && let Some(permit) = permits.try_take(&job.owner)
        {
            return Ok((Some(hold), permit));
        }
        let (hold, permit) = permits.take_behind(&job.owner, self.holds.take(tree, *mode)).await?;
        Ok((Some(hold?), permit))
    }

    /// Does blocking work off the runtime when its turn has come.
    ///
    /// Dropping the future interrupts the work, which keeps its permit until it has ended.
    ///
    /// # Errors
    /// [`Error::Full`]; what `work` returns.
    pub async fn work<T: Send + 'static>(
        &self,
        job: Job,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.work_and_clear(job, || work().map(|done| (done, ()))).await
    }

    /// As [`Admission::work`]. What `work` returns beside the result is dropped after the result is told, under the permit of the
    /// job: removing what was replaced may take as long as the job itself. The tree is free by then.
    ///
    /// # Errors
    /// As [`Admission::work`].
    pub async fn work_and_clear<T: Send + 'static, L: Send + 'static>(
        &self,
        job: Job,
        work: impl FnOnce() -> Result<(T, L)> + Send + 'static,
    ) -> Result<T> {
        let (hold, permit) = self.admit(&job).await?;
        let quick = match job.weight {
            Weight::Long => Some(Duration::ZERO),
            Weight::Light | Weight::Scan => job.gives_way_after,
        };
        let interrupt = match quick {
            None | Some(Duration::ZERO) => Interrupt::after(self.longest),
            Some(quick) => Interrupt::giving_way_after(quick, exec::work_for_long, self.longest),
        };
        let _caller = (!job.goes_on).then(|| Caller(interrupt.clone()));
        let (tell, told) = oneshot::channel();
        let work = move || {
            let (done, left) = interrupt
                .enter(work)
                .map_or_else(|error| (Err(error), None), |(done, left)| (Ok(done), Some(left)));
            drop(hold);
            // A caller who has left is told nothing.
            drop(tell.send(done));
            drop(left);
            drop(permit);
        };
        let (launcher, owner) = (self.launcher.clone(), job.owner);
        let give_way = move |quick: Duration| {
            if !quick.is_zero() {
                return exec::begin_as_command();
            }
            exec::work_for_long();
            if let Some(launcher) = launcher {
                launcher.leave_processor_to_others(owner.user());
            }
        };
        tokio::task::spawn_blocking(move || match quick {
            Some(quick) => apart(Builder::new().name("work".to_owned()), move || give_way(quick), work),
            None => work(),
        });
        told.await.map_err(|_| Error::Panicked)?
    }
}

/// Does work on a thread of its own that begins with `give_way`, and waits for it: others run commands meanwhile, and would wait for
/// slices of the work. Where there can be no further thread, the work is done on this one, as it is.
fn apart(thread: Builder, give_way: impl FnOnce() + Send, work: impl FnOnce() + Send) {
    let runtime = Handle::current();
    let work = Mutex::new(Some(work));
    let take = || work.lock().take();
    let on_its_own = || {
        if let Some(work) = take() {
            let _entered = runtime.enter();
            give_way();
            work();
        }
    };
    std::thread::scope(|threads| {
        if let Ok(thread) = thread.spawn_scoped(threads, on_its_own) {
            // A panic is told to the caller, who hears nothing of the work any more.
            let _ = thread.join();
        }
    });
    if let Some(work) = take() {
        storage::interrupt::without_giving_way(work);
    }
}

impl Service {
    /// Does blocking work of a request; see [`Admission::work`].
    ///
    /// # Errors
    /// As [`Admission::work`].
    pub(super) async fn work<T: Send + 'static>(
        &self,
        job: Job,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Some((tree, Mode::LongRead)) = &job.hold {
            self.let_publications_pass(|| self.store.awaits_publication(tree)).await?;
        }
        self.admission.work(job, work).await
    }

    /// Does light blocking work for `user` that is about no tree.
    ///
    /// # Errors
    /// As [`Admission::work`].
    pub async fn light<T: Send + 'static>(
        &self,
        user: &UserId,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.admission.work(Job::of(user, Weight::Light), work).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use policy::AgentId;

    use super::*;

    /// Waits for a word when it is dropped.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[tokio::test]
    async fn long_jobs_and_those_on_large_texts_give_way_slow_ones_later_and_others_do_not() {
        let admission = Admission::new(&WorkLimits::default());
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let giving_way = std::thread::spawn(move || {
            exec::work_for_long();
            niceness()
        });
        let (giving_way, usual) = (giving_way.join().unwrap(), niceness());
        assert!(giving_way > usual, "the control");
        let user = UserId::parse("a").unwrap();
        let light = Job::of(&user, Weight::Light);
        for (job, expected) in [
            (light.clone(), usual),
            (Job::of(&user, Weight::Scan), usual),
            (light.clone().giving_way_if(true), giving_way),
            (Job::of(&user, Weight::Long), giving_way),
        ] {
            let found = admission.work(job.clone(), move || Ok(niceness())).await.unwrap();
            assert_eq!(found, expected, "{job:?}");
        }
        let found = admission.work(light.giving_way_when_slow(), move || {
            let quick = niceness();
            std::thread::sleep(QUICK);
            storage::interrupt::check()?;
            Ok((quick, niceness()))
        });
        let (quick, slow) = found.await.unwrap();
        assert!(quick > usual && quick < giving_way && slow == giving_way, "{quick} {slow}");
    }

    #[tokio::test]
    async fn without_a_further_thread_work_is_done_on_the_same_which_does_not_give_way() {
        let work = |thread: Builder| {
            let mut done_by = None;
            let job = Interrupt::giving_way_after(Duration::ZERO, exec::work_for_long, Duration::MAX);
            apart(thread, exec::work_for_long, || {
                job.enter(storage::interrupt::check).unwrap();
                let niceness = rustix::process::getpriority_process(None).unwrap();
                done_by = Some((std::thread::current().id(), niceness));
            });
            done_by.unwrap()
        };
        let (own, usual) = (std::thread::current().id(), rustix::process::getpriority_process(None).unwrap());
        // More than there are addresses.
        assert_eq!(work(Builder::new().stack_size(1 << 60)), (own, usual));
        let (apart, lowered) = work(Builder::new());
        assert!(apart != own && lowered > usual);
    }

    #[tokio::test]
    async fn removing_what_was_replaced_keeps_the_place_of_its_user_and_nothing_else() {
        let limits = WorkLimits { long_per_user: 1, queue_ms: 20, ..WorkLimits::default() };
        let admission = Admission::new(&limits);
        let (user, other) = (UserId::parse("a").unwrap(), UserId::parse("b").unwrap());
        let tree = TreeId::Workspace(user.clone(), AgentId::parse("a").unwrap());
        let (end, ended) = mpsc::channel();
        let job = Job::on(&tree, Weight::Long, Mode::LongChange);
        let done = admission.work_and_clear(job, move || Ok(("done", Slow(ended)))).await.unwrap();
        assert_eq!(done, "done");
        let long = |user: &UserId| Job::of(user, Weight::Long);
        assert!(matches!(admission.work(long(&user), || Ok(())).await, Err(Error::Full { .. })));
        admission.work(long(&other), || Ok(())).await.unwrap();
        admission.work(Job::change(&tree), || Ok(())).await.unwrap();
        drop(end);
        while admission.long.taken() > 0 {
            tokio::task::yield_now().await;
        }
        admission.work(long(&user), || Ok(())).await.unwrap();
    }
}

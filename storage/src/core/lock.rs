//! [`Locks`]: orders the service's own requests against each other.
//!
//! Commands never take these locks, so every change also offers compare-and-swap (`If-Match`).
//!
//! A read needs no lock of its file, because a write replaces whole files. It takes its tree's lock, so that it
//! never walks a tree that is being exchanged for another.
//!
//! Each tree, baseline and file has a lock of its own ([`Keyed`]): a request that reads one tree for long keeps none
//! from another. A thread takes at most one lock of each kind, and always in the order of the fields below, so that no two threads
//! can wait for each other.
//!
//! A baseline is read by all users, so a publication must not keep its readers waiting for another reader who takes long.
//! It waits for the baseline in short attempts, between which others read on. While it waits it is told
//! ([`Locks::awaits_publication`]): a request that is about to read for long lets it pass first, so that the
//! publication has its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::lock_api::{ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Mutex, RawMutex, RawRwLock, RwLock};
use policy::{AgentId, RelPath, SkillId, TreeId};

use super::keyed::{Keyed, Used};
use crate::error::Result;
use crate::interrupt;

/// How long one attempt to hold something lasts. For that long a publication keeps new readers of its baseline waiting.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(10);
/// How long readers go on between two attempts.
const PAUSE: Duration = Duration::from_millis(40);

/// Holds something as it is.
pub(crate) type Shared = ArcRwLockReadGuard<RawRwLock, ()>;
/// Holds something alone.
pub(crate) type Alone = ArcRwLockWriteGuard<RawRwLock, ()>;

/// The locks of one store.
pub(crate) struct Locks {
    files: Keyed<(TreeId, RelPath), Arc<Mutex<()>>>,
    baselines: Keyed<(AgentId, SkillId), Baseline>,
    trees: Keyed<TreeId, TreeLock>,
    /// Locks made so far. Each begins to count its changes where no other does, so that one that was forgotten and made anew has
    /// another generation.
    made: AtomicU64,
}

/// How often the tree and its baseline were held to be changed, from some number on. A tree whose generation is the same was
/// not changed by a request; one whose generation is another may be as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    tree: u64,
    baseline: u64,
}

impl Generation {
    /// The generation after `times` further changes of the tree.
    pub(crate) fn after(self, times: u64) -> Self {
        Self { tree: self.tree.wrapping_add(times), ..self }
    }
}

struct TreeLock {
    lock: Arc<RwLock<()>>,
    changes: AtomicU64,
}

impl Used for TreeLock {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.lock) > 1
    }
}

impl TreeLock {
    /// Counts a change that is about to be made; the caller holds the lock alone.
    fn count(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

struct Baseline {
    lock: Arc<RwLock<()>>,
    changes: AtomicU64,
    /// Publications that wait for its readers.
    awaiting: AtomicUsize,
}

impl Used for Baseline {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.lock) > 1
    }
}

impl Used for Arc<Mutex<()>> {
    fn is_used(&self) -> bool {
        Arc::strong_count(self) > 1
    }
}

/// A publication that waits for the readers of a baseline.
struct Awaiting<'a>(&'a AtomicUsize);

/// Holds a tree as it is: no request exchanges it or changes its structure.
pub(crate) struct TreeRead {
    _baseline: Option<Shared>,
    _tree: Shared,
}

/// Holds a tree alone.
pub(crate) struct TreeWrite {
    _baseline: Option<Shared>,
    _tree: Alone,
}

impl TreeWrite {
    /// Goes on holding `tree` when its baseline, held alone so far, is needed as it is only.
    pub(crate) fn after(baseline: Alone, tree: Alone) -> Self {
        Self { _baseline: Some(Alone::downgrade(baseline)), _tree: tree }
    }
}

impl Baseline {
    /// Calls `attempt` until it brings something, or the job is interrupted. Readers of the baseline go on between two
    /// calls.
    fn await_readers<T>(&self, attempt: impl Fn() -> Option<T>) -> Result<T> {
        if let Some(taken) = attempt() {
            return Ok(taken);
        }
        let _awaiting = Awaiting::new(&self.awaiting);
        loop {
            if let Some(taken) = attempt() {
                return Ok(taken);
            }
            interrupt::check()?;
            thread::sleep(PAUSE);
        }
    }
}

impl<'a> Awaiting<'a> {
    fn new(awaiting: &'a AtomicUsize) -> Self {
        awaiting.fetch_add(1, Ordering::Relaxed);
        Self(awaiting)
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `attempt`, which waits a little, until it brings something or the job on this thread is interrupted.
///
/// # Errors
/// Those of [`interrupt::check`].
pub(crate) fn in_time<T>(attempt: impl Fn() -> Option<T>) -> Result<T> {
    loop {
        if let Some(taken) = attempt() {
            return Ok(taken);
        }
        interrupt::check()?;
    }
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self { files: Keyed::new(), baselines: Keyed::new(), trees: Keyed::new(), made: AtomicU64::default() }
    }

    fn tree(&self, tree: &TreeId) -> Arc<TreeLock> {
        self.trees.get(tree.clone(), || TreeLock { lock: Arc::default(), changes: self.first() })
    }

    fn baseline(&self, agent: &AgentId, skill: &SkillId) -> Arc<Baseline> {
        self.baselines.get((agent.clone(), skill.clone()), || Baseline {
            lock: Arc::default(),
            changes: self.first(),
            awaiting: AtomicUsize::default(),
        })
    }

    /// The number that a new lock begins to count at.
    fn first(&self) -> AtomicU64 {
        AtomicU64::new(self.made.fetch_add(1, Ordering::Relaxed) << 32)
    }

    /// Holds one file against other changes of it, while it is read, changed and put back.
    pub(crate) fn file(&self, tree: &TreeId, path: &RelPath) -> ArcMutexGuard<RawMutex, ()> {
        self.files.get((tree.clone(), path.clone()), Arc::default).lock_arc()
    }

    /// Holds the baseline of a skill alone, to publish another version.
    ///
    /// # Errors
    /// Those of [`interrupt::check`], while readers hold it.
    pub(crate) fn write_baseline(&self, agent: &AgentId, skill: &SkillId) -> Result<Alone> {
        let baseline = self.baseline(agent, skill);
        let alone = baseline.await_readers(|| baseline.lock.try_write_arc_for(ATTEMPT))?;
        baseline.changes.fetch_add(1, Ordering::Relaxed);
        Ok(alone)
    }

    /// Holds the baseline of a skill, and the tree of the user who publishes it, alone.
    ///
    /// # Errors
    /// As [`Locks::write_baseline`].
    pub(crate) fn write_baseline_and(
        &self,
        agent: &AgentId,
        skill: &SkillId,
        tree: &TreeId,
    ) -> Result<(Alone, Alone)> {
        let baseline = self.baseline(agent, skill);
        let tree = self.tree(tree);
        let alone = baseline.await_readers(|| {
            let alone = baseline.lock.try_write_arc_for(ATTEMPT)?;
            // A reader of the tree may take long: it must not keep the readers of the baseline waiting.
            Some((alone, tree.lock.try_write_arc_for(ATTEMPT)?))
        })?;
        baseline.changes.fetch_add(1, Ordering::Relaxed);
        tree.count();
        Ok(alone)
    }

    /// The generation of a tree that is held as it is.
    pub(crate) fn generation(&self, tree: &TreeId, _held: &TreeRead) -> Generation {
        self.changes_of(tree)
    }

    /// The generation of a tree that is held alone, which counts as a change.
    pub(crate) fn generation_alone(&self, tree: &TreeId, _held: &TreeWrite) -> Generation {
        self.changes_of(tree)
    }

    fn changes_of(&self, tree: &TreeId) -> Generation {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => self.baseline(agent, skill).changes.load(Ordering::Relaxed),
            TreeId::Workspace(..) => 0,
        };
        Generation { tree: self.tree(tree).changes.load(Ordering::Relaxed), baseline }
    }

    /// Tells whether a publication waits for the readers of a tree. A request that is about to read it for long waits
    /// first.
    pub(crate) fn awaits_publication(&self, tree: &TreeId) -> bool {
        match tree {
            TreeId::Skill(_, agent, skill) => {
                let baseline = self.baselines.find(&(agent.clone(), skill.clone()));
                baseline.is_some_and(|baseline| baseline.awaiting.load(Ordering::Relaxed) > 0)
            }
            TreeId::Workspace(..) => false,
        }
    }

    /// Holds the baseline of a skill as it is.
    pub(crate) fn read_baseline(&self, agent: &AgentId, skill: &SkillId) -> Shared {
        self.baseline(agent, skill).lock.read_arc()
    }

    fn baseline_of(&self, tree: &TreeId) -> Option<Shared> {
        match tree {
            TreeId::Skill(_, agent, skill) => Some(self.read_baseline(agent, skill)),
            TreeId::Workspace(..) => None,
        }
    }

    /// As [`Locks::baseline_of`]; the outer `None` when a publication holds it.
    fn try_baseline_of(&self, tree: &TreeId) -> Option<Option<Shared>> {
        match tree {
            TreeId::Skill(_, agent, skill) => self.baseline(agent, skill).lock.try_read_arc().map(Some),
            TreeId::Workspace(..) => Some(None),
        }
    }

    /// Holds a tree, baseline included, as it is.
    pub(crate) fn read(&self, tree: &TreeId) -> TreeRead {
        TreeRead { _baseline: self.baseline_of(tree), _tree: self.tree(tree).lock.read_arc() }
    }

    /// Holds a tree, baseline included, as it is, when the job on this thread may wait for it.
    ///
    /// # Errors
    /// Those of [`interrupt::check`], while others hold it alone.
    pub(crate) fn read_in_time(&self, tree: &TreeId) -> Result<TreeRead> {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => {
                let baseline = self.baseline(agent, skill);
                Some(in_time(|| baseline.lock.try_read_arc_for(ATTEMPT))?)
            }
            TreeId::Workspace(..) => None,
        };
        let tree = self.tree(tree);
        Ok(TreeRead { _baseline: baseline, _tree: in_time(|| tree.lock.try_read_arc_for(ATTEMPT))? })
    }

    /// Holds a tree, baseline included, as it is, if no other request has to be waited for.
    pub(crate) fn try_read(&self, tree: &TreeId) -> Option<TreeRead> {
        let baseline = self.try_baseline_of(tree)?;
        Some(TreeRead { _baseline: baseline, _tree: self.tree(tree).lock.try_read_arc()? })
    }

    /// Holds a tree alone and its baseline as it is, if no other request has to be waited for.
    pub(crate) fn try_write(&self, tree: &TreeId) -> Option<TreeWrite> {
        let baseline = self.try_baseline_of(tree)?;
        let tree = self.tree(tree);
        let alone = tree.lock.try_write_arc()?;
        tree.count();
        Some(TreeWrite { _baseline: baseline, _tree: alone })
    }

    /// Holds a tree alone and its baseline as it is.
    pub(crate) fn write(&self, tree: &TreeId) -> TreeWrite {
        let baseline = self.baseline_of(tree);
        let tree = self.tree(tree);
        let alone = tree.lock.write_arc();
        tree.count();
        TreeWrite { _baseline: baseline, _tree: alone }
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;
    use crate::error::Error;
    use crate::interrupt::Interrupt;

    fn skill(user: &str) -> (TreeId, AgentId, SkillId) {
        let (agent, skill) = (AgentId::parse("a").unwrap(), SkillId::parse("s").unwrap());
        (TreeId::Skill(UserId::parse(user).unwrap(), agent.clone(), skill.clone()), agent, skill)
    }

    /// The outcome of `publish` while one user reads for long, told when another user has read beside it.
    fn read_beside(long: &TreeId, publish: impl FnOnce(&Locks) + Send) {
        let locks = Locks::new();
        let held = locks.read(long);
        let (other, ..) = skill("other");
        thread::scope(|threads| {
            let publishing = threads.spawn(|| publish(&locks));
            while !locks.awaits_publication(&other) {
                assert!(!publishing.is_finished(), "it does not wait");
                thread::yield_now();
            }
            for _ in 0..20 {
                drop(locks.read(&other));
            }
            assert!(!publishing.is_finished(), "the control: it waits still");
            drop(held);
            publishing.join().unwrap();
        });
        assert!(!locks.awaits_publication(&other));
    }

    #[test]
    fn a_publication_that_waits_for_one_reader_keeps_no_other_waiting() {
        let (long, agent, skill) = skill("long");
        read_beside(&long, |locks| drop(locks.write_baseline(&agent, &skill).unwrap()));
        let (own, ..) = self::skill("publisher");
        read_beside(&long, |locks| drop(locks.write_baseline_and(&agent, &skill, &own).unwrap()));
        // The publisher's own tree is read for long: nothing is held meanwhile that others need.
        let workspace = TreeId::Workspace(UserId::parse("w").unwrap(), agent.clone());
        read_beside(&workspace, |locks| drop(locks.write_baseline_and(&agent, &skill, &workspace).unwrap()));
    }

    /// What `work` brings on a thread of its own.
    fn beside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|threads| threads.spawn(work).join().unwrap())
    }

    #[test]
    fn a_publication_whose_time_is_over_no_longer_waits_for_a_reader() {
        let (long, agent, skill) = skill("long");
        let locks = Locks::new();
        let _held = locks.read(&long);
        let (late, left) = (Interrupt::after(Duration::ZERO), Interrupt::after(Duration::MAX));
        left.abandon();
        let publish = || late.enter(|| locks.write_baseline(&agent, &skill).map(drop));
        assert!(matches!(beside(publish), Err(Error::TooLong { .. })));
        let publish = || left.enter(|| locks.write_baseline_and(&agent, &skill, &long).map(drop));
        assert!(matches!(beside(publish), Err(Error::Abandoned)));
        assert!(!locks.awaits_publication(&long));
    }

    #[test]
    fn a_reader_whose_time_is_over_no_longer_waits_for_a_change() {
        let (tree, agent, skill) = skill("u");
        let locks = Locks::new();
        let late = Interrupt::after(Duration::ZERO);
        let read = || late.enter(|| locks.read_in_time(&tree).map(drop));
        assert!(read().is_ok(), "what is free is not waited for");
        let alone = locks.write(&tree);
        assert!(matches!(beside(read), Err(Error::TooLong { .. })));
        drop(alone);
        let _published = locks.write_baseline(&agent, &skill).unwrap();
        assert!(matches!(beside(read), Err(Error::TooLong { .. })));
    }

    #[test]
    fn who_holds_some_trees_for_long_keeps_nobody_from_any_other() {
        let locks = Locks::new();
        let tree = |number: usize| {
            let agent = AgentId::parse("a").unwrap();
            let skill = SkillId::parse(&format!("s{}", number % 50)).unwrap();
            (
                TreeId::Skill(UserId::parse(&format!("u{number}")).unwrap(), agent.clone(), skill.clone()),
                agent,
                skill,
            )
        };
        let held: Vec<_> = (0..50).map(|number| locks.read(&tree(number).0)).collect();
        let file = RelPath::parse("x").unwrap();
        let files: Vec<_> = (0..50).map(|number| locks.file(&tree(number).0, &file)).collect();
        for number in 50..20_000 {
            let (tree, agent, _) = tree(number);
            assert!(locks.try_write(&tree).is_some(), "{number}");
            drop(locks.file(&tree, &file));
            let other = SkillId::parse(&format!("other{number}")).unwrap();
            drop(locks.write_baseline(&agent, &other).unwrap());
        }
        // The controls: they are held, however many came after them.
        assert!((0..50).all(|number| locks.try_write(&tree(number).0).is_none()));
        assert!((0..50).all(|number| !locks.awaits_publication(&tree(number).0)));
        drop((held, files));
        assert!((0..50).all(|number| locks.try_write(&tree(number).0).is_some()));
    }

    #[test]
    fn a_lock_that_was_forgotten_and_made_anew_has_another_generation() {
        let locks = Locks::new();
        let (tree, ..) = skill("u");
        let before = locks.generation(&tree, &locks.read(&tree));
        assert_eq!(locks.generation(&tree, &locks.read(&tree)), before);
        for number in 0..100_000 {
            let agent = AgentId::parse("a").unwrap();
            let other = TreeId::Workspace(UserId::parse(&format!("u{number}")).unwrap(), agent);
            drop(locks.read(&other));
            drop(locks.file(&other, &RelPath::parse("x").unwrap()));
        }
        // No more than some, and this one was not among them.
        assert!(locks.trees.len() < 5000 && locks.files.len() < 5000);
        assert!(locks.trees.find(&tree).is_none());
        assert_ne!(locks.generation(&tree, &locks.read(&tree)), before);
    }
}

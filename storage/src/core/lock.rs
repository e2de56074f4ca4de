//! [`Locks`]: orders the service's own requests against each other.
//!
//! Commands never take these locks, so every change also offers compare-and-swap (`If-Match`).
//!
//! A read needs no lock of its file, because a write replaces whole files. It takes its tree's lock, so that it
//! never walks a tree that is being exchanged for another.
//!
//! Stripes are chosen by hash and never grow. A thread takes at most one stripe of each array, and always in the
//! order of the fields below, so that no two threads can wait for each other.
//!
//! A baseline is read by all users, so a publication must not keep its readers waiting for another reader who takes long.
//! It waits for the baseline in short attempts, between which others read on. While it waits it is told
//! ([`Locks::awaits_publication`]): a request that is about to read for long lets it pass first, so that the
//! publication has its turn.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use policy::{AgentId, RelPath, SkillId, TreeId};

use crate::error::Result;
use crate::interrupt;

const BASELINE_STRIPES: usize = 1024;
const TREE_STRIPES: usize = 4096;
const FILE_STRIPES: usize = 4096;
/// How long one attempt to hold something lasts. For that long a publication keeps new readers of its baseline waiting.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(10);
/// How long readers go on between two attempts.
const PAUSE: Duration = Duration::from_millis(40);

/// The locks of one store.
pub(crate) struct Locks {
    hasher: RandomState,
    files: Box<[Mutex<()>]>,
    baselines: Box<[Baseline]>,
    trees: Box<[TreeStripe]>,
}

/// How often the tree and its baseline were held to be changed. A tree whose generation is the same was not changed by a
/// request; one whose generation is another may be as it was.
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

#[derive(Default)]
struct TreeStripe {
    lock: RwLock<()>,
    changes: AtomicU64,
}

impl TreeStripe {
    /// Counts a change that is about to be made; the caller holds the lock alone.
    fn count(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Baseline {
    lock: RwLock<()>,
    changes: AtomicU64,
    /// Publications that wait for its readers.
    awaiting: AtomicUsize,
}

/// A publication that waits for the readers of a baseline.
struct Awaiting<'a>(&'a AtomicUsize);

/// Holds a tree as it is: no request exchanges it or changes its structure.
pub(crate) struct TreeRead<'a> {
    _baseline: Option<RwLockReadGuard<'a, ()>>,
    _tree: RwLockReadGuard<'a, ()>,
}

/// Holds a tree alone.
pub(crate) struct TreeWrite<'a> {
    _baseline: Option<RwLockReadGuard<'a, ()>>,
    _tree: RwLockWriteGuard<'a, ()>,
}

impl<'a> TreeWrite<'a> {
    /// Goes on holding `tree` when its baseline, held alone so far, is needed as it is only.
    pub(crate) fn after(baseline: RwLockWriteGuard<'a, ()>, tree: RwLockWriteGuard<'a, ()>) -> Self {
        Self { _baseline: Some(RwLockWriteGuard::downgrade(baseline)), _tree: tree }
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
        Self {
            hasher: RandomState::new(),
            files: (0..FILE_STRIPES).map(|_| Mutex::new(())).collect(),
            baselines: (0..BASELINE_STRIPES).map(|_| Baseline::default()).collect(),
            trees: (0..TREE_STRIPES).map(|_| TreeStripe::default()).collect(),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the length, which is never 0")]
    fn stripe<'a, T>(&self, stripes: &'a [T], key: impl Hash) -> &'a T {
        let hash = usize::try_from(self.hasher.hash_one(key) & 0xFFFF_FFFF).unwrap_or(0);
        &stripes[hash % stripes.len()]
    }

    /// Holds one file against other changes of it, while it is read, changed and put back.
    pub(crate) fn file(&self, tree: &TreeId, path: &RelPath) -> MutexGuard<'_, ()> {
        self.stripe(&self.files, (tree, path)).lock()
    }

    /// Holds the baseline of a skill alone, to publish another version.
    ///
    /// # Errors
    /// Those of [`interrupt::check`], while readers hold it.
    pub(crate) fn write_baseline(
        &self,
        agent: &AgentId,
        skill: &SkillId,
    ) -> Result<RwLockWriteGuard<'_, ()>> {
        let baseline = self.stripe(&self.baselines, (agent, skill));
        let alone = baseline.await_readers(|| baseline.lock.try_write_for(ATTEMPT))?;
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
    ) -> Result<(RwLockWriteGuard<'_, ()>, RwLockWriteGuard<'_, ()>)> {
        let baseline = self.stripe(&self.baselines, (agent, skill));
        let tree = self.stripe(&self.trees, tree);
        let alone = baseline.await_readers(|| {
            let alone = baseline.lock.try_write_for(ATTEMPT)?;
            // A reader of the tree may take long: it must not keep the readers of the baseline waiting.
            Some((alone, tree.lock.try_write_for(ATTEMPT)?))
        })?;
        baseline.changes.fetch_add(1, Ordering::Relaxed);
        tree.count();
        Ok(alone)
    }

    /// The generation of a skill, for who holds it as it is.
    pub(crate) fn generation(&self, tree: &TreeId, _held: &TreeRead<'_>) -> Generation {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => {
                self.stripe(&self.baselines, (agent, skill)).changes.load(Ordering::Relaxed)
            }
            TreeId::Workspace(..) => 0,
        };
        Generation { tree: self.stripe(&self.trees, tree).changes.load(Ordering::Relaxed), baseline }
    }

    /// Tells whether a publication waits for the readers of a tree. A request that is about to read it for long waits
    /// first.
    pub(crate) fn awaits_publication(&self, tree: &TreeId) -> bool {
        match tree {
            TreeId::Skill(_, agent, skill) => {
                self.stripe(&self.baselines, (agent, skill)).awaiting.load(Ordering::Relaxed) > 0
            }
            TreeId::Workspace(..) => false,
        }
    }

    /// Holds the baseline of a skill as it is.
    pub(crate) fn read_baseline(&self, agent: &AgentId, skill: &SkillId) -> RwLockReadGuard<'_, ()> {
        self.stripe(&self.baselines, (agent, skill)).lock.read()
    }

    fn baseline_of(&self, tree: &TreeId) -> Option<RwLockReadGuard<'_, ()>> {
        match tree {
            TreeId::Skill(_, agent, skill) => Some(self.read_baseline(agent, skill)),
            TreeId::Workspace(..) => None,
        }
    }

    /// Holds a tree, baseline included, as it is.
    pub(crate) fn read(&self, tree: &TreeId) -> TreeRead<'_> {
        TreeRead { _baseline: self.baseline_of(tree), _tree: self.stripe(&self.trees, tree).lock.read() }
    }

    /// Holds a tree, baseline included, as it is, when the job on this thread may wait for it.
    ///
    /// # Errors
    /// Those of [`interrupt::check`], while others hold it alone.
    pub(crate) fn read_in_time(&self, tree: &TreeId) -> Result<TreeRead<'_>> {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => {
                let stripe = self.stripe(&self.baselines, (agent, skill));
                Some(in_time(|| stripe.lock.try_read_for(ATTEMPT))?)
            }
            TreeId::Workspace(..) => None,
        };
        let stripe = self.stripe(&self.trees, tree);
        Ok(TreeRead { _baseline: baseline, _tree: in_time(|| stripe.lock.try_read_for(ATTEMPT))? })
    }

    /// Holds a tree, baseline included, as it is, if no other request has to be waited for.
    pub(crate) fn try_read(&self, tree: &TreeId) -> Option<TreeRead<'_>> {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => {
                Some(self.stripe(&self.baselines, (agent, skill)).lock.try_read()?)
            }
            TreeId::Workspace(..) => None,
        };
        Some(TreeRead { _baseline: baseline, _tree: self.stripe(&self.trees, tree).lock.try_read()? })
    }

    /// Holds a tree alone and its baseline as it is, if no other request has to be waited for.
    pub(crate) fn try_write(&self, tree: &TreeId) -> Option<TreeWrite<'_>> {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => {
                Some(self.stripe(&self.baselines, (agent, skill)).lock.try_read()?)
            }
            TreeId::Workspace(..) => None,
        };
        let tree = self.stripe(&self.trees, tree);
        let alone = tree.lock.try_write()?;
        tree.count();
        Some(TreeWrite { _baseline: baseline, _tree: alone })
    }

    /// Holds a tree alone and its baseline as it is.
    pub(crate) fn write(&self, tree: &TreeId) -> TreeWrite<'_> {
        let baseline = self.baseline_of(tree);
        let tree = self.stripe(&self.trees, tree);
        let alone = tree.lock.write();
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
    fn a_hundred_thousand_trees_use_no_more_memory_than_one() {
        let locks = Locks::new();
        let agent = AgentId::parse("a").unwrap();
        for number in 0..100_000 {
            let tree = TreeId::Workspace(UserId::parse(&format!("u{number}")).unwrap(), agent.clone());
            drop(locks.read(&tree));
            drop(locks.file(&tree, &RelPath::parse("x").unwrap()));
        }
        assert_eq!((locks.files.len(), locks.trees.len()), (FILE_STRIPES, TREE_STRIPES));
    }
}

//! [`Locks`]: orders the service's own requests against each other.
//!
//! Commands never take these locks, so every change also offers compare-and-swap (`If-Match`).
//!
//! A read needs no lock of its file, because a write replaces whole files. It takes its tree's lock, so that it
//! never walks a tree that is being exchanged for another.
//!
//! Stripes are chosen by hash and never grow. A thread takes at most one stripe of each array, and always in the
//! order of the fields below, so that no two threads can wait for each other.

use std::hash::{BuildHasher, Hash, RandomState};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use policy::{AgentId, RelPath, SkillId, TreeId};

const BASELINE_STRIPES: usize = 1024;
const TREE_STRIPES: usize = 4096;
const FILE_STRIPES: usize = 4096;

/// The locks of one store.
pub(crate) struct Locks {
    hasher: RandomState,
    files: Box<[Mutex<()>]>,
    baselines: Box<[RwLock<()>]>,
    trees: Box<[RwLock<()>]>,
}

/// Holds a tree as it is: nobody exchanges it or changes its structure.
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

impl Locks {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            files: (0..FILE_STRIPES).map(|_| Mutex::new(())).collect(),
            baselines: (0..BASELINE_STRIPES).map(|_| RwLock::new(())).collect(),
            trees: (0..TREE_STRIPES).map(|_| RwLock::new(())).collect(),
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
    pub(crate) fn write_baseline(&self, agent: &AgentId, skill: &SkillId) -> RwLockWriteGuard<'_, ()> {
        self.stripe(&self.baselines, (agent, skill)).write()
    }

    /// Holds the baseline of a skill as it is.
    pub(crate) fn read_baseline(&self, agent: &AgentId, skill: &SkillId) -> RwLockReadGuard<'_, ()> {
        self.stripe(&self.baselines, (agent, skill)).read()
    }

    fn baseline_of(&self, tree: &TreeId) -> Option<RwLockReadGuard<'_, ()>> {
        match tree {
            TreeId::Skill(_, agent, skill) => Some(self.read_baseline(agent, skill)),
            TreeId::Workspace(..) => None,
        }
    }

    /// Holds a tree, baseline included, as it is.
    pub(crate) fn read(&self, tree: &TreeId) -> TreeRead<'_> {
        TreeRead { _baseline: self.baseline_of(tree), _tree: self.stripe(&self.trees, tree).read() }
    }

    /// Holds a tree, baseline included, as it is, if nobody has to be waited for.
    pub(crate) fn try_read(&self, tree: &TreeId) -> Option<TreeRead<'_>> {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => Some(self.stripe(&self.baselines, (agent, skill)).try_read()?),
            TreeId::Workspace(..) => None,
        };
        Some(TreeRead { _baseline: baseline, _tree: self.stripe(&self.trees, tree).try_read()? })
    }

    /// Holds a tree alone and its baseline as it is, if nobody has to be waited for.
    pub(crate) fn try_write(&self, tree: &TreeId) -> Option<TreeWrite<'_>> {
        let baseline = match tree {
            TreeId::Skill(_, agent, skill) => Some(self.stripe(&self.baselines, (agent, skill)).try_read()?),
            TreeId::Workspace(..) => None,
        };
        Some(TreeWrite { _baseline: baseline, _tree: self.stripe(&self.trees, tree).try_write()? })
    }

    /// Holds a tree alone. The caller holds its baseline alone; see [`TreeWrite::after`].
    pub(crate) fn write_below_baseline(&self, tree: &TreeId) -> RwLockWriteGuard<'_, ()> {
        self.stripe(&self.trees, tree).write()
    }

    /// Holds a tree alone and its baseline as it is.
    pub(crate) fn write(&self, tree: &TreeId) -> TreeWrite<'_> {
        TreeWrite { _baseline: self.baseline_of(tree), _tree: self.stripe(&self.trees, tree).write() }
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;

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

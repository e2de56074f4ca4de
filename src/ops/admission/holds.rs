//! [`Holds`]: which jobs work on which tree, and how long, so that no job waits for a lock of the storage in a thread.
//!
//! The storage orders its own operations with locks that block. Short ones wait for each other there, for microseconds. One
//! that holds a tree for long (a download, a copy of a directory) would keep every later one, and its thread, waiting. So
//! each operation takes a hold of its tree first, asynchronously, and only those that would wait long exclude each other:
//!
//! | | short read | short change | long read | long change |
//! | --- | --- | --- | --- | --- |
//! | short read | | | | waits |
//! | short change | | | waits | waits |
//! | long read | | waits | | waits |
//! | long change | waits | waits | waits | waits |
//!
//! Holds are given in the order in which they are asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use policy::TreeId;
use tokio::sync::oneshot;

use crate::ops::error::{Error, Result};

/// The use of a tree by an operation, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads it, for microseconds.
    ShortRead,
    /// Changes it; holds it alone for microseconds.
    ShortChange,
    /// Keeps others from changing it while it is read.
    LongRead,
    /// Holds it alone.
    LongChange,
}

/// The trees that are worked on.
#[derive(Default)]
pub struct Holds {
    trees: Arc<Mutex<HashMap<TreeId, Entry>>>,
}

#[derive(Default)]
struct Entry {
    /// How many there are of each mode.
    held: [usize; 4],
    waiting: VecDeque<(Mode, oneshot::Sender<Hold>)>,
}

/// A tree that is worked on; dropping it lets others in.
pub struct Hold {
    trees: Arc<Mutex<HashMap<TreeId, Entry>>>,
    tree: TreeId,
    mode: Mode,
}

/// Looks again at who may have the tree when a request stops waiting.
struct Leaving<'a> {
    holds: &'a Holds,
    tree: &'a TreeId,
}

impl Mode {
    const ALL: [Self; 4] = [Self::ShortRead, Self::ShortChange, Self::LongRead, Self::LongChange];

    fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::LongChange, _) | (_, Self::LongChange) => true,
            (Self::ShortChange, Self::LongRead) | (Self::LongRead, Self::ShortChange) => true,
            (Self::ShortRead | Self::ShortChange | Self::LongRead, _) => false,
        }
    }
}

impl Entry {
    fn admits(&self, mode: Mode) -> bool {
        let held = self.held.iter().zip(Mode::ALL).filter(|(count, _)| **count > 0);
        held.into_iter().all(|(_, held)| !held.excludes(mode))
    }

    fn count(&mut self, mode: Mode) -> &mut usize {
        let [short_read, short_change, long_read, long_change] = &mut self.held;
        match mode {
            Mode::ShortRead => short_read,
            Mode::ShortChange => short_change,
            Mode::LongRead => long_read,
            Mode::LongChange => long_change,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.iter().all(|count| *count == 0)
    }
}

impl Holds {
    /// A hold of `tree`, if there is no other job to wait for.
    #[must_use]
    pub fn try_take(&self, tree: &TreeId, mode: Mode) -> Option<Hold> {
        let mut trees = self.trees.lock();
        match trees.get_mut(tree) {
            Some(entry) if !entry.waiting.is_empty() || !entry.admits(mode) => None,
            Some(entry) => {
                *entry.count(mode) += 1;
                Some(self.hold(tree, mode))
            }
            None => {
                let mut entry = Entry::default();
                *entry.count(mode) += 1;
                trees.insert(tree.clone(), entry);
                Some(self.hold(tree, mode))
            }
        }
    }

    /// Waits for a hold of `tree`. Dropping the future ends the wait.
    ///
    /// # Errors
    /// [`Error::Stopping`], which does not happen while the service lives.
    pub async fn take(&self, tree: &TreeId, mode: Mode) -> Result<Hold> {
        if let Some(hold) = self.try_take(tree, mode) {
            return Ok(hold);
        }
        let leaving = Leaving { holds: self, tree };
        let (given, gets) = oneshot::channel();
        self.trees.lock().entry(tree.clone()).or_default().waiting.push_back((mode, given));
        // The hold in the way may have gone meanwhile.
        give(&self.trees, tree);
        let hold = gets.await.map_err(|_| Error::Stopping);
        drop(leaving);
        hold
    }

    fn hold(&self, tree: &TreeId, mode: Mode) -> Hold {
        Hold { trees: Arc::clone(&self.trees), tree: tree.clone(), mode }
    }

    #[cfg(test)]
    fn trees(&self) -> usize {
        self.trees.lock().len()
    }
}

/// Gives `tree` to those who wait for it and can have it now.
fn give(trees: &Arc<Mutex<HashMap<TreeId, Entry>>>, tree: &TreeId) {
    let mut given = Vec::new();
    {
        let mut all = trees.lock();
        let Some(entry) = all.get_mut(tree) else { return };
        entry.waiting.retain(|(_, waiter)| !waiter.is_closed());
        while let Some((mode, _)) = entry.waiting.front()
            && entry.admits(*mode)
            && let Some((mode, waiter)) = entry.waiting.pop_front()
        {
            *entry.count(mode) += 1;
            given.push((waiter, Hold { trees: Arc::clone(trees), tree: tree.clone(), mode }));
        }
        if entry.is_idle() {
            all.remove(tree);
        }
    }
    // Outside of the lock: a hold that its waiter does not take any more is dropped here, which takes the lock.
    for (waiter, hold) in given {
        drop(waiter.send(hold));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        {
            let mut trees = self.trees.lock();
            let Some(entry) = trees.get_mut(&self.tree) else { return };
            let count = entry.count(self.mode);
            *count = count.saturating_sub(1);
            if entry.is_idle() {
                trees.remove(&self.tree);
                return;
            }
            if entry.waiting.is_empty() {
                return;
            }
        }
        give(&self.trees, &self.tree);
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        give(&self.holds.trees, self.tree);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::{AgentId, UserId};

    use super::*;

    fn tree(user: &str) -> TreeId {
        TreeId::Workspace(UserId::parse(user).unwrap(), AgentId::parse("a").unwrap())
    }

    #[test]
    fn short_work_goes_on_beside_other_short_work_and_long_work_excludes_what_would_wait_for_it() {
        use Mode::{LongChange, LongRead, ShortChange, ShortRead};
        let holds = Holds::default();
        for (held, together) in [
            (ShortRead, &[ShortRead, ShortChange, LongRead][..]),
            (ShortChange, &[ShortRead, ShortChange][..]),
            (LongRead, &[ShortRead, LongRead][..]),
            (LongChange, &[][..]),
        ] {
            let _held = holds.try_take(&tree("u"), held).unwrap();
            for mode in Mode::ALL {
                let taken = holds.try_take(&tree("u"), mode).is_some();
                assert_eq!(taken, together.contains(&mode), "{mode:?} beside {held:?}");
                assert!(holds.try_take(&tree("v"), mode).is_some());
            }
        }
        assert_eq!(holds.trees(), 0);
    }

    #[tokio::test]
    async fn holds_are_given_in_order_and_who_leaves_is_passed_over() {
        let holds = Arc::new(Holds::default());
        let download = holds.try_take(&tree("u"), Mode::LongRead).unwrap();
        let wait = |mode| {
            let holds = Arc::clone(&holds);
            tokio::spawn(async move { holds.take(&tree("u"), mode).await })
        };
        let waiters = || holds.trees.lock().get(&tree("u")).map_or(0, |entry| entry.waiting.len());
        let change = wait(Mode::LongChange);
        while waiters() < 1 {
            tokio::task::yield_now().await;
        }
        // Behind the change that waits, although the download would let it in.
        assert!(holds.try_take(&tree("u"), Mode::ShortRead).is_none());
        let read = wait(Mode::ShortRead);
        while waiters() < 2 {
            tokio::task::yield_now().await;
        }
        change.abort();
        let read = read.await.unwrap().unwrap();
        drop(download);
        drop(read);
        let late = tokio::time::timeout(Duration::ZERO, async {
            let _held = holds.try_take(&tree("u"), Mode::LongChange).unwrap();
            holds.take(&tree("u"), Mode::ShortRead).await.map(drop)
        });
        assert!(late.await.is_err());
        assert_eq!(holds.trees(), 0);
    }
}

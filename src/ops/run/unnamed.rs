//! [`UnnamedRuns`]: runs without a name of their caller's, as long as they go on. A run that has a name is in the
//! [table](super::table).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use policy::TreeId;
use tokio::sync::watch;

use super::id::ExecId;

/// The unnamed runs under way. No more than there are runs.
#[derive(Default)]
pub struct UnnamedRuns {
    runs: Arc<Mutex<HashMap<ExecId, Arc<Unnamed>>>>,
}

/// A run under way without a name of its caller's.
#[derive(Debug)]
pub struct Unnamed {
    /// The id by which it can be killed.
    pub id: ExecId,
    /// Where it runs.
    pub tree: TreeId,
    /// Its command, shortened, for people.
    pub command: String,
    /// When it was asked for.
    pub asked: SystemTime,
    kill: watch::Sender<bool>,
}

/// An unnamed run that is listed until this is dropped.
pub(super) struct Listed {
    runs: Arc<Mutex<HashMap<ExecId, Arc<Unnamed>>>>,
    pub(super) run: Arc<Unnamed>,
    /// Says when it is to be killed.
    pub(super) killed: watch::Receiver<bool>,
}

impl UnnamedRuns {
    pub(super) fn enter(&self, id: ExecId, tree: TreeId, command: String) -> Listed {
        let (kill, killed) = watch::channel(false);
        let run = Arc::new(Unnamed { id, tree, command, asked: SystemTime::now(), kill });
        self.runs.lock().insert(run.id.clone(), Arc::clone(&run));
        Listed { runs: Arc::clone(&self.runs), run, killed }
    }

    /// The run `id` of a tree, if it goes on and its caller gave it no name.
    #[must_use]
    pub fn find(&self, tree: &TreeId, id: &ExecId) -> Option<Arc<Unnamed>> {
        self.runs.lock().get(id).filter(|run| run.tree == *tree).cloned()
    }

    /// All of them, in no particular order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Unnamed>> {
        self.runs.lock().values().cloned().collect()
    }
}

impl Unnamed {
    /// Kills it with all its processes. Its caller gets the result as of any other run.
    pub fn kill(&self) {
        self.kill.send_replace(true);
    }

    /// Tells whether it is over.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.kill.is_closed()
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        self.kill.closed().await;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.run.id);
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;

    #[test]
    fn a_run_is_found_in_its_own_tree_until_it_ends() {
        let tree = |user: &str| TreeId::Workspace(UserId::parse(user).unwrap(), AgentId::parse("a").unwrap());
        let runs = UnnamedRuns::default();
        let listed = runs.enter(ExecId::parse("x").unwrap(), tree("甲"), "ls".to_owned());
        let id = listed.run.id.clone();
        assert!(runs.find(&tree("乙"), &id).is_none());
        let killed = listed.killed.clone();
        runs.find(&tree("甲"), &id).unwrap().kill();
        assert!(*killed.borrow());
        drop(listed);
        assert!(runs.all().is_empty());
    }
}

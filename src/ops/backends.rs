//! [`Backends`]: the workspaces that are not on this host, and where they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use policy::{RunLimits, UserId};
use sandbox::Sandbox;
use storage::WorkspaceId;
use thiserror::Error;

use super::admission::permits::Permits;
use super::remote::Backend;

/// Workspaces that may be remote at once. Each stands for a machine or a container that a backend holds a connection to,
/// of which a process has some ten thousands at most; an entry takes less than a kilobyte.
pub const BACKENDS_MAX: usize = 10_000;

/// There are [`BACKENDS_MAX`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{BACKENDS_MAX} workspaces are remote already: remove one first")]
pub struct Full;

/// Which workspaces another [`Sandbox`] answers for, instead of this service's own store and launcher.
///
/// While there is none, asking costs one atomic load.
pub struct Backends {
    count: AtomicUsize,
    table: RwLock<Table>,
    /// How many commands run in remote workspaces at once. They take no processor here, so they have places of their own.
    pub(super) permits: Permits,
}

#[derive(Default)]
struct Table {
    workspaces: HashMap<WorkspaceId, Arc<Backend>>,
    /// Of users all of whose other workspaces are remote.
    users: HashMap<UserId, Arc<Backend>>,
}

impl Table {
    fn len(&self) -> usize {
        self.workspaces.len() + self.users.len()
    }
}

impl Backends {
    /// No workspace is remote. When some are, as many commands run there at once as `limits` allows here.
    #[must_use]
    pub fn new(limits: &RunLimits) -> Self {
        Self { count: AtomicUsize::new(0), table: RwLock::default(), permits: Permits::new(limits) }
    }

    /// Has `sandbox` answer for the workspace `id` from the next request on. Gives back what did so before.
    ///
    /// The workspace on this host is out of reach meanwhile, and grows idle.
    ///
    /// # Errors
    /// [`Full`].
    pub fn insert(
        &self,
        id: WorkspaceId,
        sandbox: Arc<dyn Sandbox>,
    ) -> Result<Option<Arc<dyn Sandbox>>, Full> {
        let mut table = self.table.write();
        if table.workspaces.len() >= BACKENDS_MAX && !table.workspaces.contains_key(&id) {
            return Err(Full);
        }
        let backend = Arc::new(Backend::new(id.user.clone(), sandbox));
        let former = table.workspaces.insert(id, backend);
        self.count.store(table.len(), Ordering::Release);
        Ok(former.map(|backend| Arc::clone(backend.sandbox())))
    }

    /// Gives the workspace `id` back to this host, unless another than `sandbox` answers for it by now: the end of an old
    /// connection takes nothing from the new one. Tells whether it did.
    ///
    /// Requests and commands that are under way there come to their end.
    pub fn remove(&self, id: &WorkspaceId, sandbox: &Arc<dyn Sandbox>) -> bool {
        let mut table = self.table.write();
        let is_same = table.workspaces.get(id).is_some_and(|there| Arc::ptr_eq(there.sandbox(), sandbox));
        if is_same {
            table.workspaces.remove(id);
            self.count.store(table.len(), Ordering::Release);
        }
        is_same
    }

    /// Has `sandbox` answer for all workspaces of `user`, but for those that have a backend of their own.
    ///
    /// The caller bounds how many users there are.
    pub(super) fn lend(&self, user: UserId, sandbox: Arc<dyn Sandbox>) {
        let mut table = self.table.write();
        let backend = Arc::new(Backend::new(user.clone(), sandbox));
        table.users.insert(user, backend);
        self.count.store(table.len(), Ordering::Release);
    }

    /// Gives the workspaces of `user` back to this host.
    pub(super) fn take_back(&self, user: &UserId) {
        let mut table = self.table.write();
        table.users.remove(user);
        self.count.store(table.len(), Ordering::Release);
    }

    /// The backend that answers for the workspace `id`, when it is not this service's own.
    #[must_use]
    pub fn get(&self, id: &WorkspaceId) -> Option<Arc<Backend>> {
        if self.is_empty() {
            return None;
        }
        let table = self.table.read();
        table.workspaces.get(id).or_else(|| table.users.get(&id.user)).cloned()
    }

    /// Whether all workspaces are on this host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};
    use sandbox::MemSandbox;

    use super::*;

    fn id(user: &str) -> WorkspaceId {
        WorkspaceId { user: UserId::parse(user).unwrap(), agent: AgentId::parse("demo").unwrap() }
    }

    #[test]
    fn a_further_one_is_refused_and_another_for_the_same_workspace_is_not() {
        let backends = Backends::new(&RunLimits::default());
        let memory: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
        for number in 0..BACKENDS_MAX {
            backends.insert(id(&format!("用户{number}")), Arc::clone(&memory)).unwrap();
        }
        assert_eq!(backends.insert(id("one-more"), Arc::clone(&memory)).unwrap_err(), Full);
        assert!(backends.insert(id("用户0"), Arc::clone(&memory)).unwrap().is_some());
        assert!(backends.remove(&id("用户1"), &memory));
        assert!(backends.insert(id("one-more"), memory).unwrap().is_none());
    }

    #[test]
    fn only_what_answers_by_now_is_removed() {
        let backends = Backends::new(&RunLimits::default());
        let (old, new): (Arc<dyn Sandbox>, Arc<dyn Sandbox>) =
            (Arc::new(MemSandbox::new()), Arc::new(MemSandbox::new()));
        assert!(backends.is_empty() && backends.get(&id("甲")).is_none());
        backends.insert(id("甲"), Arc::clone(&old)).unwrap();
        let former = backends.insert(id("甲"), Arc::clone(&new)).unwrap().unwrap();
        assert!(Arc::ptr_eq(&former, &old));
        assert!(!backends.remove(&id("甲"), &old) && backends.get(&id("甲")).is_some());
        assert!(backends.remove(&id("甲"), &new) && backends.is_empty());
        assert!(!backends.remove(&id("甲"), &new));
    }
}

//! [`UnderWay`]: which sandboxes have how many runs, and ending all runs of one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use storage::WorkspaceId;
use tokio_util::sync::CancellationToken;

/// Runs under way by sandbox. No more than there are runs.
#[derive(Default)]
pub struct UnderWay {
    sandboxes: Arc<Mutex<HashMap<WorkspaceId, Runs>>>,
}

#[derive(Default)]
struct Runs {
    commands: usize,
    terminals: usize,
    stop: CancellationToken,
}

/// A run that is under way until this is dropped.
pub(super) struct Entry {
    sandboxes: Arc<Mutex<HashMap<WorkspaceId, Runs>>>,
    id: WorkspaceId,
    is_terminal: bool,
    /// Set when the runs of the sandbox are to be killed.
    pub(super) stop: CancellationToken,
}

impl UnderWay {
    pub(super) fn enter(&self, id: WorkspaceId, is_terminal: bool) -> Entry {
        let mut sandboxes = self.sandboxes.lock();
        let runs = sandboxes.entry(id.clone()).or_default();
        *runs.of(is_terminal) += 1;
        let stop = runs.stop.clone();
        drop(sandboxes);
        Entry { sandboxes: Arc::clone(&self.sandboxes), id, is_terminal, stop }
    }

    /// Commands and terminals under way in a sandbox.
    #[must_use]
    pub fn count(&self, id: &WorkspaceId) -> (usize, usize) {
        self.sandboxes.lock().get(id).map_or((0, 0), |runs| (runs.commands, runs.terminals))
    }

    /// Kills the runs of a sandbox that are under way now.
    pub fn stop(&self, id: &WorkspaceId) {
        if let Some(runs) = self.sandboxes.lock().get_mut(id) {
            std::mem::take(&mut runs.stop).cancel();
        }
    }
}

impl Runs {
    fn of(&mut self, is_terminal: bool) -> &mut usize {
        if is_terminal { &mut self.terminals } else { &mut self.commands }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut sandboxes = self.sandboxes.lock();
        if let Some(runs) = sandboxes.get_mut(&self.id) {
            *runs.of(self.is_terminal) -= 1;
            if runs.commands == 0 && runs.terminals == 0 {
                sandboxes.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;

    #[test]
    fn the_runs_of_now_are_stopped_and_nobody_is_remembered() {
        let under_way = UnderWay::default();
        let id = WorkspaceId { user: UserId::parse("甲").unwrap(), agent: AgentId::parse("a").unwrap() };
        let (run, terminal) = (under_way.enter(id.clone(), false), under_way.enter(id.clone(), true));
        assert_eq!(under_way.count(&id), (1, 1));
        under_way.stop(&id);
        let later = under_way.enter(id.clone(), false);
        assert_eq!([&run, &terminal, &later].map(|entry| entry.stop.is_cancelled()), [true, true, false]);
        drop((run, terminal, later));
        assert!(under_way.sandboxes.lock().is_empty());
    }
}

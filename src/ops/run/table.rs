//! [`RunTable`]: the runs that have names, as long as they are remembered.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use policy::{AgentId, SessionLimits, TreeId, UserId};
use storage::{Store, WorkspaceId};
use tokio::sync::{mpsc, watch};

use super::Fingerprint;
use super::budget::Budget;
use super::id::ExecId;
use super::log::Log;
use super::record::{Phase, Purpose, Recorded};
use crate::ops::admission::reads::Reads;
use crate::ops::{Error, Result};

/// The part of the budget of all logs, in quarters, beyond which ended runs are forgotten for it.
const CROWDED_QUARTERS: u64 = 3;

type Key = (TreeId, ExecId);

/// The runs that have names. Those under way are bounded by their permits, those that ended by limits.
pub struct RunTable {
    limits: SessionLimits,
    budget: Arc<Budget>,
    runs: Mutex<HashMap<Key, Arc<Recorded>>>,
}

/// The answer to a request for a name.
pub(super) enum Claim {
    /// It is new: the caller starts the run.
    New(Arc<Recorded>),
    /// The same run was asked for before.
    There(Arc<Recorded>),
}

/// The facts of a run before it is started.
pub(super) struct Plan {
    pub(super) tree: TreeId,
    pub(super) id: ExecId,
    pub(super) purpose: Purpose,
    pub(super) command: String,
    pub(super) fingerprint: Fingerprint,
    pub(super) feed: Option<mpsc::Sender<exec::Feed>>,
    pub(super) reads: Reads,
}

impl RunTable {
    /// An empty table.
    #[must_use]
    pub fn new(limits: SessionLimits) -> Self {
        let budget = Budget::new(limits.logs_bytes);
        Self { limits, budget, runs: Mutex::default() }
    }

    /// Its bounds.
    #[must_use]
    pub fn limits(&self) -> &SessionLimits {
        &self.limits
    }

    /// Takes a name for a run.
    ///
    /// # Errors
    /// [`Error::NameTaken`] when another command has it.
    pub(super) fn claim(&self, store: &Store, plan: Plan) -> Result<Claim> {
        self.forget_old();
        let key = (plan.tree.clone(), plan.id.clone());
        let mut runs = self.runs.lock();
        if let Some(there) = runs.get(&key) {
            if there.fingerprint != plan.fingerprint {
                return Err(Error::NameTaken(plan.id.to_string()));
            }
            return Ok(Claim::There(Arc::clone(there)));
        }
        let patience = Duration::from_millis(self.limits.patience_ms);
        let log = Log::new(store.clone(), self.limits.log_bytes, &self.budget, patience, plan.reads.clone());
        let recorded = Arc::new(Recorded {
            id: plan.id,
            tree: plan.tree,
            purpose: plan.purpose,
            command: plan.command,
            asked: SystemTime::now(),
            fingerprint: plan.fingerprint,
            log: Arc::new(log),
            reads: plan.reads,
            kill: watch::Sender::new(false),
            seats: watch::Sender::new(0),
            feed: Mutex::new(plan.feed),
            control: Mutex::new(None),
            phase: watch::Sender::new(Phase::Starting),
            end: OnceLock::new(),
            verdict: Mutex::new(None),
        });
        runs.insert(key, Arc::clone(&recorded));
        Ok(Claim::New(recorded))
    }

    /// The run `id` of a tree.
    ///
    /// # Errors
    /// [`Error::NoRun`].
    pub fn find(&self, tree: &TreeId, id: &ExecId) -> Result<Arc<Recorded>> {
        self.forget_old();
        let found = self.runs.lock().get(&(tree.clone(), id.clone())).cloned();
        found.ok_or_else(|| Error::NoRun(id.to_string()))
    }

    /// The runs of a tree, in the order in which they were asked for.
    #[must_use]
    pub fn of(&self, tree: &TreeId) -> Vec<Arc<Recorded>> {
        self.forget_old();
        let runs = self.runs.lock();
        let mut found: Vec<_> = runs.values().filter(|run| run.tree == *tree).cloned().collect();
        drop(runs);
        found.sort_by(|one, other| (one.asked, &one.id).cmp(&(other.asked, &other.id)));
        found
    }

    /// The runs of a user and agent that go on, in all their trees.
    #[must_use]
    pub fn running_of(&self, user: &UserId, agent: &AgentId) -> Vec<Arc<Recorded>> {
        let runs = self.runs.lock();
        let is_theirs = |run: &&Arc<Recorded>| run.tree.user() == user && run.tree.agent() == agent;
        runs.values().filter(is_theirs).filter(|run| run.phase() == Phase::Running).cloned().collect()
    }

    /// All runs, of one user or of all, that are remembered.
    #[must_use]
    pub fn all(&self, user: Option<&UserId>) -> Vec<Arc<Recorded>> {
        self.forget_old();
        let runs = self.runs.lock();
        runs.values().filter(|run| user.is_none_or(|user| run.tree.user() == user)).cloned().collect()
    }

    /// Those of them that go on.
    #[must_use]
    pub fn under_way(&self, user: Option<&UserId>) -> Vec<Arc<Recorded>> {
        let mut runs = self.all(user);
        runs.retain(|run| run.end.get().is_none());
        runs
    }

    /// Forgets the runs of a user that have ended, with their output and their undecided changes.
    pub(in crate::ops) fn forget_user(&self, user: &UserId) {
        let mut runs = self.runs.lock();
        let is_over = |run: &Arc<Recorded>| run.tree.user() == user && run.end.get().is_some();
        let over: Vec<_> = runs.extract_if(|_, run| is_over(run)).collect();
        drop(runs);
        // Closing a large file frees its blocks.
        tokio::task::spawn_blocking(move || drop(over));
    }

    /// Kills every run that goes on.
    pub(in crate::ops) fn kill_all(&self) {
        self.under_way(None).iter().for_each(|run| run.kill());
    }

    /// Drops the undecided changes of the runs of a sandbox.
    pub fn discard_in(&self, sandbox: &WorkspaceId) {
        let runs = self.runs.lock();
        let found: Vec<_> =
            runs.values().filter(|run| WorkspaceId::of(&run.tree) == *sandbox).cloned().collect();
        drop(runs);
        for run in found {
            // Most have nothing to decide about.
            let _ = run.discard();
        }
    }

    /// Forgets the run `id` of a tree, in any phase.
    pub(super) fn take(&self, tree: &TreeId, id: &ExecId) -> Option<Arc<Recorded>> {
        self.runs.lock().remove(&(tree.clone(), id.clone()))
    }

    /// Frees the name of a run that did not begin.
    pub(super) fn forget(&self, recorded: &Recorded) {
        self.runs.lock().remove(&(recorded.tree.clone(), recorded.id.clone()));
    }

    /// Forgets runs that ended too long ago, and the oldest of too many.
    pub(super) fn forget_old(&self) {
        let forgotten = self.take_old(Instant::now());
        if !forgotten.is_empty() {
            // Closing a large file frees its blocks.
            tokio::task::spawn_blocking(move || drop(forgotten));
        }
    }

    fn take_old(&self, now: Instant) -> Vec<Arc<Recorded>> {
        let oldest_allowed = Duration::from_millis(self.limits.ended_ms);
        let mut runs = self.runs.lock();
        let ended = |run: &Arc<Recorded>| Some((run.end.get()?.at, Arc::clone(run)));
        let mut ended: Vec<(Instant, Arc<Recorded>)> = runs.values().filter_map(ended).collect();
        ended.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut of_user: HashMap<&UserId, usize> = HashMap::new();
        let mut is_crowded = self.budget.used() > self.budget.limit() / 4 * CROWDED_QUARTERS;
        let mut old = Vec::new();
        for (number, (at, run)) in ended.iter().enumerate() {
            let mine = of_user.entry(run.tree.user()).or_default();
            *mine += 1;
            let is_last = number + 1 == ended.len();
            if now.duration_since(*at) >= oldest_allowed
                || number >= self.limits.ended
                || *mine > self.limits.ended_per_user
                || (is_last && std::mem::take(&mut is_crowded))
            {
                old.push(Arc::clone(run));
            }
        }
        for run in &old {
            runs.remove(&(run.tree.clone(), run.id.clone()));
        }
        old
    }
}

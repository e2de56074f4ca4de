//! Workspaces with their homes as a whole: which there are, what they take, removing them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::{SkillId, UserId};
use storage::{SandboxFacts, SnapshotList, Use, WorkspaceId};

use super::admission::{Job, Weight};
use super::error::Result;
use super::{Service, search};
use crate::audit::Entry;

/// How long runs that are over, or killed, may take to go: all those of one request together. To take in what one did may take
/// `limits.files.absorb_ms` of it, ten seconds by default.
pub(super) const LEAVING: Duration = Duration::from_secs(30);
/// How often it is looked whether they have gone.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// A sandbox at a glance.
#[derive(Debug)]
pub struct Glance {
    /// The facts on the disk.
    pub facts: SandboxFacts,
    /// Commands under way, in the workspace or in a skill of the same user and agent.
    pub runs: usize,
    /// Terminals.
    pub terminals: usize,
}

/// The room that a workspace with its home takes.
#[derive(Debug)]
pub struct Usage {
    /// The rest that is known of it.
    pub glance: Glance,
    /// Its workspace with its home.
    pub taken: Use,
    /// The room of the user's changes in each skill.
    pub skills: Vec<(SkillId, Use)>,
    /// Skills beyond those.
    pub more_skills: usize,
    /// Its snapshots.
    pub snapshots: SnapshotList,
}

/// How a sandbox is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Whether runs in it are killed, and what they did aside dropped.
    pub force: bool,
    /// Whether its snapshots go too.
    pub snapshots: bool,
}

/// The outcome of removing several workspaces.
#[derive(Debug, Default)]
pub struct Removed {
    /// How many were removed.
    pub removed: usize,
    /// Workspaces with an occupant.
    pub busy: Vec<WorkspaceId>,
    /// Whether there are more, which this request did not try to remove.
    pub more: bool,
}

impl Service {
    /// The sandboxes of one user, or of all, sorted.
    ///
    /// # Errors
    /// As [`storage::Workspaces::list`].
    pub async fn sandboxes(&self, user: Option<UserId>) -> Result<Vec<WorkspaceId>> {
        let (store, job) = (self.store.clone(), Job::about(user.as_ref(), Weight::Scan));
        self.work(job, move || Ok(store.workspaces().list(user.as_ref())?)).await
    }

    /// The facts of each of these workspaces.
    ///
    /// # Errors
    /// As [`storage::Workspaces::facts`].
    pub async fn glance(&self, ids: Vec<WorkspaceId>) -> Result<Vec<Glance>> {
        let mut users = ids.iter().map(|id| &id.user);
        let first = users.next();
        let of = first.filter(|first| users.all(|user| user == *first));
        let (store, job) = (self.store.clone(), Job::about(of, Weight::Scan));
        let facts: Vec<SandboxFacts> =
            self.work(job, move || ids.iter().map(|id| Ok(store.workspaces().facts(id)?)).collect()).await?;
        Ok(facts.into_iter().map(|facts| self.glance_of(facts)).collect())
    }

    fn glance_of(&self, facts: SandboxFacts) -> Glance {
        let (runs, terminals) = self.under_way.count(&facts.id);
        Glance { facts, runs, terminals }
    }

    /// Counts what a sandbox takes. That looks through all its trees, as a search does, and waits for a place as one.
    ///
    /// # Errors
    /// As [`storage::Store::usage`]; [`Error::Busy`](super::Error::Busy).
    pub async fn usage(&self, id: WorkspaceId) -> Result<Usage> {
        let store = self.store.clone();
        let permit = search::permit(&id.user).await?;
        let job = Job::of(&id.user, Weight::Scan);
        let counted = self.work(job, move || {
            let _permit = permit;
            let taken = store.usage(&id.workspace())?;
            Ok((
                store.workspaces().facts(&id)?,
                taken,
                store.workspaces().overlays(&id)?,
                store.snapshots().list(&id)?,
            ))
        });
        let (facts, taken, (skills, more_skills), snapshots) = counted.await?;
        Ok(Usage { glance: self.glance_of(facts), taken, skills, more_skills, snapshots })
    }

    /// Notes that a sandbox is used, and brings back what was set aside of it.
    ///
    /// # Errors
    /// As [`storage::Workspaces::note_use`].
    pub async fn note_use(&self, id: WorkspaceId) -> Result<()> {
        if self.store.workspaces().is_noted(&id) {
            return Ok(());
        }
        let (store, used) = (self.store.clone(), id.clone());
        let job = Job::of(&id.user, Weight::Light).going_on();
        if self.work(job, move || Ok(store.workspaces().note_use(&used)?)).await? {
            self.audit.note(Entry::of_workspace("brought back", &id.workspace()));
        }
        Ok(())
    }

    /// Removes a sandbox. Tells whether there was anything of it.
    ///
    /// # Errors
    /// [`storage::Error::Conflict`] while it has an occupant, with `force` when new runs keep coming; as
    /// [`storage::Workspaces::remove`].
    pub async fn remove_sandbox(&self, id: WorkspaceId, removal: Removal) -> Result<bool> {
        self.empty_until(&id, removal, Instant::now() + LEAVING).await;
        let (store, job) = (self.store.clone(), Job::of(&id.user, Weight::Scan));
        let removed = self
            .admission
            .work_and_clear(job, move || Ok(store.workspaces().remove(&id, removal.snapshots)?));
        removed.await
    }

    /// Waits for the runs of a sandbox whose answers are out and that are being cleaned up, [`LEAVING`] at most.
    ///
    /// To refuse because of one would be a surprise to the caller who has just got its answer.
    pub(super) async fn left_by_ended_runs(&self, id: &WorkspaceId) {
        self.wait_for_leaving(id, Instant::now() + LEAVING).await;
    }

    async fn wait_for_leaving(&self, id: &WorkspaceId, until: Instant) {
        while self.store.workspaces().leaving(id) > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until `until` at most for the runs of a sandbox that are to end before it is removed, and ends them with `force`.
    pub(super) async fn empty_until(&self, id: &WorkspaceId, removal: Removal, until: Instant) {
        if removal.force {
            self.under_way.stop(id);
            self.table.discard_in(id);
            // Not in a thread that others need: any number of requests may wait here.
            while self.store.workspaces().occupants(id) > 0 && Instant::now() < until {
                tokio::time::sleep(LOOK).await;
                // Again and again: a run that waited for a permit may begin meanwhile, and one that has just ended may be looked
                // through for changes to decide about.
                self.under_way.stop(id);
                if self.under_way.count(id) == (0, 0) {
                    self.table.discard_in(id);
                }
            }
        }
        self.wait_for_leaving(id, until).await;
    }

    /// Removes the sandboxes of one user, or of all: the first `most` of them. Workspaces with an occupant stay.
    ///
    /// # Errors
    /// As [`Service::remove_sandbox`], but for those that stay.
    pub async fn remove_sandboxes(
        &self,
        user: Option<UserId>,
        removal: Removal,
        most: usize,
    ) -> Result<Removed> {
        let (store, job) = (self.store.clone(), Job::about(user.as_ref(), Weight::Scan));
        let found = self.work(job, move || {
            let mut ids = Vec::new();
            for id in store.workspaces().list(user.as_ref())? {
                // Snapshots that stay are no reason to come back: others would never have their turn.
                let facts = store.workspaces().facts(&id)?;
                if facts.has_workspace
                    || facts.has_home
                    || facts.is_kept
                    || (removal.snapshots && facts.snapshots > 0)
                {
                    ids.push(id);
                }
                if ids.len() > most {
                    break;
                }
            }
            Ok(ids)
        });
        let mut ids = found.await?;
        let mut done = Removed { more: ids.len() > most, ..Removed::default() };
        let until = Instant::now() + LEAVING;
        ids.truncate(most);
        for id in ids {
            self.empty_until(&id, removal, until).await;
            let (store, audit) = (self.store.clone(), Arc::clone(&self.audit));
            let (job, removing) = (Job::of(&id.user, Weight::Scan), id.clone());
            let removed = self.work(job, move || {
                // The files of one go before the next is removed: a thousand at once would take all places.
                let (was_there, _leftovers) = store.workspaces().remove(&removing, removal.snapshots)?;
                // Where it is removed: it goes also when the caller has left.
                if was_there {
                    audit.note(Entry::of_workspace("workspace removed", &removing.workspace()));
                }
                Ok(was_there)
            });
            match removed.await {
                Ok(removed) => done.removed += usize::from(removed),
                Err(super::Error::Storage(storage::Error::Conflict(_))) => done.busy.push(id),
                Err(other) => return Err(other),
            }
        }
        Ok(done)
    }
}

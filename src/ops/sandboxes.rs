//! Workspaces with their homes as a whole: which there are, what they take, removing them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::{SkillId, UserId};
use storage::{Leftovers, SandboxFacts, SandboxId, Snapshots, Use};

use super::admission::{Job, Weight};
use super::error::Result;
use super::{Service, search};
use crate::audit::Entry;

/// How long runs that are over, or killed, may take to go: all those of one request together.
const LEAVING: Duration = Duration::from_secs(10);
/// How often it is looked whether they have gone.
const LOOK: Duration = Duration::from_millis(5);

/// A sandbox at a glance.
#[derive(Debug)]
pub struct Glance {
    /// What lies on the disk.
    pub facts: SandboxFacts,
    /// Commands under way, in the workspace or in a skill of the same user and agent.
    pub runs: usize,
    /// Terminals.
    pub terminals: usize,
}

/// What a sandbox takes.
#[derive(Debug)]
pub struct Usage {
    /// The rest that is known of it.
    pub glance: Glance,
    /// Its workspace with its home.
    pub taken: Use,
    /// What the user changed in each skill.
    pub skills: Vec<(SkillId, Use)>,
    /// Skills beyond those.
    pub more_skills: usize,
    /// Its snapshots.
    pub snapshots: Snapshots,
}

/// How a sandbox is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Whether runs in it are killed, and what they did aside dropped.
    pub force: bool,
    /// Whether its snapshots go too.
    pub snapshots: bool,
}

/// What became of several sandboxes that were to be removed.
#[derive(Debug, Default)]
pub struct Removed {
    /// How many were removed.
    pub removed: usize,
    /// Those that somebody is in.
    pub busy: Vec<SandboxId>,
    /// Whether there are more, which nobody has tried to remove.
    pub more: bool,
}

impl Service {
    /// The sandboxes of one user, or of all, sorted.
    ///
    /// # Errors
    /// As [`storage::Store::sandboxes`].
    pub async fn sandboxes(&self, user: Option<UserId>) -> Result<Vec<SandboxId>> {
        let (store, job) = (self.store.clone(), Job::about(user.as_ref(), Weight::Scan));
        self.work(job, move || Ok(store.sandboxes(user.as_ref())?)).await
    }

    /// What is known of each of these sandboxes.
    ///
    /// # Errors
    /// As [`storage::Store::sandbox_facts`].
    pub async fn glance(&self, ids: Vec<SandboxId>) -> Result<Vec<Glance>> {
        let mut users = ids.iter().map(|id| &id.user);
        let first = users.next();
        let of = first.filter(|first| users.all(|user| user == *first));
        let (store, job) = (self.store.clone(), Job::about(of, Weight::Scan));
        let facts: Vec<SandboxFacts> =
            self.work(job, move || ids.iter().map(|id| Ok(store.sandbox_facts(id)?)).collect()).await?;
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
    pub async fn usage(&self, id: SandboxId) -> Result<Usage> {
        let store = self.store.clone();
        let place = search::place(&id.user).await?;
        let job = Job::of(&id.user, Weight::Scan);
        let counted = self.work(job, move || {
            let _place = place;
            let taken = store.usage(&id.workspace())?;
            Ok((store.sandbox_facts(&id)?, taken, store.overlays(&id)?, store.snapshots(&id)?))
        });
        let (facts, taken, (skills, more_skills), snapshots) = counted.await?;
        Ok(Usage { glance: self.glance_of(facts), taken, skills, more_skills, snapshots })
    }

    /// Notes that a sandbox is used, and brings back what was set aside of it.
    ///
    /// # Errors
    /// As [`storage::Store::note_use`].
    pub async fn note_use(&self, id: SandboxId) -> Result<()> {
        if self.store.is_noted(&id) {
            return Ok(());
        }
        let (store, used) = (self.store.clone(), id.clone());
        let job = Job::of(&id.user, Weight::Light).going_on();
        if self.work(job, move || Ok(store.note_use(&used)?)).await? {
            self.audit.note(Entry::of_workspace("brought back", &id.workspace()));
        }
        Ok(())
    }

    /// Removes a sandbox. Tells whether there was anything of it.
    ///
    /// # Errors
    /// [`storage::Error::Conflict`] while somebody is in it, with `force` when new runs keep coming; as
    /// [`storage::Store::remove_sandbox`].
    pub async fn remove_sandbox(&self, id: SandboxId, removal: Removal) -> Result<bool> {
        let removing = self.remove_until(id, removal, Instant::now() + LEAVING, |_| ());
        let (removed, leftovers) = removing.await?;
        // While the answer is on its way.
        tokio::task::spawn_blocking(move || drop(leftovers));
        Ok(removed)
    }

    /// Waits for the runs of a sandbox whose answers are out and that are being cleaned up, [`LEAVING`] at most.
    ///
    /// To refuse because of one would be a surprise to the caller who has just got its answer.
    pub(super) async fn left_by_ended_runs(&self, id: &SandboxId) {
        self.wait_for_leaving(id, Instant::now() + LEAVING).await;
    }

    async fn wait_for_leaving(&self, id: &SandboxId, until: Instant) {
        while self.store.leaving(id) > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// As [`Service::remove_sandbox`]; killed runs may take until `until`. What lay on the disk is still to be dropped.
    async fn remove_until(
        &self,
        id: SandboxId,
        removal: Removal,
        until: Instant,
        removed: impl FnOnce(&SandboxId) + Send + 'static,
    ) -> Result<(bool, Leftovers)> {
        if removal.force {
            self.under_way.stop(&id);
            self.table.discard_in(&id);
            // Not in a thread that others need: any number of requests may wait here.
            while self.store.occupants(&id) > 0 && Instant::now() < until {
                tokio::time::sleep(LOOK).await;
            }
        }
        self.wait_for_leaving(&id, until).await;
        let (store, job) = (self.store.clone(), Job::of(&id.user, Weight::Scan));
        self.work(job, move || {
            let (was_there, leftovers) = store.remove_sandbox(&id, removal.snapshots)?;
            if was_there {
                removed(&id);
            }
            Ok((was_there, leftovers))
        })
        .await
    }

    /// Removes the sandboxes of one user, or of all: the first `most` of them. Those that somebody is in stay.
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
            for id in store.sandboxes(user.as_ref())? {
                // Snapshots that stay are no reason to come back: others would never have their turn.
                let facts = store.sandbox_facts(&id)?;
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
            let audit = Arc::clone(&self.audit);
            // Where it is removed: it goes also when nobody waits for the answer any more.
            let note = move |id: &SandboxId| {
                audit.note(Entry::of_workspace("workspace removed", &id.workspace()));
            };
            match self.remove_until(id.clone(), removal, until, note).await {
                Ok((removed, leftovers)) => {
                    done.removed += usize::from(removed);
                    // Before the next: a thousand at once would leave no thread for anybody else.
                    let _ = tokio::task::spawn_blocking(move || drop(leftovers)).await;
                }
                Err(super::Error::Storage(storage::Error::Conflict(_))) => done.busy.push(id),
                Err(other) => return Err(other),
            }
        }
        Ok(done)
    }
}

//! Users and agents as a whole: which there are, what there is of each, and removing everything of a user.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::UserId;
use storage::{Agent, AgentFacts, Shelf, Use, WorkspaceId};

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use super::sandboxes::{LEAVING, LOOK, Removal};
use crate::audit::Entry;

/// How long killed runs may take to tell their callers, before they are dropped.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Agents of a user that one request removes.
const REMOVED_MAX: usize = 1000;

/// What a user has with one agent, and what runs there.
#[derive(Debug)]
pub struct OfAgent {
    /// What lies on the disk.
    pub facts: AgentFacts,
    /// Commands under way.
    pub runs: usize,
    /// Terminals.
    pub terminals: usize,
}

/// What there is of a user.
#[derive(Debug)]
pub struct OfUser {
    /// With each agent, sorted by agent.
    pub agents: Vec<OfAgent>,
    /// What everything takes on the disk together, snapshots and trash included.
    pub taken: Use,
    /// What it may take.
    pub limits: Use,
}

/// The outcome of removing a user.
#[derive(Debug, Default)]
pub struct RemovedUser {
    /// Workspaces with their homes and snapshots.
    pub workspaces: usize,
    /// Overlays of skills.
    pub skills: usize,
    /// Runs that were ended.
    pub runs: usize,
    /// Where a run did not end in time: ask again.
    pub busy: Vec<WorkspaceId>,
    /// Whether there is more than one request removes: ask again.
    pub more: bool,
}

impl Service {
    /// The users of whom there is anything, sorted: at most `most` of those after `after`, and whether there are more.
    ///
    /// # Errors
    /// As [`storage::Workspaces::users`].
    pub async fn users(&self, after: Option<UserId>, most: usize) -> Result<(Vec<UserId>, bool)> {
        let (store, job) = (self.store.clone(), Job::about(None, Weight::Scan));
        self.work(job, move || Ok(store.workspaces().users(after.as_ref(), most)?)).await
    }

    /// What a user has with each agent, and in all.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`] when there is nothing; as [`storage::Workspaces::user_facts`] and
    /// [`storage::Store::user_usage`].
    pub async fn user(&self, user: UserId) -> Result<OfUser> {
        let (store, job, of) = (self.store.clone(), Job::of(&user, Weight::Scan), user.clone());
        let look = self.work(job, move || {
            let facts = store.workspaces().user_facts(&of)?;
            let usage = if facts.is_empty() { Default::default() } else { store.user_usage(&of)? };
            Ok((facts, usage))
        });
        let (facts, (taken, limits)) = look.await?;
        if facts.is_empty() {
            return Err(storage::Error::NotFound(user.to_string()).into());
        }
        let counted = facts.into_iter().map(|facts| {
            let (runs, terminals) = self.under_way.count(&facts.sandbox.id);
            OfAgent { facts, runs, terminals }
        });
        Ok(OfUser { agents: counted.collect(), taken, limits })
    }

    /// The agents: of one user, or all.
    ///
    /// # Errors
    /// As [`storage::Workspaces::agents`].
    pub async fn agents(&self, of: Option<UserId>) -> Result<Vec<Agent>> {
        let (store, job) = (self.store.clone(), Job::about(of.as_ref(), Weight::Scan));
        self.work(job, move || Ok(store.workspaces().agents(of.as_ref())?)).await
    }

    /// Removes everything of a user, everywhere: runs, workspaces, homes, snapshots, overlays, share links. Runs are ended first, and
    /// their callers get what they wrote. What the user makes meanwhile may stay.
    ///
    /// A crash leaves less of the user; the same call finishes.
    ///
    /// # Errors
    /// As [`storage::Workspaces::remove`] and [`storage::Workspaces::remove_overlays`].
    pub async fn remove_user(self: &Arc<Self>, user: UserId) -> Result<RemovedUser> {
        let mut done = RemovedUser { runs: self.end_runs(&user).await, ..RemovedUser::default() };
        let (store, of) = (self.store.clone(), user.clone());
        let agents = self.work(Job::of(&user, Weight::Scan), move || Ok(store.agents_of(&of)?)).await?;
        done.more = agents.len() > REMOVED_MAX;
        let until = Instant::now() + LEAVING;
        for agent in agents.into_iter().take(REMOVED_MAX) {
            let id = WorkspaceId { user: user.clone(), agent };
            let removal = Removal { force: true, snapshots: true };
            self.empty_until(&id, removal, until).await;
            match self.remove_with(&id).await {
                Ok((workspace, skills)) => {
                    done.workspaces += usize::from(workspace);
                    done.skills += skills;
                }
                Err(Error::Storage(storage::Error::Conflict(_))) => done.busy.push(id),
                Err(other) => return Err(other),
            }
        }
        for machine in self.runners.of(&user) {
            match self.revoke_runner(&user, &machine.name).await {
                // Another request was faster.
                Ok(()) | Err(Error::NoRunner(_)) => {}
                Err(other) => return Err(other),
            }
        }
        self.revoke_shares_of(&user).await?;
        self.table.forget_user(&user);
        if done.busy.is_empty() && !done.more {
            let (store, of) = (self.store.clone(), user.clone());
            self.work(Job::of(&user, Weight::Scan), move || Ok(store.workspaces().finish_user(&of)?)).await?;
        }
        Ok(done)
    }

    /// Removes what a user has with one agent. Tells whether there was a workspace, and how many overlays.
    async fn remove_with(&self, id: &WorkspaceId) -> Result<(bool, usize)> {
        let (store, audit, id) = (self.store.clone(), Arc::clone(&self.audit), id.clone());
        let job = Job::of(&id.user, Weight::Scan);
        self.publishing(job, move |shelves| {
            let (was_there, sandbox) = store.workspaces().remove(&id, true)?;
            let (skills, overlays) =
                store.workspaces().remove_overlays(&id, |tree| shelves.extend(Shelf::of(tree)))?;
            if was_there || skills > 0 {
                audit.note(Entry::of_workspace("removed with its user", &id.workspace()));
            }
            Ok(((was_there, skills), (sandbox, overlays)))
        })
        .await
    }

    /// Kills the runs of a user and waits a moment until their callers were told. Tells how many there were.
    async fn end_runs(&self, user: &UserId) -> usize {
        let named = self.table.under_way(Some(user));
        let unnamed: Vec<_> = self.unnamed.all().into_iter().filter(|run| run.tree.user() == user).collect();
        named.iter().for_each(|run| run.kill());
        unnamed.iter().for_each(|run| run.kill());
        let trees = named.iter().map(|run| &run.tree).chain(unnamed.iter().map(|run| &run.tree));
        let ids: BTreeSet<WorkspaceId> = trees.map(WorkspaceId::of).collect();
        let until = Instant::now() + LAST_WORDS;
        // One that had only been admitted is not yet under way in its workspace.
        let have_ended =
            || named.iter().all(|run| run.exit().is_some()) && unnamed.iter().all(|run| run.has_ended());
        let are_gone = || have_ended() && ids.iter().all(|id| self.under_way.count(id) == (0, 0));
        while !are_gone() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        named.len() + unnamed.len()
    }
}

//! What users take on the disk, agent by agent.

use policy::{AgentId, UserId};
use storage::{Use, WorkspaceId};

use super::Service;
use super::admission::{Job, Weight};
use super::error::Result;

/// Users that one request looks at.
const USERS_MAX: usize = 10_000;

/// What a user takes with one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// The user and the agent.
    pub id: WorkspaceId,
    /// The workspace with its home.
    pub workspace: Use,
    /// The user's changes in skills.
    pub skills: Use,
    /// Skills beyond the first thousand, which are not among them.
    pub more_skills: usize,
    /// All snapshots together.
    pub snapshots: Use,
}

impl Service {
    /// The users and agents of which there is anything, sorted: of one user or of all, with one agent or with all.
    ///
    /// # Errors
    /// [`storage::Error::TooManyEntries`] for more than ten thousand users; as [`storage::Workspaces::users`] and
    /// [`storage::Store::agents_of`].
    pub async fn used_places(
        &self,
        user: Option<UserId>,
        agent: Option<AgentId>,
    ) -> Result<Vec<WorkspaceId>> {
        let (store, job) = (self.store.clone(), Job::about(user.as_ref(), Weight::Scan));
        self.work(job, move || {
            let users = match user {
                Some(user) => vec![user],
                None => match store.workspaces().users(None, USERS_MAX)? {
                    (users, false) => users,
                    (_, true) => return Err(storage::Error::TooManyEntries(USERS_MAX).into()),
                },
            };
            let mut places = Vec::new();
            for user in users {
                let agents = store.agents_of(&user)?.into_iter();
                let agents = agents.filter(|found| agent.as_ref().is_none_or(|agent| agent == found));
                places.extend(agents.map(|agent| WorkspaceId { user: user.clone(), agent }));
            }
            places.sort_unstable();
            Ok(places)
        })
        .await
    }

    /// Counts what each of these takes, one after the other: each waits for a place as a search does.
    ///
    /// # Errors
    /// As [`Service::usage`].
    pub async fn used(&self, places: Vec<WorkspaceId>) -> Result<Vec<Used>> {
        let mut all = Vec::with_capacity(places.len());
        for id in places {
            let usage = self.usage(id.clone()).await?;
            let skills = usage.skills.into_iter().fold(Use::default(), |sum, (_, taken)| sum.plus(taken));
            let (more_skills, snapshots) = (usage.more_skills, usage.snapshots.taken);
            all.push(Used { id, workspace: usage.taken, skills, more_skills, snapshots });
        }
        Ok(all)
    }
}

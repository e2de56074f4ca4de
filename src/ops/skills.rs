//! Operations on whole skills.

use policy::{AgentId, Scope, SkillId, TreeId, UserId};
use storage::{Shelf, Skill, Spool};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::Result;

impl Service {
    /// Lists the skills that a user sees.
    ///
    /// # Errors
    /// As [`storage::Skills::list`].
    pub async fn skills(&self, user: UserId, agent: AgentId) -> Result<Vec<Skill>> {
        let (store, job) = (self.store.clone(), Job::of(&user, Weight::Scan));
        self.work(job, move || Ok(store.skills().list(&user, &agent)?)).await
    }

    /// The ids of the skills that a user sees.
    ///
    /// # Errors
    /// As [`storage::Skills::ids`].
    pub async fn skill_ids(&self, user: UserId, agent: AgentId) -> Result<Vec<SkillId>> {
        // On the spot: to leave the runtime takes longer.
        if let Some(ids) = self.store.skills().known_ids(&user, &agent) {
            return Ok(ids);
        }
        let (store, job) = (self.store.clone(), Job::of(&user, Weight::Scan));
        self.work(job, move || Ok(store.skills().ids(&user, &agent)?)).await
    }

    /// Removes a skill: for all users (baseline) or for one user (overlay).
    ///
    /// # Errors
    /// As [`storage::Skills::remove_baseline`] and [`storage::Skills::remove_for_user`].
    pub async fn remove_skill(&self, id: TreeId, scope: Scope) -> Result<()> {
        let store = self.store.clone();
        let job = Job::on(&id, Weight::Scan, Mode::ShortChange);
        self.publishing(job, move |shelves| {
            shelves.extend(match scope {
                Scope::Baseline => Shelf::below(&id),
                Scope::Overlay => Shelf::of(&id),
            });
            match (&id, scope) {
                (TreeId::Skill(_, agent, skill), Scope::Baseline) => {
                    store.skills().remove_baseline(agent, skill)?
                }
                _ => store.skills().remove_for_user(&id)?,
            }
            Ok(((), ()))
        })
        .await
    }

    /// Drops a user's changes of a skill. Tells whether there were any.
    ///
    /// # Errors
    /// As [`storage::Skills::reset`].
    pub async fn reset(&self, id: TreeId) -> Result<bool> {
        let store = self.store.clone();
        let job = Job::on(&id, Weight::Scan, Mode::ShortChange);
        self.publishing(job, move |shelves| {
            shelves.extend(Shelf::of(&id));
            Ok((store.skills().reset(&id)?, ()))
        })
        .await
    }

    /// Packs the merged view of a skill. Returns a spool of it and its size in bytes.
    ///
    /// # Errors
    /// As [`storage::Skills::pack`].
    pub async fn pack(&self, id: TreeId) -> Result<(Spool, u64)> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongRead));
        self.work(job, move || Ok(store.skills().pack(&id)?)).await
    }
}

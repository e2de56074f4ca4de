//! [`Seen`]: the state of a tree that is read.

use policy::{AgentId, SkillId, TreeId, UserId};
use storage::{Version, VersionName};

use super::Service;
use super::admission::{Job, Weight};
use super::error::Result;
use super::versions::seen_versions;

/// A tree as it is read: what its user sees, or a published version of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The tree.
    pub id: TreeId,
    /// The version that is read instead of what the user sees.
    pub version: Option<Version>,
}

impl From<TreeId> for Seen {
    fn from(id: TreeId) -> Self {
        Self { id, version: None }
    }
}

/// The published state of a skill that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// The current version.
    Current,
    /// A version by its name.
    Named(VersionName),
}

impl Service {
    /// The published version of a skill that is meant. Staged ones are not there unless `with_staged`.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`] when it is not there; as [`storage::Skills::versions`].
    pub async fn published_version(
        &self,
        asks: &UserId,
        agent: AgentId,
        skill: SkillId,
        with_staged: bool,
        meant: Published,
    ) -> Result<Version> {
        let (store, job) = (self.store.clone(), Job::of(asks, Weight::Light));
        self.work(job, move || {
            let versions = seen_versions(store.skills().versions(&agent, &skill)?, &skill, with_staged)?;
            let found = match &meant {
                Published::Current => versions.current(),
                Published::Named(name) => versions.named(name),
            };
            let gone = || match &meant {
                Published::Current => storage::Error::NotFound(skill.to_string()),
                Published::Named(name) => storage::Error::NotFound(format!("{skill} {name}")),
            };
            Ok(found.ok_or_else(gone)?.version.clone())
        })
        .await
    }
}

//! Differences between two published versions of a skill, and what a promotion would publish.

use policy::{RelPath, TreeId};
use storage::{Change, Changed, Sides, Status, Version};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::Result;
use super::versions::{FileDifference, SIDE_BYTES_MAX, compared};

/// What a promotion would publish.
#[derive(Debug)]
pub struct WouldPromote {
    /// The version that it would take the place of; `None` when the application has no such skill.
    pub replaces: Option<Version>,
    /// The changes that it would publish, conflicts included.
    pub changes: usize,
    /// The paths that the application has changed, too, sorted: with any, a promotion is refused unless it is forced.
    pub conflicts: Vec<String>,
}

impl Service {
    /// The files that the version `to` of a skill has otherwise than `from`, sorted by path.
    ///
    /// # Errors
    /// As [`storage::Skills::version_changes`].
    pub async fn version_changes(&self, id: TreeId, from: Version, to: Version) -> Result<Vec<Changed>> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::LongRead));
        self.work(job, move || Ok(store.skills().version_changes(&id, &from, &to)?)).await
    }

    /// The files `changed` between two versions of a skill, line by line.
    ///
    /// # Errors
    /// As [`storage::Skills::version_sides`].
    pub async fn version_differences(
        &self,
        id: TreeId,
        [from, to]: [Version; 2],
        changed: Vec<Changed>,
    ) -> Result<Vec<FileDifference>> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::ShortRead));
        self.work(job, move || {
            let skills = store.skills();
            let sides = |path: &RelPath| -> Result<Sides> {
                Ok(skills.version_sides(&id, [&from, &to], path, SIDE_BYTES_MAX)?)
            };
            compared(changed, sides)
        })
        .await
    }

    /// Tells what a promotion would publish, and publishes nothing. What changes meanwhile may make the promotion another one.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`] when the user has no such skill; [`storage::Error::Conflict`] when the user changed nothing; as
    /// [`storage::Skills::changed_files`].
    pub async fn would_promote(&self, id: TreeId) -> Result<WouldPromote> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::LongRead));
        self.work(job, move || {
            store.files(id.clone()).stat(&RelPath::root())?;
            let skills = store.skills();
            let status = skills.changed_files(&id)?;
            if status.status == Status::Unchanged {
                let message = "the user changed nothing in the skill".to_owned();
                return Err(storage::Error::Conflict(message).into());
            }
            let replaces = match &id {
                TreeId::Skill(_, agent, skill) => match skills.versions(agent, skill) {
                    Err(storage::Error::NotFound(_)) => None,
                    versions => versions?.current().map(|kept| kept.version.clone()),
                },
                TreeId::Workspace(..) => None,
            };
            let changes = status.changes.len();
            let conflicts = status.changes.into_iter().filter(|changed| changed.change == Change::Conflict);
            Ok(WouldPromote { replaces, changes, conflicts: conflicts.map(|changed| changed.path).collect() })
        })
        .await
    }
}

//! A skill's way between one user and all: differences, versions, promotion, pulling.

use std::time::{Duration, Instant};

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use storage::{
    Change, Changed, KeptVersion, Leftovers, Prefer, Published, Pulled, Shelf, SkillStatus, Version,
    WorkspaceId,
};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::difference::{Text, unified};
use super::error::Result;

/// Largest side of a file that is compared by lines, in bytes.
const SIDE_BYTES_MAX: u64 = 1024 * 1024;
/// Text of one answer, in bytes; files beyond are named without.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for all comparisons of one answer. What is not done by then is told as larger changes than there are.
const COMPARING_MAX: Duration = Duration::from_secs(2);

/// A user's changes in one file of a skill.
#[derive(Debug)]
pub struct FileDifference {
    /// Path from the skill's root.
    pub path: String,
    /// The kind of change.
    pub change: Change,
    /// Its size in the current version of the application, in bytes; `None` when it has no such file.
    pub before_bytes: Option<u64>,
    /// Its size as the user sees it.
    pub after_bytes: Option<u64>,
    /// The changed lines, or why there are none.
    pub text: Text,
}

impl Service {
    /// How a user's view of a skill stands to the application's, and which files differ.
    ///
    /// # Errors
    /// As [`storage::Skills::changed_files`]; [`storage::Error::NotFound`] when the user has no such skill.
    pub async fn changed_files(&self, id: TreeId) -> Result<SkillStatus> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::LongRead));
        self.work(job, move || {
            store.files(id.clone()).stat(&RelPath::root())?;
            Ok(store.skills().changed_files(&id)?)
        })
        .await
    }

    /// A user's changes in the files `changed` of a skill, line by line.
    ///
    /// # Errors
    /// As [`storage::Skills::sides`].
    pub async fn differences(&self, id: TreeId, changed: Vec<Changed>) -> Result<Vec<FileDifference>> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Scan, Mode::ShortRead));
        self.work(job, move || {
            let until = Instant::now() + COMPARING_MAX;
            let mut room = TEXT_BYTES_MAX;
            let compared = changed.into_iter().map(|changed| {
                // A path that is not UTF-8 is shown, but names nothing.
                let sides = match RelPath::parse(&changed.path) {
                    Ok(path) => store.skills().sides(&id, &path, SIDE_BYTES_MAX)?,
                    Err(_) => storage::Sides::default(),
                };
                let text = unified(&changed.path, &sides, until);
                let text = match text {
                    Text::Lines(text) if text.len() > room => Text::TooLarge,
                    text => text,
                };
                if let Text::Lines(text) = &text {
                    room = room.saturating_sub(text.len());
                }
                Ok(FileDifference {
                    path: changed.path,
                    change: changed.change,
                    before_bytes: sides.before.map(|side| side.bytes),
                    after_bytes: sides.after.map(|side| side.bytes),
                    text,
                })
            });
            compared.collect()
        })
        .await
    }

    /// The kept versions of an application's skill, the current one first; `user` asks.
    ///
    /// # Errors
    /// As [`storage::Skills::versions`].
    pub async fn versions(&self, user: &UserId, agent: AgentId, skill: SkillId) -> Result<Vec<KeptVersion>> {
        let (store, job) = (self.store.clone(), Job::of(user, Weight::Light));
        self.work(job, move || Ok(store.skills().versions(&agent, &skill)?)).await
    }

    /// Makes a former version of an application's skill the current one; `by` is written down as the publisher.
    ///
    /// # Errors
    /// As [`storage::Skills::rollback`].
    pub async fn rollback(
        &self,
        by: String,
        user: UserId,
        agent: AgentId,
        skill: SkillId,
        version: Version,
    ) -> Result<Option<Published>> {
        let store = self.store.clone();
        let job = Job::of(&user, Weight::Long);
        let publication = self.publishing(job, move |shelves| {
            shelves.push(Shelf { agent: agent.clone(), skill: skill.clone(), user: None });
            Ok(first(store.skills().rollback(&by, &user, &agent, &skill, &version)?))
        });
        publication.await
    }

    /// Publishes what a user sees of a skill for all users; `by` is written down as the publisher.
    ///
    /// # Errors
    /// As [`storage::Skills::promote`].
    pub async fn promote(&self, by: String, id: TreeId, force: bool) -> Result<Option<Published>> {
        self.left_by_ended_runs(&WorkspaceId::of(&id)).await;
        let store = self.store.clone();
        // A promotion holds the overlay alone when the versions change places.
        let job = Job::on(&id, Weight::Long, Mode::LongChange);
        let publication = self.publishing(job, move |shelves| {
            // The user's own row goes when the skill belongs to all users.
            shelves.extend(Shelf::of(&id));
            shelves.extend(Shelf::below(&id));
            Ok(first(store.skills().promote(&by, &id, force)?))
        });
        publication.await
    }

    /// Carries a user's changes over to the application's current version.
    ///
    /// # Errors
    /// As [`storage::Skills::pull`].
    pub async fn pull(&self, id: TreeId, prefer: Prefer) -> Result<Pulled> {
        self.left_by_ended_runs(&WorkspaceId::of(&id)).await;
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongChange));
        self.work(job, move || Ok(store.skills().pull(&id, prefer)?)).await
    }

    /// Tells what a pull that prefers `prefer` would do.
    ///
    /// # Errors
    /// As [`storage::Skills::would_pull`].
    pub async fn would_pull(&self, id: TreeId, prefer: Prefer) -> Result<Pulled> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongRead));
        self.work(job, move || Ok(store.skills().would_pull(&id, prefer)?)).await
    }
}

/// The one skill of a publication, and what was replaced.
fn first(publication: storage::Publication) -> (Option<Published>, Leftovers) {
    let storage::Publication { mut skills, leftovers } = publication;
    (skills.pop(), leftovers)
}

//! A skill's way between one user and all: differences, versions, promotion, pulling.

use std::time::{Duration, Instant};

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use storage::{
    Change, Changed, Choices, KeptVersion, Leftovers, Presence, PublishOptions, Published, Pulled, Shelf,
    SkillStatus, SkillVersions, Spool, Version, VersionDescription, VersionName, VersionNote, VersionState,
    WorkspaceId,
};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::difference::{Text, unified};
use super::error::{Error, Result};

/// Largest side of a file that is compared by lines, in bytes.
pub(super) const SIDE_BYTES_MAX: u64 = 1024 * 1024;
/// Text of one answer, in bytes; files beyond are named without.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for all comparisons of one answer. What is not done by then is told as larger changes than there are.
const COMPARING_MAX: Duration = Duration::from_secs(2);

/// Who publishes, and what is written down with it.
#[derive(Clone, Debug)]
pub struct Publisher {
    by: String,
    note: VersionNote,
    is_staged: bool,
    /// Whether a skill with warnings is refused.
    pub(super) is_strict: bool,
}

impl Publisher {
    /// The caller `by`, with a title and a message for the version.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a text that is too long or has control characters.
    pub fn new(by: String, title: Option<String>, message: Option<String>) -> Result<Self> {
        let note = VersionNote::new(title, message).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Self { by, note, is_staged: false, is_strict: false })
    }

    /// As one who keeps the version beside the current one, when `is_staged`.
    #[must_use]
    pub fn staging(self, is_staged: bool) -> Self {
        Self { is_staged, ..self }
    }

    /// As one who publishes no skill that has warnings, when `is_strict`.
    #[must_use]
    pub fn strictly(self, is_strict: bool) -> Self {
        Self { is_strict, ..self }
    }

    pub(super) fn options(&self) -> PublishOptions<'_> {
        let (by, note, is_staged) = (&self.by, &self.note, self.is_staged);
        PublishOptions { by, note, is_staged, presence: Presence::Any }
    }
}

/// Versions of a skill, and what each says of itself.
#[derive(Debug)]
pub struct VersionPage {
    /// The one that was published last first.
    pub versions: Vec<(KeptVersion, VersionDescription)>,
    /// Whether there are no more.
    pub is_last: bool,
}

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
            let skills = store.skills();
            compared(changed, |path| Ok(skills.sides(&id, path, SIDE_BYTES_MAX)?))
        })
        .await
    }

    /// The versions of an application's skill that are there, the one that was published last first; `asks` is the user whose
    /// place the work takes. Staged ones are left out unless `with_staged`.
    ///
    /// # Errors
    /// As [`storage::Skills::versions`].
    pub async fn versions(
        &self,
        asks: &UserId,
        agent: AgentId,
        skill: SkillId,
        with_staged: bool,
    ) -> Result<SkillVersions> {
        let (store, job) = (self.store.clone(), Job::of(asks, Weight::Light));
        self.work(job, move || seen_versions(store.skills().versions(&agent, &skill)?, &skill, with_staged))
            .await
    }

    /// A page of [`Service::versions`]: at most `most`, of those with numbers below `before`.
    ///
    /// # Errors
    /// As [`storage::Skills::versions`].
    pub async fn version_page(
        &self,
        asks: &UserId,
        agent: AgentId,
        skill: SkillId,
        with_staged: bool,
        before: Option<u64>,
        most: usize,
    ) -> Result<VersionPage> {
        let (store, job) = (self.store.clone(), Job::of(asks, Weight::Scan));
        self.work(job, move || {
            let skills = store.skills();
            let mut versions = seen_versions(skills.versions(&agent, &skill)?, &skill, with_staged)?.versions;
            versions.retain(|kept| before.is_none_or(|before| kept.number < before));
            let is_last = versions.len() <= most;
            versions.truncate(most);
            let names: Vec<Version> = versions.iter().map(|kept| kept.version.clone()).collect();
            let described = skills.describe_versions(&agent, &skill, &names)?;
            // One that has gone meanwhile is left out.
            let versions = versions.into_iter().zip(described);
            let versions = versions.filter_map(|(kept, said)| said.map(|said| (kept, said))).collect();
            Ok(VersionPage { versions, is_last })
        })
        .await
    }

    /// One version of an application's skill.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`] when it is not there; as [`storage::Skills::versions`].
    pub async fn version(
        &self,
        asks: &UserId,
        agent: AgentId,
        skill: SkillId,
        with_staged: bool,
        name: VersionName,
    ) -> Result<(KeptVersion, VersionDescription)> {
        let (store, job) = (self.store.clone(), Job::of(asks, Weight::Light));
        self.work(job, move || {
            let gone = || storage::Error::NotFound(format!("{skill} {name}"));
            let skills = store.skills();
            let versions = seen_versions(skills.versions(&agent, &skill)?, &skill, with_staged)?;
            let kept = versions.named(&name).ok_or_else(gone)?.clone();
            let said = skills.describe_versions(&agent, &skill, std::slice::from_ref(&kept.version))?;
            Ok((kept, said.into_iter().next().flatten().ok_or_else(gone)?))
        })
        .await
    }

    /// Packs a version of an application's skill, for the account of the user of `id`. Returns a spool of it and its size in
    /// bytes.
    ///
    /// # Errors
    /// As [`storage::Skills::pack_version`].
    pub async fn pack_version(&self, id: TreeId, version: Version, is_flat: bool) -> Result<(Spool, u64)> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongRead));
        self.work(job, move || Ok(store.skills().pack_version(&id, &version, is_flat)?)).await
    }

    /// Has a version stay, or lets it go like any other. Tells whether that is a change.
    ///
    /// # Errors
    /// As [`storage::Skills::pin_version`] and [`storage::Skills::unpin_version`].
    pub async fn pin_version(
        &self,
        asks: &UserId,
        agent: AgentId,
        skill: SkillId,
        name: VersionName,
        is_pinned: bool,
    ) -> Result<bool> {
        let (store, job) = (self.store.clone(), Job::of(asks, Weight::Scan));
        self.work(job, move || {
            let skills = store.skills();
            Ok(match is_pinned {
                true => skills.pin_version(&agent, &skill, &name)?,
                false => skills.unpin_version(&agent, &skill, &name)?,
            })
        })
        .await
    }

    /// Removes a version of an application's skill. Returns its name, and whether it was the last one, with which the skill goes.
    ///
    /// # Errors
    /// As [`storage::Skills::remove_version`].
    pub async fn remove_version(
        &self,
        asks: &UserId,
        agent: AgentId,
        skill: SkillId,
        name: VersionName,
        force: bool,
    ) -> Result<(Version, bool)> {
        let (store, job) = (self.store.clone(), Job::of(asks, Weight::Scan));
        self.publishing(job, move |shelves| {
            shelves.push(Shelf { agent: agent.clone(), skill: skill.clone(), user: None });
            let removed = store.skills().remove_version(&agent, &skill, &name, force)?;
            Ok(((removed.version, removed.is_last), removed.leftovers))
        })
        .await
    }

    /// Makes a former or staged version of an application's skill the current one.
    ///
    /// # Errors
    /// As [`storage::Skills::rollback`].
    pub async fn rollback(
        &self,
        publisher: Publisher,
        user: UserId,
        agent: AgentId,
        skill: SkillId,
        version: VersionName,
    ) -> Result<Option<Published>> {
        let store = self.store.clone();
        let job = Job::of(&user, Weight::Long);
        let publication = self.publishing(job, move |shelves| {
            shelves.push(Shelf { agent: agent.clone(), skill: skill.clone(), user: None });
            Ok(first(store.skills().rollback(&publisher.options(), &user, &agent, &skill, &version)?))
        });
        publication.await
    }

    /// Publishes what a user sees of a skill for all users.
    ///
    /// # Errors
    /// As [`storage::Skills::promote`].
    pub async fn promote(&self, publisher: Publisher, id: TreeId, force: bool) -> Result<Option<Published>> {
        self.left_by_ended_runs(&WorkspaceId::of(&id)).await;
        let store = self.store.clone();
        // A promotion holds the overlay alone when the versions change places.
        let job = Job::on(&id, Weight::Long, Mode::LongChange);
        let publication = self.publishing(job, move |shelves| {
            // The user's own row goes when the skill belongs to all users.
            shelves.extend(Shelf::of(&id));
            shelves.extend(Shelf::below(&id));
            Ok(first(store.skills().promote(&publisher.options(), &id, force)?))
        });
        publication.await
    }

    /// Carries a user's changes over to the application's current version.
    ///
    /// # Errors
    /// As [`storage::Skills::pull`].
    pub async fn pull(&self, id: TreeId, choices: Choices) -> Result<Pulled> {
        self.left_by_ended_runs(&WorkspaceId::of(&id)).await;
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongChange));
        self.work(job, move || Ok(store.skills().pull(&id, choices)?)).await
    }

    /// Tells what a pull with these choices would do.
    ///
    /// # Errors
    /// As [`storage::Skills::would_pull`].
    pub async fn would_pull(&self, id: TreeId, choices: Choices) -> Result<Pulled> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongRead));
        self.work(job, move || Ok(store.skills().would_pull(&id, choices)?)).await
    }
}

/// Compares the files `changed` line by line, of which `sides` reads both sides.
pub(super) fn compared(
    changed: Vec<Changed>,
    sides: impl Fn(&RelPath) -> Result<storage::Sides>,
) -> Result<Vec<FileDifference>> {
    let until = Instant::now() + COMPARING_MAX;
    let mut room = TEXT_BYTES_MAX;
    let compared = changed.into_iter().map(|changed| {
        // A path that is not UTF-8 is shown, but names nothing.
        let sides = match RelPath::parse(&changed.path) {
            Ok(path) => sides(&path)?,
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
}

/// What a caller sees of the versions of a skill: staged ones are for those who decide about them.
pub(super) fn seen_versions(
    mut all: SkillVersions,
    skill: &SkillId,
    with_staged: bool,
) -> Result<SkillVersions> {
    if !with_staged {
        all.versions.retain(|kept| kept.state != VersionState::Staged);
        if all.versions.is_empty() {
            return Err(storage::Error::NotFound(skill.to_string()).into());
        }
    }
    Ok(all)
}

/// The one skill of a publication, and what was replaced.
fn first(publication: storage::Publication) -> (Option<Published>, Leftovers) {
    let storage::Publication { mut skills, leftovers } = publication;
    (skills.pop(), leftovers)
}

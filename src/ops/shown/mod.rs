//! Skills as registries of other vendors show them: one list, each skill with its versions, for all users of an agent or as one
//! user sees them. Such registries know no layers; here is what theirs mean in ours.

use policy::{AgentId, RelPath, Scope, SkillId, TreeId, UserId};
use storage::{
    KeptVersion, Shelf, SkillVersions, Spool, Status, Store, Version, VersionDescription, VersionName,
    VersionState,
};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use super::upload::{Archive, Taking};
use super::versions::{Publisher, seen_versions};
use crate::registry::shelf_id;

/// The account of work on skills of all users.
const NOBODY: &str = "all-users";

/// Whose skills are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    /// The agent.
    pub agent: AgentId,
    /// As this user sees them; without one, those of all users.
    pub user: Option<UserId>,
    /// Whether versions are shown that are only staged.
    pub with_staged: bool,
}

impl Audience {
    /// The layer that a change goes to.
    #[must_use]
    pub fn scope(&self) -> Scope {
        if self.user.is_some() { Scope::Overlay } else { Scope::Baseline }
    }

    /// The user for whose account work is done.
    ///
    /// # Errors
    /// [`Error::Id`], never.
    pub fn account(&self) -> Result<UserId> {
        self.user.clone().map_or_else(|| Ok(UserId::parse(NOBODY)?), Ok)
    }

    fn tree(&self, skill: &SkillId) -> Option<TreeId> {
        self.user.as_ref().map(|user| TreeId::Skill(user.clone(), self.agent.clone(), skill.clone()))
    }

    /// The id under which a skill is shown: the same whatever its users change in it.
    fn id_of(&self, skill: &SkillId) -> String {
        shelf_id(&Shelf { agent: self.agent.clone(), skill: skill.clone(), user: None })
    }
}

/// A caller's name for a version that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownName {
    /// The one in force.
    Current,
    /// The one with the highest number.
    Latest,
    /// By its content.
    Version(Version),
    /// By its number.
    Number(u64),
    /// By its time, in microseconds since 1970.
    Micros(i64),
}

/// A version as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownVersion {
    /// Its name.
    pub version: Version,
    /// The number of its first publication; for a user's own state, the next one.
    pub number: u64,
    /// The time of its first publication, in microseconds since 1970; no other version of the skill has the same.
    pub at_us: i64,
    /// Whether it is the user's own state of the skill.
    pub is_own: bool,
    /// Whether it is in force.
    pub is_current: bool,
    /// What it says of itself.
    pub said: VersionDescription,
}

/// A skill as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownSkill {
    /// Its id, 32 hexadecimal digits.
    pub id: String,
    /// Its name among the skills of the agent.
    pub skill: SkillId,
    /// Whether it belongs to those who look at it, or, for a user, is the application's.
    pub is_own: bool,
    /// The title that its publishers gave it last.
    pub title: Option<String>,
    /// When it was published first, in milliseconds since 1970.
    pub created_ms: i64,
    /// When it was published last.
    pub updated_ms: i64,
    /// The newest first.
    pub versions: Vec<ShownVersion>,
}

impl ShownSkill {
    /// The version that `name` names.
    #[must_use]
    pub fn named(&self, name: &ShownName) -> Option<&ShownVersion> {
        let is_it = |shown: &&ShownVersion| match name {
            ShownName::Current => shown.is_current,
            ShownName::Latest => true,
            ShownName::Version(version) => shown.version == *version,
            ShownName::Number(number) => shown.number == *number,
            ShownName::Micros(at_us) => shown.at_us == *at_us,
        };
        self.versions.iter().find(is_it)
    }

    /// The version in force.
    #[must_use]
    pub fn current(&self) -> Option<&ShownVersion> {
        self.named(&ShownName::Current)
    }
}

/// What became of a skill or version that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was removed.
    Now,
    /// It was gone already, as the last step of its removal one by one.
    Before,
}

impl Service {
    /// The skills that an audience has, the newest first.
    ///
    /// # Errors
    /// As [`storage::Skills::versions`]; [`storage::Error::TooManyEntries`] for more than a list may have.
    pub async fn shown_skills(&self, audience: Audience) -> Result<Vec<ShownSkill>> {
        let (store, job) = (self.store.clone(), Job::of(&audience.account()?, Weight::Scan));
        let most = self.file_limits.list_entries;
        self.work(job, move || {
            let ids = ids(&store, &audience)?;
            if ids.len() > most {
                return Err(storage::Error::TooManyEntries(most).into());
            }
            let mut skills = Vec::with_capacity(ids.len());
            for id in ids {
                match shown(&store, &audience, &id) {
                    // Removed meanwhile, or never more than staged.
                    Err(Error::Storage(storage::Error::NotFound(_))) => {}
                    skill => skills.push(skill?),
                }
            }
            skills.sort_by(|a, b| (b.created_ms, &b.skill).cmp(&(a.created_ms, &a.skill)));
            Ok(skills)
        })
        .await
    }

    /// The skill that `key` names: by the id under which it is shown, or its name.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`]; as [`storage::Skills::versions`].
    pub async fn shown_skill(&self, audience: Audience, key: String) -> Result<ShownSkill> {
        let (store, job) = (self.store.clone(), Job::of(&audience.account()?, Weight::Scan));
        self.work(job, move || shown(&store, &audience, &find(&store, &audience, &key)?)).await
    }

    /// Takes in the only skill of an archive: as a new one, or as the next version of the skill that `key` names. Returns it, and
    /// its version.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more skills than one, or another skill; [`storage::Error::AlreadyExists`] for a new one that is there
    /// already; as [`Service::upload`].
    pub async fn take_shown(
        &self,
        publisher: Publisher,
        audience: Audience,
        archive: Archive,
        key: Option<String>,
    ) -> Result<(ShownSkill, Version)> {
        let taking = match key {
            None => Taking::New,
            Some(key) => Taking::VersionOf(self.shown_skill(audience.clone(), key).await?.skill),
        };
        let (scope, account) = (audience.scope(), audience.account()?);
        let taken = self.take_one(publisher, scope, account, audience.agent.clone(), archive, taking).await?;
        let published = taken.published;
        let skill = self.shown_skill(audience, published.skill.into()).await?;
        Ok((skill, published.version))
    }

    /// Makes a version the one in force, for all users.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for one user; as [`Service::rollback`].
    pub async fn set_shown(
        &self,
        publisher: Publisher,
        audience: Audience,
        key: String,
        name: ShownName,
    ) -> Result<ShownSkill> {
        let skill = self.shown_skill(audience.clone(), key.clone()).await?;
        let version = skill.named(&name).ok_or_else(|| gone(&skill.skill))?;
        if audience.user.is_some() {
            return Err(Error::Unsupported(
                "what one user has is no choice among versions: ask for the skills of the agent".to_owned(),
            ));
        }
        let (account, version) = (audience.account()?, VersionName::from(&version.version));
        self.rollback(publisher, account, audience.agent.clone(), skill.skill, version).await?;
        self.shown_skill(audience, key).await
    }

    /// Removes a skill: for all users, or for one.
    ///
    /// # Errors
    /// As [`Service::remove_skill`].
    pub async fn remove_shown(&self, audience: Audience, key: String) -> Result<(String, Gone)> {
        let (store, job) = (self.store.clone(), Job::of(&audience.account()?, Weight::Scan));
        let (looked, asked) = (audience.clone(), key.clone());
        let found = self.work(job, move || {
            match find(&store, &looked, &asked).and_then(|skill| shown(&store, &looked, &skill)) {
                Ok(skill) => Ok((skill.skill, Gone::Now)),
                // Some callers remove all versions, with the last of which the skill goes, and then the skill.
                Err(Error::Storage(storage::Error::NotFound(_))) if looked.user.is_none() => {
                    let before = store.skills().logged_ids(&looked.agent)?;
                    let skill = named_in(before, &looked, &asked).ok_or_else(|| missing(&asked))?;
                    match store.skills().versions(&looked.agent, &skill) {
                        Err(storage::Error::NotFound(_)) => Ok((skill, Gone::Before)),
                        _ => Err(missing(&asked)),
                    }
                }
                Err(error) => Err(error),
            }
        });
        let (skill, gone) = found.await?;
        let id = audience.id_of(&skill);
        if gone == Gone::Now {
            let tree = TreeId::Skill(audience.account()?, audience.agent.clone(), skill);
            self.remove_skill(tree, audience.scope()).await?;
        }
        Ok((id, gone))
    }

    /// Removes a version: of all users, or a user's own state of the skill.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`]; [`Error::Unsupported`] for one that a user has of the application; as
    /// [`Service::remove_version`].
    pub async fn remove_shown_version(
        &self,
        audience: Audience,
        key: String,
        name: ShownName,
    ) -> Result<ShownVersion> {
        let skill = self.shown_skill(audience.clone(), key).await?;
        let version = skill.named(&name).ok_or_else(|| gone(&skill.skill))?.clone();
        match audience.tree(&skill.skill) {
            None => {
                let (account, name) = (audience.account()?, VersionName::from(&version.version));
                self.remove_version(&account, audience.agent, skill.skill, name, false).await?;
            }
            Some(tree) if version.is_own => drop(self.reset(tree).await?),
            Some(_) => {
                return Err(Error::Unsupported(
                    "this version belongs to all users: ask for the skills of the agent".to_owned(),
                ));
            }
        }
        Ok(version)
    }

    /// Packs a version as a ZIP that is the same for the same version. Returns a spool of it and its size in bytes.
    ///
    /// # Errors
    /// As [`storage::Skills::pack_version`].
    pub async fn pack_shown(&self, audience: Audience, key: String, name: ShownName) -> Result<(Spool, u64)> {
        let skill = self.shown_skill(audience.clone(), key).await?;
        let version = skill.named(&name).ok_or_else(|| gone(&skill.skill))?.clone();
        let tree = TreeId::Skill(audience.account()?, audience.agent, skill.skill);
        if !version.is_own {
            return self.pack_version(tree, version.version, false).await;
        }
        let (store, job) = (self.store.clone(), Job::on(&tree, Weight::Long, Mode::LongRead));
        self.work(job, move || Ok(store.skills().pack_seen(&tree)?)).await
    }
}

/// The skills that an audience may have, by name.
fn ids(store: &Store, audience: &Audience) -> Result<Vec<SkillId>> {
    Ok(match &audience.user {
        None => store.skills().baseline_ids(&audience.agent)?,
        Some(user) => store.skills().ids(user, &audience.agent)?,
    })
}

fn find(store: &Store, audience: &Audience, key: &str) -> Result<SkillId> {
    named_in(ids(store, audience)?, audience, key).ok_or_else(|| missing(key))
}

/// The one of `ids` that `key` names.
fn named_in(ids: Vec<SkillId>, audience: &Audience, key: &str) -> Option<SkillId> {
    let id = key.strip_prefix("skill_");
    let by_id = ids.iter().find(|skill| id.is_some_and(|id| audience.id_of(skill) == id));
    by_id.or_else(|| ids.iter().find(|skill| skill.as_str() == key)).cloned()
}

fn missing(key: &str) -> Error {
    storage::Error::NotFound(key.chars().take(64).collect()).into()
}

fn gone(skill: &SkillId) -> Error {
    storage::Error::NotFound(format!("this version of {skill}")).into()
}

/// A skill with its versions, as an audience has it.
fn shown(store: &Store, audience: &Audience, skill: &SkillId) -> Result<ShownSkill> {
    let (skills, agent) = (store.skills(), &audience.agent);
    let published = skills.versions(agent, skill).map_err(Error::from);
    let published = published.and_then(|all| seen_versions(all, skill, audience.with_staged));
    let published = match published {
        Err(Error::Storage(storage::Error::NotFound(_))) => None,
        published => Some(published?),
    };
    let Some(tree) = audience.tree(skill) else {
        let published = published.filter(|published| published.current().is_some());
        let published = published.ok_or_else(|| missing(skill.as_str()))?;
        return together(store, audience, skill, Some(published), None);
    };
    store.files(tree.clone()).stat(&RelPath::root())?;
    let status = skills.status(&tree)?;
    let own = match status.status {
        Status::Unchanged => None,
        Status::Modified | Status::LocalOnly | Status::OutOfSync => {
            let (version, said) = skills.seen(&tree)?;
            let changed_ns = status.overlay_modified_ns.unwrap_or_default();
            Some((version, said, i64::try_from(changed_ns.div_euclid(1000)).unwrap_or_default()))
        }
    };
    together(store, audience, skill, published, own)
}

/// Puts together what is published of a skill, and a user's own state of it.
fn together(
    store: &Store,
    audience: &Audience,
    skill: &SkillId,
    published: Option<SkillVersions>,
    own: Option<(Version, VersionDescription, i64)>,
) -> Result<ShownSkill> {
    let SkillVersions { versions: kept, log } =
        published.unwrap_or(SkillVersions { versions: Vec::new(), log: Vec::new() });
    // Each publication has a later time than the one before, whatever the clock did.
    let mut last_us = i64::MIN;
    let firsts: Vec<(u64, i64, &Version)> = log
        .iter()
        .map(|publication| {
            last_us = last_us.saturating_add(1).max(publication.at_ms.saturating_mul(1000));
            (publication.number, last_us, &publication.version)
        })
        .collect();
    let title = kept.iter().find_map(|kept| kept.title.clone());
    let names: Vec<Version> = kept.iter().map(|kept| kept.version.clone()).collect();
    let described = store.skills().describe_versions(&audience.agent, skill, &names)?;
    let is_overlaid = own.is_some();
    let one = |(kept, said): (KeptVersion, Option<VersionDescription>)| {
        let (number, at_us, _) = *firsts.iter().find(|(.., version)| **version == kept.version)?;
        let is_current = kept.state == VersionState::Current && !is_overlaid;
        Some(ShownVersion { version: kept.version, number, at_us, is_own: false, is_current, said: said? })
    };
    let mut versions: Vec<ShownVersion> = kept.into_iter().zip(described).filter_map(one).collect();
    versions.sort_unstable_by_key(|shown| std::cmp::Reverse(shown.number));
    let last_number = log.last().map_or(0, |last| last.number);
    let created_ms = log.first().map(|first| first.at_ms);
    let updated_ms = log.last().map(|last| last.at_ms);
    let own_ms = own.as_ref().map(|(.., at_us)| at_us.div_euclid(1000));
    if let Some((version, said, changed_us)) = own {
        // Its own time, which no other version has: what the application publishes later does not move it.
        let is_taken = |at_us: &i64| firsts.iter().any(|(_, taken, _)| taken == at_us);
        let at_us = (changed_us..).find(|at_us| !is_taken(at_us)).unwrap_or(changed_us);
        let (number, is_own, is_current) = (last_number + 1, true, true);
        versions.insert(0, ShownVersion { version, number, at_us, is_own, is_current, said });
    }
    if versions.is_empty() {
        return Err(missing(skill.as_str()));
    }
    Ok(ShownSkill {
        id: audience.id_of(skill),
        skill: skill.clone(),
        is_own: audience.user.is_none() || is_overlaid,
        title,
        created_ms: created_ms.or(own_ms).unwrap_or_default(),
        updated_ms: own_ms.or(updated_ms).unwrap_or_default(),
        versions,
    })
}

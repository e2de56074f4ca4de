//! Skills as registries of other vendors show them: one list, each skill with its versions, for all users of an agent or as one
//! user sees them. Such registries know no layers; here is what theirs mean in ours.

mod look;

use policy::{AgentId, Scope, SkillId, TreeId, UserId};
use storage::{Shelf, Spool, Store, Version, VersionDescription, VersionName};

pub(super) use self::look::shown;
use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use super::upload::{Archive, Taking};
use super::versions::Publisher;
use crate::registry::shelf_id;

/// What the id of a skill begins with, as clients of other vendors' registries have it.
pub const ID_PREFIX: &str = "skill_";
/// What the accounts of agents begin with; digits of the agent's id follow.
const AGENT_ACCOUNT: &str = "agent-";

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

    /// The user for whose account work is done. Work on skills of all users of an agent has an account of the agent, so that
    /// those who look after one agent take no places from those of another.
    ///
    /// # Errors
    /// [`Error::Id`], never.
    pub fn account(&self) -> Result<UserId> {
        let of_agent = || {
            let digits = blake3::hash(self.agent.as_str().as_bytes()).to_hex();
            Ok(UserId::parse(&format!("{AGENT_ACCOUNT}{}", digits.get(..32).unwrap_or_default()))?)
        };
        self.user.clone().map_or_else(of_agent, Ok)
    }

    fn tree(&self, skill: &SkillId) -> Option<TreeId> {
        self.user.as_ref().map(|user| TreeId::Skill(user.clone(), self.agent.clone(), skill.clone()))
    }

    /// The id under which a skill is shown. It does not depend on what is in the skill.
    pub(super) fn id_of(&self, skill: &SkillId) -> String {
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
    /// [`storage::Error::NotFound`]; [`Error::Denied`] for one that a user has of the application; [`Error::Invalid`] for the
    /// version in force while there are others; as [`Service::remove_version`].
    pub async fn remove_shown_version(
        &self,
        audience: Audience,
        key: String,
        name: ShownName,
    ) -> Result<ShownVersion> {
        let skill = self.shown_skill(audience.clone(), key).await?;
        let version = skill.named(&name).ok_or_else(|| gone(&skill.skill))?.clone();
        match audience.tree(&skill.skill) {
            None if version.is_current && skill.versions.len() > 1 => {
                return Err(Error::Invalid(
                    "the version in force goes last: remove the others first".to_owned(),
                ));
            }
            None => {
                let (account, name) = (audience.account()?, VersionName::from(&version.version));
                self.remove_version(&account, audience.agent, skill.skill, name, false).await?;
            }
            Some(tree) if version.is_own => drop(self.reset(tree).await?),
            Some(_) => {
                return Err(Error::Denied(
                    "this version belongs to all users of the agent: it is removed below the agent's base",
                ));
            }
        }
        Ok(version)
    }

    /// Packs a version as a ZIP that is the same for the same version. Returns the name of the skill, a spool of the ZIP and its
    /// size in bytes.
    ///
    /// # Errors
    /// As [`storage::Skills::pack_version`].
    pub async fn pack_shown(
        &self,
        audience: Audience,
        key: String,
        name: ShownName,
    ) -> Result<(SkillId, (Spool, u64))> {
        let skill = self.shown_skill(audience.clone(), key).await?;
        let version = skill.named(&name).ok_or_else(|| gone(&skill.skill))?.clone();
        let skill = skill.skill;
        let tree = TreeId::Skill(audience.account()?, audience.agent, skill.clone());
        let packed = if version.is_own {
            let (store, job) = (self.store.clone(), Job::on(&tree, Weight::Long, Mode::LongRead));
            self.work(job, move || Ok(store.skills().pack_seen(&tree)?)).await?
        } else {
            self.pack_version(tree, version.version, false).await?
        };
        Ok((skill, packed))
    }
}

/// The skills that an audience may have, by name.
pub(super) fn ids(store: &Store, audience: &Audience) -> Result<Vec<SkillId>> {
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
    let id = key.strip_prefix(ID_PREFIX);
    let by_id = ids.iter().find(|skill| id.is_some_and(|id| audience.id_of(skill) == id));
    by_id.or_else(|| ids.iter().find(|skill| skill.as_str() == key)).cloned()
}

fn missing(key: &str) -> Error {
    storage::Error::NotFound(key.chars().take(64).collect()).into()
}

fn gone(skill: &SkillId) -> Error {
    storage::Error::NotFound(format!("this version of {skill}")).into()
}

//! A manager's operations on a skill for all users: look at its versions, go to one, publish a user's changes.
//!
//! [`retention`] says which versions stay, and removes one.

mod retention;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt;

use policy::skill_md::Metadata;
use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use crate::core::usage::Flight;
use crate::error::{Error, Result};
use crate::layers::copy_merged::{copy_version, taken_by_copy};
use crate::layers::sharing::Predecessor;
use crate::layers::stack::{Found, Layers};
use crate::layout;
use crate::skills::Skills;
use crate::skills::list::describe;
use crate::skills::publish::{Over, Promoting, Publication, PublishOptions};
use crate::skills::status::Status;
use crate::skills::version_log::{There, VersionLog};
use crate::version::{self, Version};

pub use self::retention::{PINS_MAX, RemovedVersion};

/// A caller's name for a version of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionName {
    /// By its content.
    Version(Version),
    /// By the number of one of its publications.
    Number(u64),
}

impl VersionName {
    /// Reads 32 hexadecimal digits, or a number from 1 on.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(version) = Version::parse(text) {
            return Some(Self::Version(version));
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        is_number.then(|| text.parse().ok().map(Self::Number)).flatten()
    }
}

impl From<&Version> for VersionName {
    fn from(version: &Version) -> Self {
        Self::Version(version.clone())
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => version.fmt(formatter),
            Self::Number(number) => number.fmt(formatter),
        }
    }
}

/// What a version is to the users of a skill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// All users have it.
    Current,
    /// It was current before.
    Kept,
    /// It was published without taking the place of the current one.
    Staged,
}

/// A version of a skill that is there. Its facts are those of its last publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// Its name.
    pub version: Version,
    /// The number of its last publication.
    pub number: u64,
    /// What it is to the users.
    pub state: VersionState,
    /// Whether it stays until it is unpinned or removed.
    pub is_pinned: bool,
    /// Who published it; `None` for a tree that was put there by hand.
    pub by: Option<String>,
    /// When it was published, in milliseconds since 1970.
    pub at_ms: i64,
    /// Its title.
    pub title: Option<String>,
    /// Its publisher's message.
    pub message: Option<String>,
    /// Regular files.
    pub files: usize,
    /// Bytes in them.
    pub bytes: u64,
    /// When another took its place, in nanoseconds since 1970; `None` for one that is current, or never was.
    pub replaced_ns: Option<i128>,
}

/// A publication of a skill, whether or not its version is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedPublication {
    /// Its number.
    pub number: u64,
    /// What was published.
    pub version: Version,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
}

/// The versions of a skill that are there, and the publications that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillVersions {
    /// Each version once, the one that was published last first.
    pub versions: Vec<KeptVersion>,
    /// The oldest first.
    pub log: Vec<LoggedPublication>,
}

impl SkillVersions {
    /// The version that `name` names, if it is there.
    #[must_use]
    pub fn named(&self, name: &VersionName) -> Option<&KeptVersion> {
        let version = match name {
            VersionName::Version(version) => version,
            VersionName::Number(number) => {
                &self.log.iter().find(|publication| publication.number == *number)?.version
            }
        };
        self.versions.iter().find(|kept| kept.version == *version)
    }

    /// The current version.
    #[must_use]
    pub fn current(&self) -> Option<&KeptVersion> {
        self.versions.iter().find(|kept| kept.state == VersionState::Current)
    }
}

/// What a version says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionDescription {
    /// Its display name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// A name for programs that take `a-z`, `0-9` and `-` alone: `slug` below the front matter's `metadata`, unchecked.
    pub slug: Option<String>,
}

impl VersionDescription {
    pub(crate) fn of(mut said: Metadata) -> Self {
        let slug = said.metadata.remove("slug");
        Self { name: said.name, description: said.description, slug }
    }
}

impl Skills {
    /// The versions of a skill of an application that are there: the current one, former ones, and those that are staged.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none.
    pub fn versions(&self, agent: &AgentId, skill: &SkillId) -> Result<SkillVersions> {
        let _held = self.store.locks().read_baseline(agent, skill);
        let there = self.there(agent, skill)?;
        let log = self.version_log(agent, skill, &there)?;
        self.listed(agent, skill, &there, &log)
    }

    /// What versions of a skill say of themselves; `None` for one that is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn describe_versions(
        &self,
        agent: &AgentId,
        skill: &SkillId,
        versions: &[Version],
    ) -> Result<Vec<Option<VersionDescription>>> {
        let _held = self.store.locks().read_baseline(agent, skill);
        let described = versions.iter().map(|version| {
            let Some(dir) = self.store.version_dir(agent, skill, version)? else { return Ok(None) };
            let (said, _) = describe(&Layers { upper: None, lower: Some(dir) }, skill)?;
            Ok(Some(VersionDescription::of(said)))
        });
        described.collect()
    }

    fn listed(
        &self,
        agent: &AgentId,
        skill: &SkillId,
        there: &There,
        log: &VersionLog,
    ) -> Result<SkillVersions> {
        let newest = log.newest();
        let pins = self.pins(agent, skill)?;
        let listed = |version: &Version, replaced_ns: Option<i128>| {
            let entry = newest.get(version)?;
            let state = match replaced_ns {
                None => VersionState::Current,
                Some(_) if entry.staged => VersionState::Staged,
                Some(_) => VersionState::Kept,
            };
            Some(KeptVersion {
                version: version.clone(),
                number: entry.number,
                state,
                is_pinned: pins.contains(version),
                by: entry.by.clone(),
                at_ms: entry.at_ms,
                title: entry.title.clone(),
                message: entry.message.clone(),
                files: entry.files,
                bytes: entry.bytes,
                replaced_ns: replaced_ns.filter(|_| state == VersionState::Kept),
            })
        };
        let mut versions: Vec<KeptVersion> = Vec::new();
        versions.extend(there.current.as_ref().and_then(|(version, _)| listed(version, None)));
        let former = there.former.iter().filter(|former| !there.is_current(&former.version));
        versions.extend(former.filter_map(|former| listed(&former.version, Some(former.changed_ns))));
        if versions.is_empty() {
            return Err(Error::NotFound(skill.to_string()));
        }
        versions.sort_unstable_by_key(|kept| std::cmp::Reverse(kept.number));
        let log = log.entries().iter().map(|entry| LoggedPublication {
            number: entry.number,
            version: entry.version.clone(),
            at_ms: entry.at_ms,
        });
        Ok(SkillVersions { versions, log: log.collect() })
    }

    /// Makes a former or staged version the current one. The one that it takes the place of is kept.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the version is not there; those of [`Skills::publish`].
    pub fn rollback(
        &self,
        options: &PublishOptions<'_>,
        user: &UserId,
        agent: &AgentId,
        skill: &SkillId,
        wanted: &VersionName,
    ) -> Result<Publication> {
        let gone = || Error::NotFound(format!("{skill} {wanted}"));
        let wanted = match self.versions(agent, skill) {
            Err(Error::NotFound(_)) => return Err(gone()),
            versions => versions?.named(wanted).ok_or_else(gone)?.version.clone(),
        };
        let skills = std::slice::from_ref(skill);
        self.publish_with(options, Scope::Baseline, user, agent, skills, &mut |_, into| {
            let former = self.store.version_dir(agent, skill, &wanted)?.ok_or_else(gone)?;
            let former = Layers { upper: None, lower: Some(former) };
            let taken = taken_by_copy(&former, None, self.store.options().files.tree_entries)?;
            self.store.admit_space_for(taken.all.bytes)?;
            copy_version(&former, into)?;
            // A publication meanwhile may have had it removed while it was read.
            let contents = version::contents(into)?;
            if contents.version == wanted { Ok(Some(contents)) } else { Err(gone()) }
        })
    }

    /// The current version of a skill, for the next one to share its files; `None` without one, or if it may share none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn predecessor(&self, agent: &AgentId, skill: &SkillId) -> Result<Option<Predecessor>> {
        self.store.baseline_dir(agent, skill)?.map_or(Ok(None), Predecessor::new)
    }

    /// Publishes what a user sees of a skill as the application's next version.
    ///
    /// The user's changes now belong to all users and are dropped from the overlay: at once, or when the last command
    /// in them has ended, but for what was changed since. With `force`, what the application changed since the user
    /// began is overwritten.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Conflict`] when the user changed nothing, or both
    /// the user and the application changed the same, or another version was published meanwhile, and `force` is not set,
    /// or a command is still in what the user promoted before; those of [`Skills::publish`].
    pub fn promote(&self, options: &PublishOptions<'_>, id: &TreeId, force: bool) -> Result<Publication> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
        {
            let _alone = self.store.locks().write(id);
            if self.store.close_unless_used(id)? && self.store.promotion_of(id)?.is_some() {
                return Err(Error::Conflict(format!(
                    "a command is in what was promoted of `{skill}` before: promote again when it has ended"
                )));
            }
        }
        // Conflicts are looked for with this version, before it is known that no other one takes its place meanwhile.
        let current = self.store.baseline_version(agent, skill)?;
        let merged_with = Cell::new(None);
        let over = Over {
            options,
            expected: (!force).then_some(&current),
            promoting: Some(Promoting { id, merged_with: &merged_with }),
        };
        let skills = std::slice::from_ref(skill);
        self.publish_over(&over, Scope::Baseline, user, agent, skills, &mut |_, into| {
                let _held = self.store.locks().read(id);
                let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
                let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
                    return Err(Error::NotFound(skill.to_string()));
                };
                match self.status_held(id)?.status {
                    Status::OutOfSync if !force => {
                        return Err(Error::Conflict(format!(
                            "the application changed what the user changed in `{skill}`: pull first, or promote with `force`"
                        )));
                    }
                    Status::Unchanged => {
                        return Err(Error::Conflict(format!("the user changed nothing in `{skill}`")));
                    }
                    Status::OutOfSync | Status::Modified | Status::LocalOnly => {}
                }
                let _flight = self.admit_promotion(id, skill, &layers)?;
                copy_version(&layers, into)?;
                merged_with.set(self.store.baseline_version(agent, skill)?);
                Ok(None)
            })
    }

    /// Refuses to copy what a user sees of a skill when the user's own part of it, every name by itself, is more than a
    /// tree may take, or than the user may have on the way: a copy shares nothing.
    fn admit_promotion(&self, id: &TreeId, skill: &SkillId, from: &Layers) -> Result<Flight> {
        let taken = taken_by_copy(from, None, self.store.options().files.tree_entries)?;
        let (own, limits) = (taken.of_upper, self.store.limits_of(id));
        let [of_bytes, of_files] = self.store.settings_of(id);
        let quota = |setting, unit, limit, needs: u64| {
            let tree = format!("what the user changed in `{skill}`, every name by itself,");
            Err(Error::Quota { tree, setting, unit, used: 0, limit, needs })
        };
        if own.bytes > limits.bytes {
            return quota(of_bytes, "bytes", limits.bytes, own.bytes);
        }
        if own.files > limits.files {
            return quota(of_files, "files", limits.files, own.files);
        }
        self.store.admit_space_for(taken.all.bytes)?;
        let mut flight = self.store.flight(id.user());
        flight.take(own.bytes)?;
        Ok(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_by_its_digits_or_by_a_number() {
        let digits = "0123456789abcdef0123456789abcdef";
        let version = Version::parse(digits).unwrap();
        assert_eq!(VersionName::parse(digits), Some(VersionName::Version(version)));
        assert_eq!(VersionName::parse("12"), Some(VersionName::Number(12)));
        let decimal = "1".repeat(32);
        assert!(matches!(VersionName::parse(&decimal), Some(VersionName::Version(_))));
        for wrong in ["", "0", "01", "-1", "+1", "1.0", "latest", "ABCDEF", &"9".repeat(30)] {
            assert_eq!(VersionName::parse(wrong), None, "{wrong}");
        }
    }
}

//! [`Destination`]: where a step of a transaction may lead at all.
//!
//! A record says what is put in place in these words, not by a path: even a forged record could name no other place.

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::layout;
use crate::version::Version;

/// A place that a transaction puts something at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Destination {
    /// The current version of a baseline skill. The former one is kept.
    Baseline {
        /// Whose baseline.
        agent: AgentId,
        /// Which skill.
        skill: SkillId,
    },
    /// A version of a baseline skill that is not to be the current one yet.
    Version {
        /// Whose baseline.
        agent: AgentId,
        /// Which skill.
        skill: SkillId,
        /// Which version.
        version: Version,
    },
    /// An entry of a user's overlay: a skill, or something in one.
    Overlay {
        /// Whose overlay.
        user: UserId,
        /// With which agent.
        agent: AgentId,
        /// The entry; its first segment is the skill.
        path: RelPath,
    },
    /// The record of what an overlay began with.
    Base {
        /// Whose overlay.
        user: UserId,
        /// With which agent.
        agent: AgentId,
        /// Of which skill.
        skill: SkillId,
    },
}

impl Destination {
    /// The skill `id` as a whole in its user's overlay; `None` for a workspace.
    pub(crate) fn overlay(id: &TreeId) -> Result<Self> {
        let TreeId::Skill(user, agent, skill) = id else { return Err(elsewhere(&id.sandbox_path())) };
        Ok(Self::Overlay { user: user.clone(), agent: agent.clone(), path: RelPath::parse(skill.as_str())? })
    }

    /// The record of what the overlay of `id` began with.
    pub(crate) fn base(id: &TreeId) -> Result<Self> {
        let TreeId::Skill(user, agent, skill) = id else { return Err(elsewhere(&id.sandbox_path())) };
        Ok(Self::Base { user: user.clone(), agent: agent.clone(), skill: skill.clone() })
    }

    /// The entry of the overlay of `id` that lies at `place`, from the store's root.
    ///
    /// # Errors
    /// [`Error::Escape`] for a place outside the skill.
    pub(crate) fn in_overlay(id: &TreeId, place: &RelPath) -> Result<Self> {
        let TreeId::Skill(user, agent, skill) = id else { return Err(elsewhere(place.as_str())) };
        let above = layout::overlay(user, agent)?;
        let (Some(path), true) = (
            place.as_str().strip_prefix(above.as_str()).and_then(|path| path.strip_prefix('/')),
            place.starts_with(&above.join(skill.as_str())?),
        ) else {
            return Err(elsewhere(place.as_str()));
        };
        Ok(Self::Overlay { user: user.clone(), agent: agent.clone(), path: RelPath::parse(path)? })
    }

    /// The directory that receives it, from the store's root, and its name there.
    pub(crate) fn place(&self) -> Result<(RelPath, String)> {
        match self {
            Self::Baseline { agent, skill } => Ok((layout::baseline(agent)?, skill.to_string())),
            Self::Version { agent, skill, version } => {
                Ok((layout::versions(agent, skill)?, version.to_string()))
            }
            Self::Base { user, agent, skill } => Ok((layout::bases(agent, skill)?, user.to_string())),
            Self::Overlay { user, agent, path } => {
                let overlay = layout::overlay(user, agent)?;
                let whole = RelPath::parse(&format!("{overlay}/{path}"))?;
                match (whole.parent(), whole.file_name()) {
                    (Some(into), Some(name)) => Ok((into, name.to_owned())),
                    _ => Err(elsewhere(path.as_str())),
                }
            }
        }
    }

    /// The directory, from the store's root, that keeps what was there before; `None` when it is not kept.
    pub(crate) fn keeps_replaced_in(&self) -> Result<Option<RelPath>> {
        match self {
            Self::Baseline { agent, skill } => layout::versions(agent, skill).map(Some),
            Self::Version { .. } | Self::Overlay { .. } | Self::Base { .. } => Ok(None),
        }
    }

    /// The tree that what was there before counts for; `None` for what belongs to no user.
    ///
    /// # Errors
    /// [`Error::Escape`] for an overlay entry that is in no skill.
    pub(crate) fn owner(&self) -> Result<Option<TreeId>> {
        match self {
            Self::Baseline { .. } | Self::Version { .. } => Ok(None),
            Self::Base { user, agent, skill } => {
                Ok(Some(TreeId::Skill(user.clone(), agent.clone(), skill.clone())))
            }
            Self::Overlay { user, agent, path } => {
                let skill = path.segments().next().and_then(|name| SkillId::parse(name).ok());
                let skill = skill.ok_or_else(|| elsewhere(path.as_str()))?;
                Ok(Some(TreeId::Skill(user.clone(), agent.clone(), skill)))
            }
        }
    }
}

fn elsewhere(place: &str) -> Error {
    Error::Escape(place.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Destination> {
        let read: Destination = serde_json::from_str(text).ok()?;
        read.place().and_then(|_| read.owner()).ok()?;
        Some(read)
    }

    #[test]
    fn every_place_a_record_can_name_is_one_that_a_change_has() {
        for (text, into, name, keep) in [
            (
                r#"{"baseline": {"agent": "a", "skill": "s"}}"#,
                "skill/baseline/a",
                "s",
                Some(".filesecbox/versions/a/s"),
            ),
            (
                r#"{"overlay": {"user": "u", "agent": "a", "path": "s/d/f"}}"#,
                "skill/overlay/u/a/s/d",
                "f",
                None,
            ),
            (r#"{"overlay": {"user": "u", "agent": "a", "path": "s"}}"#, "skill/overlay/u/a", "s", None),
            (
                r#"{"version": {"agent": "a", "skill": "s", "version": "0123456789abcdef0123456789abcdef"}}"#,
                ".filesecbox/versions/a/s",
                "0123456789abcdef0123456789abcdef",
                None,
            ),
            (r#"{"base": {"user": "u", "agent": "a", "skill": "s"}}"#, ".filesecbox/bases/a/s", "u", None),
        ] {
            let destination = read(text).unwrap();
            let place = destination.place().unwrap();
            assert_eq!((place.0.as_str(), place.1.as_str()), (into, name));
            let kept = destination.keeps_replaced_in().unwrap();
            assert_eq!(kept.as_ref().map(RelPath::as_str), keep);
        }
    }

    #[test]
    fn no_place_outside_those_can_be_spelled() {
        for text in [
            r#"{"overlay": {"user": "u", "agent": "a", "path": "../../../keys/signing"}}"#,
            r#"{"overlay": {"user": "..", "agent": "a", "path": "s"}}"#,
            r#"{"overlay": {"user": "u", "agent": "a", "path": "/etc/passwd"}}"#,
            r#"{"overlay": {"user": "u", "agent": "a", "path": ".s/f"}}"#,
            r#"{"overlay": {"user": "u", "agent": "a", "path": ""}}"#,
            r#"{"baseline": {"agent": "a/b", "skill": "s"}}"#,
            r#"{"base": {"user": "u/../../keys", "agent": "a", "skill": "s"}}"#,
            r#"{"version": {"agent": "a", "skill": "s", "version": "../../../keys/signing/0123456789ab"}}"#,
            r#"{"keys": {"name": "signing"}}"#,
            r#"{"into": ".filesecbox/keys", "name": "signing"}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_place_in_another_users_overlay_is_none_of_this_tree() {
        let id = |user: &str| {
            TreeId::Skill(
                UserId::parse(user).unwrap(),
                AgentId::parse("a").unwrap(),
                SkillId::parse("s").unwrap(),
            )
        };
        let place = RelPath::parse("skill/overlay/u/a/s/d").unwrap();
        assert!(Destination::in_overlay(&id("u"), &place).is_ok());
        assert!(Destination::in_overlay(&id("v"), &place).is_err());
        let beside = RelPath::parse("skill/overlay/u/a/s2").unwrap();
        assert!(Destination::in_overlay(&id("u"), &beside).is_err());
    }
}

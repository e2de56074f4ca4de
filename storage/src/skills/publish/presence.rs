//! [`Presence`]: what a publication expects of the layer in which its skill takes its place.

use std::ffi::OsStr;

use policy::{SkillId, TreeId};

use crate::error::{Error, Result};
use crate::layers::stack::Layers;
use crate::layout;
use crate::skills::Skills;
use crate::skills::status::Status;

/// What a layer must have of a skill for a publication to take its place there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Whatever it has.
    #[default]
    Any,
    /// Nothing: the skill is new.
    Absent,
    /// The skill, which gets another version. To a user's layer belongs what the user sees of the baseline.
    Present,
}

impl Presence {
    /// Refuses to publish `skill` in a layer that has it, or not.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NotFound`].
    pub(super) fn check(self, skill: &SkillId, is_there: bool) -> Result<()> {
        match (self, is_there) {
            (Self::Absent, true) => Err(Error::AlreadyExists(skill.to_string())),
            (Self::Present, false) => Err(Error::NotFound(skill.to_string())),
            (Self::Any | Self::Absent | Self::Present, _) => Ok(()),
        }
    }
}

impl Skills {
    /// Refuses to publish for one user what `presence` excludes. The caller holds the tree alone.
    pub(super) fn check_seen(&self, presence: Presence, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let is_there = match presence {
            Presence::Any => return Ok(()),
            Presence::Absent => self.status_held(id)?.status != Status::Unchanged,
            Presence::Present => {
                let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
                let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
                layers.lookup(OsStr::new(skill.as_str()))?.is_some()
            }
        };
        presence.check(skill, is_there)
    }
}

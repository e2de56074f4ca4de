//! [`Question`]: which rows are asked for.

use policy::{AgentId, SkillId, UserId};
use storage::Shelf;

use super::shelf_id;

/// Which rows are asked for; every field narrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// With this id ([`shelf_id`]).
    pub id: Option<String>,
    /// Of this agent.
    pub agent: Option<AgentId>,
    /// Of skills with this id.
    pub skill: Option<SkillId>,
    /// The owners.
    pub owners: Owners,
    /// Behind this shelf in the order of the registry, whether or not it has a row.
    pub after: Option<Shelf>,
    /// At most so many.
    pub limit: usize,
}

/// The owners of the skills that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Rows of every user, and those for all users.
    All,
    /// Those for all users.
    Baseline,
    /// Those of users.
    Overlays,
    /// Those of one user.
    User(UserId),
    /// Those of one user, and those for all users.
    UserAndBaseline(UserId),
}

impl Question {
    /// Every row, at most `limit`.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self { id: None, agent: None, skill: None, owners: Owners::All, after: None, limit }
    }

    /// Tells whether the row of `shelf` is asked for.
    #[must_use]
    pub fn admits(&self, shelf: &Shelf) -> bool {
        self.id.as_ref().is_none_or(|id| *id == shelf_id(shelf))
            && self.agent.as_ref().is_none_or(|agent| *agent == shelf.agent)
            && self.skill.as_ref().is_none_or(|skill| *skill == shelf.skill)
            && self.after.as_ref().is_none_or(|after| *after < *shelf)
            && match (&self.owners, &shelf.user) {
                (Owners::All, _)
                | (Owners::Baseline | Owners::UserAndBaseline(_), None)
                | (Owners::Overlays, Some(_)) => true,
                (Owners::User(wanted) | Owners::UserAndBaseline(wanted), Some(user)) => wanted == user,
                (Owners::Baseline, Some(_)) | (Owners::Overlays | Owners::User(_), None) => false,
            }
    }
}

//! [`Steps`]: what the record of a patch says.

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use serde::{Deserialize, Serialize};

use super::Staged;

/// One change of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TreeStep {
    /// A file is put at a path; its number is its name in the staged directory.
    Put(usize, RelPath),
    /// A path is removed.
    Remove(RelPath),
}

/// The record of a patch: a tree and the steps to be done to it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Steps {
    staged: Staged,
    user: UserId,
    agent: AgentId,
    skill: Option<SkillId>,
    steps: Vec<TreeStep>,
}

impl Steps {
    /// `steps` in the tree `id`; the new files are in `staged`.
    pub(crate) fn new(staged: Staged, id: &TreeId, steps: Vec<TreeStep>) -> Self {
        let skill = match id {
            TreeId::Skill(_, _, skill) => Some(skill.clone()),
            TreeId::Workspace(..) => None,
        };
        Self { staged, user: id.user().clone(), agent: id.agent().clone(), skill, steps }
    }

    /// The steps to be done, in this order.
    pub(crate) fn steps(&self) -> &[TreeStep] {
        &self.steps
    }

    /// The staged directory that has the new files.
    pub(crate) fn staged(&self) -> &Staged {
        &self.staged
    }

    /// The tree.
    pub(crate) fn tree(&self) -> TreeId {
        let (user, agent) = (self.user.clone(), self.agent.clone());
        match &self.skill {
            Some(skill) => TreeId::Skill(user, agent, skill.clone()),
            None => TreeId::Workspace(user, agent),
        }
    }
}

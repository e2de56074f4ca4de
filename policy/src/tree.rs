//! [`TreeId`]: which tree a request means, and how paths in it may be written.

use crate::{AgentId, PathError, RelPath, SkillId, UserId};

/// Where a workspace stands inside a run.
pub const WORKSPACE: &str = "/workspace";
/// Where skills stand inside a run.
pub const SKILLS: &str = "/workspace/skills";

/// The tree that file operations and commands act on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TreeId {
    /// The merged view of one skill, as one user sees it.
    Skill(UserId, AgentId, SkillId),
    /// One user's workspace with one agent.
    Workspace(UserId, AgentId),
}

impl TreeId {
    /// The user whose tree it is.
    #[must_use]
    pub fn user(&self) -> &UserId {
        match self {
            Self::Skill(user, ..) | Self::Workspace(user, _) => user,
        }
    }

    /// The agent it belongs to.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Skill(_, agent, _) | Self::Workspace(_, agent) => agent,
        }
    }

    /// The absolute path that agents use for this tree: `/workspace` or `/workspace/skills/<id>`.
    #[must_use]
    pub fn sandbox_path(&self) -> String {
        match self {
            Self::Skill(_, _, skill) => format!("{SKILLS}/{skill}"),
            Self::Workspace(..) => WORKSPACE.to_owned(),
        }
    }

    /// Reads a path as a client wrote it: relative to the tree, or absolute in sandbox form.
    ///
    /// # Errors
    /// [`PathError::Absolute`] for an absolute path outside this tree, else as [`RelPath::parse`].
    pub fn resolve(&self, text: &str) -> Result<RelPath, PathError> {
        if !text.starts_with('/') {
            return RelPath::parse(text);
        }
        let root = self.sandbox_path();
        match text.strip_prefix(&root) {
            Some("" | "/") => Ok(RelPath::root()),
            Some(rest) => match rest.strip_prefix('/') {
                Some(relative) => RelPath::parse(relative),
                None => Err(PathError::Absolute(text.to_owned())),
            },
            None => Err(PathError::Absolute(text.to_owned())),
        }
    }
}

/// The user and agent of a workspace. Sorted by user, then by agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceId {
    /// The owner.
    pub user: UserId,
    /// With which agent.
    pub agent: AgentId,
}

impl WorkspaceId {
    /// The workspace whose user and agent a tree has.
    #[must_use]
    pub fn of(tree: &TreeId) -> Self {
        Self { user: tree.user().clone(), agent: tree.agent().clone() }
    }

    /// Its tree.
    #[must_use]
    pub fn workspace(&self) -> TreeId {
        TreeId::Workspace(self.user.clone(), self.agent.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill() -> TreeId {
        TreeId::Skill(
            UserId::parse("u").unwrap(),
            AgentId::parse("a").unwrap(),
            SkillId::parse("数据").unwrap(),
        )
    }

    #[test]
    fn relative_and_sandbox_form_mean_the_same_file() {
        let expected = RelPath::parse("x/y.md").unwrap();
        assert_eq!(skill().resolve("x/y.md"), Ok(expected.clone()));
        assert_eq!(skill().resolve("/workspace/skills/数据/x/y.md"), Ok(expected));
        assert_eq!(skill().resolve("/workspace/skills/数据"), Ok(RelPath::root()));
    }

    #[test]
    fn another_tree_is_an_escape_even_when_its_name_begins_alike() {
        for text in
            ["/workspace/skills/数据2/x", "/workspace/x", "/etc/passwd", "/workspace/skills/数据/../x"]
        {
            assert!(skill().resolve(text).unwrap_err().is_escape(), "{text}");
        }
    }
}

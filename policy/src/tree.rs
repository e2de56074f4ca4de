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

    /// The skill whose place `path` is in a workspace, and the path from that skill's root: `skills/<id>/…` leads there
    /// inside a run that sees the skill. `None` for other paths, and in a skill.
    #[must_use]
    pub fn skill_at(&self, path: &RelPath) -> Option<(Self, RelPath)> {
        let Self::Workspace(user, agent) = self else { return None };
        let below = path.as_str().strip_prefix("skills/")?;
        let (name, rest) = below.split_once('/').unwrap_or((below, ""));
        let skill = SkillId::parse(name).ok()?;
        let rest = if rest.is_empty() { RelPath::root() } else { RelPath::parse(rest).ok()? };
        Some((Self::Skill(user.clone(), agent.clone(), skill), rest))
    }

    /// Reads a path as a client wrote it: relative to the tree, or absolute in sandbox form.
    ///
    /// What people and models add to a path is left out: `./` before it and one `/` after it. `.` is the tree itself.
    ///
    /// # Errors
    /// [`PathError::Absolute`] for an absolute path outside this tree, else as [`RelPath::parse`].
    pub fn resolve(&self, text: &str) -> Result<RelPath, PathError> {
        if !text.starts_with('/') {
            return tidied(text);
        }
        let below = text.strip_prefix(&self.sandbox_path());
        match below.map(|below| (below, below.strip_prefix('/'))) {
            Some(("" | "/", _)) => Ok(RelPath::root()),
            Some((_, Some(relative))) => tidied(relative),
            Some((_, None)) | None => Err(PathError::Absolute(text.to_owned())),
        }
    }
}

/// Reads a relative path without the `./` before it and the `/` after it.
fn tidied(text: &str) -> Result<RelPath, PathError> {
    let mut rest = text.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(text);
    while let Some(shorter) = rest.strip_prefix("./") {
        rest = shorter;
    }
    match rest {
        "." => Ok(RelPath::root()),
        rest => RelPath::parse(rest),
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
    fn what_people_add_to_a_path_is_left_out_and_nothing_else() {
        let path = |text| RelPath::parse(text).unwrap();
        for text in ["./x/y", "x/y/", "././x/y/", "/workspace/skills/数据/./x/y/"] {
            assert_eq!(skill().resolve(text), Ok(path("x/y")), "{text}");
        }
        for text in [".", "./", "./.", "/workspace/skills/数据/", "/workspace/skills/数据/."] {
            assert_eq!(skill().resolve(text), Ok(RelPath::root()), "{text}");
        }
        for text in ["./..", "../", "./../x", ".//etc/passwd", "x/../y/", "/workspace/skills/数据/./..", "/"]
        {
            assert!(skill().resolve(text).unwrap_err().is_escape(), "{text}");
        }
        for text in ["x/./y", "x//y", "x//", "x/.", ""] {
            let error = skill().resolve(text).unwrap_err();
            assert!(matches!(error, PathError::EmptySegment(_) | PathError::Empty), "{text}: {error}");
        }
    }

    #[test]
    fn a_skill_has_a_place_in_the_workspace_and_in_no_other_skill() {
        let workspace = TreeId::Workspace(UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let path = |text| RelPath::parse(text).unwrap();
        assert_eq!(workspace.skill_at(&path("skills/数据/x/y")), Some((skill(), path("x/y"))));
        assert_eq!(workspace.skill_at(&path("skills/数据")), Some((skill(), RelPath::root())));
        for other in ["skills", "skill/数据/x", "skillset/x", "x/skills/数据/y", "skills/.hidden/x"] {
            assert_eq!(workspace.skill_at(&path(other)), None, "{other}");
        }
        assert_eq!(skill().skill_at(&path("skills/数据/x")), None);
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

//! [`StorePath`]: where a path of the sandbox is in the store.

use policy::{AgentId, RelPath, TreeId, UserId};
use sandbox::{Result, SandboxPath, TreePath};

use super::errors;

/// Something in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) tree: TreeId,
    /// Empty for the tree itself.
    pub(super) path: RelPath,
}

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StorePath {
    /// Something in a tree.
    InTree(At),
    /// The directory of all skills, which is no tree.
    Skills,
}

impl StorePath {
    /// Finds the place of `path`. With `skills`, those of the user are at `/workspace/skills/<id>`.
    pub(super) fn of(
        user: &UserId,
        agent: &AgentId,
        skills: bool,
        operation: &'static str,
        path: &SandboxPath,
    ) -> Result<Self> {
        let in_tree = |tree: TreeId, text: &str| {
            let parsed = if text.is_empty() { Ok(RelPath::root()) } else { RelPath::parse(text) };
            let path = parsed.map_err(|error| errors::at(operation, path, error.into()))?;
            Ok(Self::InTree(At { tree, path }))
        };
        let (user, agent) = (user.clone(), agent.clone());
        match TreePath::of(path, skills, operation)? {
            TreePath::Workspace(below) => in_tree(TreeId::Workspace(user, agent), below),
            TreePath::Skills => Ok(Self::Skills),
            TreePath::Skill(skill, below) => in_tree(TreeId::Skill(user, agent, skill), below),
        }
    }
}

impl At {
    /// Whether it is a workspace itself, which is there although nothing was written in it yet.
    pub(super) fn is_workspace(&self) -> bool {
        self.path.is_root() && matches!(self.tree, TreeId::Workspace(..))
    }
}

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;

    use super::*;

    fn place(skills: bool, path: &str) -> Result<StorePath> {
        let (user, agent) = (UserId::parse("爱丽").unwrap(), AgentId::parse("demo").unwrap());
        StorePath::of(&user, &agent, skills, "stat", &path.parse().unwrap())
    }

    fn at(skills: bool, path: &str) -> (bool, String) {
        match place(skills, path).unwrap() {
            StorePath::InTree(At { tree, path }) => (matches!(tree, TreeId::Skill(..)), String::from(path)),
            StorePath::Skills => panic!("the directory of skills"),
        }
    }

    #[test]
    fn skills_are_trees_where_they_are_wanted() {
        assert_eq!(at(true, "/workspace/skills/数据/a/b.md"), (true, "a/b.md".to_owned()));
        assert_eq!(at(false, "/workspace/skills/数据/b.md"), (false, "skills/数据/b.md".to_owned()));
        assert_eq!(at(true, "/workspace/skillset"), (false, "skillset".to_owned()));
        assert_eq!(at(true, "/workspace"), (false, String::new()));
        assert_eq!(place(true, "/workspace/skills").unwrap(), StorePath::Skills);
        assert_eq!(place(true, "/workspace/skills/.hidden").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_outside_is_denied() {
        for path in ["/", "/workspace-evil/x", "/etc/passwd"] {
            assert_eq!(place(true, path).unwrap_err().kind(), ErrorKind::PermissionDenied, "{path}");
        }
    }
}

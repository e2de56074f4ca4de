//! [`TreePath`]: which tree of a service a path stands in.

use policy::SkillId;

use crate::{Error, ErrorKind, Result, SandboxPath};

/// A path of the sandbox, as a tree of a service and a path in it, which is empty for the tree itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreePath<'path> {
    /// In the workspace.
    Workspace(&'path str),
    /// The directory of all skills, which is no tree.
    Skills,
    /// In a skill.
    Skill(SkillId, &'path str),
}

impl<'path> TreePath<'path> {
    /// Finds where `path` stands. With `skills`, those of the user are at `/workspace/skills/<id>`.
    ///
    /// # Errors
    /// Of `operation`: [`ErrorKind::PermissionDenied`] outside the workspace; [`ErrorKind::NotFound`] for what cannot be
    /// the name of a skill.
    pub fn of(path: &'path SandboxPath, skills: bool, operation: &'static str) -> Result<Self> {
        let below = path
            .below(&SandboxPath::workspace())
            .ok_or_else(|| Error::about(ErrorKind::PermissionDenied, operation, path))?;
        let in_skills =
            below.strip_prefix("skills").filter(|rest| skills && (rest.is_empty() || rest.starts_with('/')));
        let Some(rest) = in_skills else { return Ok(Self::Workspace(below)) };
        let Some(rest) = rest.strip_prefix('/') else { return Ok(Self::Skills) };
        let (skill, path_in_skill) = rest.split_once('/').unwrap_or((rest, ""));
        let skill = SkillId::parse(skill)
            .map_err(|error| Error::about(ErrorKind::NotFound, operation, path).because(error))?;
        Ok(Self::Skill(skill, path_in_skill))
    }
}

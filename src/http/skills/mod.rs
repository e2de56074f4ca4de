//! Routes about whole skills, one or a pair a file.

pub(super) mod catalog;
pub(super) mod diff;
pub(super) mod download;
pub(super) mod file_name;
pub(super) mod form;
pub(super) mod lint;
pub(super) mod list;
pub(super) mod promote;
pub(super) mod remove;
pub(super) mod reset;
pub(super) mod upload;
pub(super) mod version_download;
pub(super) mod versions;

use policy::{SkillId, TreeId};

use super::extract::SkillsRequest;
use crate::http::answer::problem::Problem;

/// The skill that the path names.
fn skill_of(request: &SkillsRequest) -> Result<(TreeId, SkillId), Problem> {
    let skill = request.skill.clone().ok_or_else(|| Problem::invalid("the path names no skill"))?;
    Ok((TreeId::Skill(request.user.clone(), request.agent.clone(), skill.clone()), skill))
}

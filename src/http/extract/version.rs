//! A request about a published version of a skill.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use policy::SkillId;
use storage::VersionName;

use super::skills::SkillsRequest;
use crate::http::App;
use crate::http::answer::problem::Problem;

/// A request about a published version of a skill, by a caller who may see the skill.
pub(in crate::http) struct VersionRequest {
    pub(in crate::http) skills: SkillsRequest,
    pub(in crate::http) skill: SkillId,
    pub(in crate::http) name: VersionName,
}

impl FromRequestParts<App> for VersionRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let skills = SkillsRequest::from_request_parts(parts, app).await?;
        // First: a caller who may not know of the skill is told nothing about its path.
        skills.check_read()?;
        let skill = skills.skill.clone().ok_or_else(|| Problem::invalid("the path names no skill"))?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params =
            params.map_err(|_| Problem::invalid("a segment of the path is not percent-encoded UTF-8"))?;
        let text = params.iter().find(|(name, _)| *name == "v").map_or("", |(_, value)| value);
        let name = VersionName::parse(text).ok_or_else(|| {
            Problem::invalid(
                "the path names no version: send one that `versions` lists, 32 hexadecimal digits or a number",
            )
        })?;
        Ok(Self { skills, skill, name })
    }
}

//! `GET /v1/skills/{u}/{a}/list`

use axum::extract::State;
use serde::Serialize;
use storage::{Changed, Layer, Skill, Status, Version};

use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::request::SkillsRequest;
use crate::http::time::rfc3339;

#[derive(Serialize)]
struct Listed {
    name: String,
    description: String,
    skill_id: String,
    layer: Layer,
    status: Status,
    version: Option<Version>,
    updated_at: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Changed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Changed files named per skill; `GET …/files?detail=true` names them all.
const CHANGES_MAX: usize = 100;

impl From<Skill> for Listed {
    fn from(skill: Skill) -> Self {
        let mut changes = skill.status.changes;
        changes.truncate(CHANGES_MAX);
        Self {
            name: skill.metadata.name,
            description: skill.metadata.description,
            skill_id: skill.id.into(),
            layer: skill.layer,
            status: skill.status.status,
            version: skill.version,
            updated_at: rfc3339(skill.modified_ns),
            changes,
            warnings: skill.metadata.warnings,
        }
    }
}

pub(in crate::http) async fn list(State(app): State<App>, request: SkillsRequest) -> Answer {
    request.check_read()?;
    let skills = app.service.skills(request.user, request.agent).await?;
    success(skills.into_iter().map(Listed::from).collect::<Vec<_>>())
}

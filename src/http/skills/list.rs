//! `GET /v1/skills/{u}/{a}/list?limit&cursor`

use axum::extract::State;
use serde::Serialize;
use storage::{Changed, Layer, Skill, Status, Version};

use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{PageQuery, Params, SkillsRequest};

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
/// About what a skill takes in an answer besides its description, in bytes.
const SKILL_BYTES: usize = 250;

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

pub(in crate::http) async fn list(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<PageQuery>,
) -> Answer {
    request.check_read()?;
    let skills = app.service.skills(request.user, request.agent).await?;
    let most = app.service.file_limits().list_entries;
    let bytes = skills.iter().map(|skill| SKILL_BYTES + skill.metadata.description.len()).sum();
    made(app.service.admission(), bytes, move || {
        let page = page::cut(skills, |skill| skill.id.as_str(), query.limit, query.cursor.as_deref(), most)?;
        success_with(page.elements.into_iter().map(Listed::from).collect::<Vec<_>>(), page.beside)
    })
    .await
}

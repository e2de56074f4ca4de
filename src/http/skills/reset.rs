//! `POST /v1/skills/{u}/{a}/{s}/reset`

use axum::extract::State;
use policy::Scope;
use serde::Serialize;

use super::skill_of;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{NoParams, SkillsRequest};

#[derive(Serialize)]
struct Beside {
    /// Whether the user had changed anything.
    changed: bool,
}

pub(in crate::http) async fn reset(State(app): State<App>, request: SkillsRequest, _: NoParams) -> Answer {
    request.check_change(Scope::Overlay)?;
    let (id, skill) = skill_of(&request)?;
    let changed = app.service.reset(id).await?;
    success_with(format!("Skill '{skill}' is as the baseline has it"), Beside { changed })
}

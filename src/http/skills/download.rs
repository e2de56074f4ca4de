//! `GET /v1/skills/{u}/{a}/{s}/download`

use axum::extract::State;

use super::skill_of;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::extract::{NoParams, SkillsRequest};
use crate::http::tree::archive::attached;

pub(in crate::http) async fn download(State(app): State<App>, request: SkillsRequest, _: NoParams) -> Answer {
    request.check_read()?;
    let (id, skill) = skill_of(&request)?;
    let reads = app.service.admission().reads_of(id.user());
    let packed = app.service.pack(id).await?;
    Ok(attached(packed, reads, "application/zip", &format!("{skill}.zip")))
}

//! `DELETE /v1/skills/{u}/{a}/{s}?scope`

use axum::extract::State;
use policy::Scope;
use serde::Deserialize;

use super::skill_of;
use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{Params, SkillsRequest, word};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    scope: Option<String>,
}

pub(in crate::http) async fn remove(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Query>,
) -> Answer {
    let scope: Scope = word(query.scope.as_deref())?;
    request.check_change(scope)?;
    let (id, skill) = skill_of(&request)?;
    app.service.remove_skill(id, scope).await?;
    success(format!("Skill '{skill}' removed from '{scope}'"))
}

//! `GET /v1/skills/{u}/{a}/{s}/versions` and `POST /v1/skills/{u}/{a}/{s}/rollback?version`

use axum::extract::State;
use policy::Scope;
use serde::{Deserialize, Serialize};
use storage::Version;

use super::skill_of;
use crate::http::App;
use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::{NoParams, Params, SkillsRequest};
use crate::http::problem::Problem;
use crate::http::time::rfc3339;

#[derive(Serialize)]
struct Kept {
    version: Version,
    current: bool,
    replaced_at: Option<String>,
}

pub(in crate::http) async fn list(State(app): State<App>, request: SkillsRequest, _: NoParams) -> Answer {
    request.check_read()?;
    let (_, skill) = skill_of(&request)?;
    let versions = app.service.versions(&request.user, request.agent, skill).await?;
    let versions = versions.into_iter().map(|kept| Kept {
        version: kept.version,
        current: kept.replaced_ns.is_none(),
        replaced_at: kept.replaced_ns.map(rfc3339),
    });
    success(versions.collect::<Vec<_>>())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    version: Option<String>,
}

#[derive(Serialize)]
struct Beside {
    version: Option<Version>,
    /// Whether another version was current before.
    changed: bool,
}

pub(in crate::http) async fn rollback(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Query>,
) -> Answer {
    request.check_change(Scope::Baseline)?;
    let (_, skill) = skill_of(&request)?;
    let version = query.version.as_deref().and_then(Version::parse).ok_or_else(|| {
        Problem::invalid(
            "`version` is missing or none: send one that `versions` lists, 32 hexadecimal digits",
        )
    })?;
    let done =
        app.service.rollback(request.subject, request.user, request.agent, skill.clone(), version).await?;
    let changed = done.as_ref().is_some_and(|published| !published.unchanged);
    let version = done.map(|published| published.version);
    success_with(format!("Skill '{skill}' is at the version asked for"), Beside { version, changed })
}

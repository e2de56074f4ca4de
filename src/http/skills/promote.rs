//! `POST /v1/skills/{u}/{a}/{s}/promote?force&title&message` and `POST /v1/skills/{u}/{a}/{s}/pull?prefer&dry_run`

use axum::extract::State;
use policy::Scope;
use serde::{Deserialize, Serialize};
use storage::{Prefer, Version};

use super::skill_of;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{Params, SkillsRequest};
use crate::ops::versions::Publisher;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Promote {
    #[serde(default)]
    force: bool,
    title: Option<String>,
    message: Option<String>,
}

#[derive(Serialize)]
struct Promoted {
    version: Option<Version>,
    number: Option<u64>,
    /// Whether the application had the skill before.
    replaced: bool,
}

pub(in crate::http) async fn promote(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Promote>,
) -> Answer {
    request.check_change(Scope::Baseline)?;
    let (id, skill) = skill_of(&request)?;
    let publisher = Publisher::new(request.subject.clone(), query.title, query.message)?;
    let done = app.service.promote(publisher, id, query.force).await?;
    let replaced = done.as_ref().is_some_and(|published| published.replaced);
    let number = done.as_ref().and_then(|published| published.number);
    let version = done.map(|published| published.version);
    let message = format!("Skill '{skill}' of '{}' is now published for all users", request.user);
    success_with(message, Promoted { version, number, replaced })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Pull {
    #[serde(default)]
    prefer: Side,
    /// Only tells what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// Whose change stays where both changed the same.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    #[default]
    Ours,
    Theirs,
}

#[derive(Serialize)]
struct Beside {
    version: Option<Version>,
    /// Whether the user's changes lie over another version than before.
    changed: bool,
    refreshed: usize,
    conflicts: Vec<String>,
    conflicts_total: usize,
}

/// Conflicts named in one answer.
const CONFLICTS_MAX: usize = 1000;

pub(in crate::http) async fn pull(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Pull>,
) -> Answer {
    request.check_change(Scope::Overlay)?;
    let (id, skill) = skill_of(&request)?;
    let prefer = match query.prefer {
        Side::Ours => Prefer::Ours,
        Side::Theirs => Prefer::Theirs,
    };
    let mut pulled = match query.dry_run {
        true => app.service.would_pull(id, prefer).await?,
        false => app.service.pull(id, prefer).await?,
    };
    let conflicts_total = pulled.conflicts.len();
    pulled.conflicts.truncate(CONFLICTS_MAX);
    let beside = Beside {
        version: pulled.version,
        changed: pulled.moved,
        refreshed: pulled.refreshed,
        conflicts: pulled.conflicts,
        conflicts_total,
    };
    let message = match query.dry_run {
        true => format!("Nothing was done: this is what a pull of '{skill}' would do now"),
        false => format!("Skill '{skill}' is based on the current version"),
    };
    success_with(message, beside)
}

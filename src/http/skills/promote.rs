//! `POST /v1/skills/{u}/{a}/{s}/promote?force&title&message&dry_run` and `POST /v1/skills/{u}/{a}/{s}/pull?prefer&dry_run`

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use policy::Scope;
use serde::{Deserialize, Serialize};
use storage::{Choices, Prefer, Version};

use super::skill_of;
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::body;
use crate::http::extract::object::Object;
use crate::http::extract::{Params, SkillsRequest, parse_json};
use crate::ops::versions::Publisher;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Promote {
    #[serde(default)]
    force: bool,
    title: Option<String>,
    message: Option<String>,
    /// Only tells what would be published.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Promoted {
    version: Option<Version>,
    number: Option<u64>,
    /// Whether the application had the skill before.
    replaced: bool,
}

/// What would be published.
#[derive(Serialize)]
struct WouldBe {
    /// Of what would be published, unknown until it is.
    version: Option<Version>,
    number: Option<u64>,
    replaced: bool,
    /// The version that would be replaced.
    replaces: Option<Version>,
    changes_total: usize,
    conflicts: Vec<String>,
    conflicts_total: usize,
}

pub(in crate::http) async fn promote(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Promote>,
) -> Answer {
    request.check_change(Scope::Baseline)?;
    let (id, skill) = skill_of(&request)?;
    let publisher = Publisher::new(request.subject.clone(), query.title, query.message)?;
    if query.dry_run {
        let mut would = app.service.would_promote(id).await?;
        let (replaces, conflicts_total) = (would.replaces, would.conflicts.len());
        would.conflicts.truncate(CONFLICTS_MAX);
        let message =
            format!("Nothing was published: this is what a promotion of '{skill}' would publish now");
        let beside = WouldBe {
            version: None,
            number: None,
            replaced: replaces.is_some(),
            replaces,
            changes_total: would.changes,
            conflicts: would.conflicts,
            conflicts_total,
        };
        return success_with(message, beside);
    }
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

impl From<Side> for Prefer {
    fn from(side: Side) -> Self {
        match side {
            Side::Ours => Self::Ours,
            Side::Theirs => Self::Theirs,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Body {
    /// The side of each of these paths, instead of `prefer`.
    choices: BTreeMap<String, Side>,
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

/// Largest body of a pull, in bytes: as many paths as an answer names, each of usual length.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Conflicts named in one answer, and choices in one request.
const CONFLICTS_MAX: usize = 1000;

pub(in crate::http) async fn pull(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Pull>,
    sent: Request,
) -> Answer {
    request.check_change(Scope::Overlay)?;
    let (id, skill) = skill_of(&request)?;
    let bytes = body::collect(&app, sent.into_body(), BODY_BYTES_MAX).await?;
    let Body { choices } =
        if bytes.is_empty() { Body::default() } else { parse_json::<Object<Body>>(&bytes)?.0 };
    if choices.len() > CONFLICTS_MAX {
        return Err(Problem::invalid(format!("`choices` has more than {CONFLICTS_MAX} paths")));
    }
    let named = choices.into_iter().map(|(path, side)| (path, side.into())).collect();
    let choices = Choices { prefer: query.prefer.into(), named };
    let mut pulled = match query.dry_run {
        true => app.service.would_pull(id, choices).await?,
        false => app.service.pull(id, choices).await?,
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

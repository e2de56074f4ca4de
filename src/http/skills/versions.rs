//! `GET /v1/skills/{u}/{a}/{s}/versions?limit&cursor`, `GET` and `DELETE …/versions/{v}?force`,
//! `PUT` and `DELETE …/versions/{v}/pin`, and `POST /v1/skills/{u}/{a}/{s}/rollback?version&title&message`

use axum::extract::State;
use policy::Scope;
use serde::{Deserialize, Serialize};
use storage::{KeptVersion, Version, VersionDescription, VersionName, VersionState};

use super::skill_of;
use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::{rfc3339, rfc3339_of_ms};
use crate::http::answer::{Answer, made, success, success_with};
use crate::http::extract::{NoParams, PageQuery, Params, SkillsRequest, VersionRequest};
use crate::ops::versions::Publisher;

/// About what a version takes in an answer besides its texts, in bytes.
const VERSION_BYTES: usize = 400;

#[derive(Serialize)]
struct Told {
    number: u64,
    version: Version,
    state: &'static str,
    current: bool,
    pinned: bool,
    title: Option<String>,
    message: Option<String>,
    name: String,
    description: String,
    files: usize,
    bytes: u64,
    published_at: String,
    published_by: Option<String>,
    replaced_at: Option<String>,
}

impl From<(KeptVersion, VersionDescription)> for Told {
    fn from((kept, said): (KeptVersion, VersionDescription)) -> Self {
        Self {
            number: kept.number,
            version: kept.version,
            state: match kept.state {
                VersionState::Current => "current",
                VersionState::Kept => "kept",
                VersionState::Staged => "staged",
            },
            current: kept.state == VersionState::Current,
            pinned: kept.is_pinned,
            title: kept.title,
            message: kept.message,
            name: said.name,
            description: said.description,
            files: kept.files,
            bytes: kept.bytes,
            published_at: rfc3339_of_ms(kept.at_ms),
            published_by: kept.by,
            replaced_at: kept.replaced_ns.map(rfc3339),
        }
    }
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<PageQuery>,
) -> Answer {
    request.check_read()?;
    let (_, skill) = skill_of(&request)?;
    let most = app.service.file_limits().list_entries;
    let span = page::span(query.limit, most)?;
    let before = query.cursor.as_deref().map(|cursor| match VersionName::parse(cursor) {
        Some(VersionName::Number(number)) => Ok(number),
        _ => Err(Problem::invalid("the `cursor` is none that this list gave out")),
    });
    let (before, with_staged) = (before.transpose()?, request.may_publish());
    let page =
        app.service.version_page(&request.user, request.agent, skill, with_staged, before, span).await?;
    let is_paged = query.limit.is_some() || query.cursor.is_some();
    if !is_paged && !page.is_last {
        let message = format!("the list has more than {most} elements: send `limit`");
        return Err(Problem::new(Code::TooLarge, message).with("limit_entries", most));
    }
    let last = page.versions.last().filter(|_| !page.is_last).map(|(kept, _)| kept.number.to_string());
    let beside = page::Beside::new(is_paged.then_some(last));
    let bytes = page.versions.iter().map(|(_, said)| VERSION_BYTES + said.description.len()).sum();
    made(app.service.admission(), bytes, move || {
        success_with(page.versions.into_iter().map(Told::from).collect::<Vec<_>>(), beside)
    })
    .await
}

pub(in crate::http) async fn one(State(app): State<App>, request: VersionRequest, _: NoParams) -> Answer {
    let VersionRequest { skills, skill, name } = request;
    let with_staged = skills.may_publish();
    let version = app.service.version(&skills.user, skills.agent, skill, with_staged, name).await?;
    success(Told::from(version))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RemoveQuery {
    #[serde(default)]
    force: bool,
}

#[derive(Serialize)]
struct Removed {
    version: Version,
    /// Whether it was the last one.
    skill_removed: bool,
}

pub(in crate::http) async fn remove(
    State(app): State<App>,
    request: VersionRequest,
    Params(query): Params<RemoveQuery>,
) -> Answer {
    let VersionRequest { skills, skill, name } = request;
    skills.check_change(Scope::Baseline)?;
    let message = format!("Version {name} of skill '{skill}' removed");
    let (version, skill_removed) =
        app.service.remove_version(&skills.user, skills.agent, skill, name, query.force).await?;
    success_with(message, Removed { version, skill_removed })
}

#[derive(Serialize)]
struct Pinned {
    /// Whether that was not so before.
    changed: bool,
}

pub(in crate::http) async fn pin(State(app): State<App>, request: VersionRequest, _: NoParams) -> Answer {
    set_pin(&app, request, true).await
}

pub(in crate::http) async fn unpin(State(app): State<App>, request: VersionRequest, _: NoParams) -> Answer {
    set_pin(&app, request, false).await
}

async fn set_pin(app: &App, request: VersionRequest, is_pinned: bool) -> Answer {
    let VersionRequest { skills, skill, name } = request;
    skills.check_change(Scope::Baseline)?;
    let done = if is_pinned { "stays until it is unpinned" } else { "is not pinned" };
    let message = format!("Version {name} of skill '{skill}' {done}");
    let changed = app.service.pin_version(&skills.user, skills.agent, skill, name, is_pinned).await?;
    success_with(message, Pinned { changed })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RollbackQuery {
    version: Option<String>,
    title: Option<String>,
    message: Option<String>,
}

#[derive(Serialize)]
struct Beside {
    version: Option<Version>,
    number: Option<u64>,
    /// Whether another version was current before.
    changed: bool,
}

pub(in crate::http) async fn rollback(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<RollbackQuery>,
) -> Answer {
    request.check_change(Scope::Baseline)?;
    let (_, skill) = skill_of(&request)?;
    let version = query.version.as_deref().and_then(VersionName::parse).ok_or_else(|| {
        Problem::invalid(
            "`version` is missing or none: send one that `versions` lists, 32 hexadecimal digits or a number",
        )
    })?;
    let publisher = Publisher::new(request.subject, query.title, query.message)?;
    let done = app.service.rollback(publisher, request.user, request.agent, skill.clone(), version).await?;
    let changed = done.as_ref().is_some_and(|published| !published.unchanged);
    let number = done.as_ref().and_then(|published| published.number);
    let version = done.map(|published| published.version);
    success_with(format!("Skill '{skill}' is at the version asked for"), Beside { version, number, changed })
}

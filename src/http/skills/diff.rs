//! `GET /v1/skills/{u}/{a}/{s}/diff?limit&cursor&from&to`

use axum::extract::State;
use policy::SkillId;
use serde::{Deserialize, Serialize};
use storage::{Change, Status, Version, VersionName};

use super::skill_of;
use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{Params, SkillsRequest};
use crate::ops::seen::Published;
use crate::ops::{FileDifference, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    limit: Option<usize>,
    cursor: Option<String>,
    /// A version that is compared, instead of what the user sees.
    from: Option<String>,
    /// With which version; the current one unless given.
    to: Option<String>,
}

#[derive(Serialize)]
struct Differs {
    path: String,
    change: Change,
    before_bytes: Option<u64>,
    after_bytes: Option<u64>,
    /// A unified diff.
    diff: Option<String>,
    /// Why there is none although the file differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<&'static str>,
}

#[derive(Serialize)]
struct Beside<B> {
    /// Of what the user sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    skill_status: Option<Status>,
    /// The versions that are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Version>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Version>,
    #[serde(flatten)]
    page: B,
}

impl From<FileDifference> for Differs {
    fn from(difference: FileDifference) -> Self {
        let FileDifference { path, change, before_bytes, after_bytes, text } = difference;
        let (diff, omitted) = match text {
            Text::Lines(text) => (Some(text), None),
            Text::None => (None, Some("not_text")),
            Text::TooLarge => (None, Some("too_large")),
        };
        Self { path, change, before_bytes, after_bytes, diff, omitted }
    }
}

pub(in crate::http) async fn diff(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Query>,
) -> Answer {
    request.check_read()?;
    let (id, skill) = skill_of(&request)?;
    let versions = versions(&app, &request, skill, &query).await?;
    let (changes, skill_status) = match &versions {
        Some([from, to]) => (app.service.version_changes(id.clone(), from.clone(), to.clone()).await?, None),
        None => {
            let status = app.service.changed_files(id.clone()).await?;
            (status.changes, Some(status.status))
        }
    };
    let most = app.service.file_limits().list_entries;
    let page =
        page::cut(changes, |changed| changed.path.as_str(), query.limit, query.cursor.as_deref(), most)?;
    let differences = match &versions {
        Some(versions) => app.service.version_differences(id, versions.clone(), page.elements).await?,
        None => app.service.differences(id, page.elements).await?,
    };
    let (from, to) = versions.map(|[from, to]| (from, to)).unzip();
    let beside = Beside { skill_status, from, to, page: page.beside };
    let bytes = differences.iter().map(|difference| difference.path.len() + difference.text.bytes()).sum();
    made(app.service.admission(), bytes, move || {
        success_with(differences.into_iter().map(Differs::from).collect::<Vec<_>>(), beside)
    })
    .await
}

/// The two versions that are to be compared, if any are.
async fn versions(
    app: &App,
    request: &SkillsRequest,
    skill: SkillId,
    query: &Query,
) -> Result<Option<[Version; 2]>, Problem> {
    let Some(from) = query.from.as_deref() else {
        return match query.to {
            Some(_) => Err(Problem::invalid("`to` goes with `from`: send both, or neither")),
            None => Ok(None),
        };
    };
    let named = |text: &str| match VersionName::parse(text) {
        Some(name) => Ok(Published::Named(name)),
        None => Err(Problem::invalid(
            "`from` or `to` is no version that `versions` lists: send 32 hexadecimal digits or a number",
        )),
    };
    let to = query.to.as_deref().map_or(Ok(Published::Current), named)?;
    let find = |meant| {
        let (agent, skill) = (request.agent.clone(), skill.clone());
        app.service.published_version(&request.user, agent, skill, request.may_publish(), meant)
    };
    Ok(Some([find(named(from)?).await?, find(to).await?]))
}

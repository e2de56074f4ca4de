//! `GET /v1/skills/{u}/{a}/{s}/diff?limit&cursor`

use axum::extract::State;
use serde::{Deserialize, Serialize};
use storage::{Change, Status};

use super::skill_of;
use crate::http::App;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{Params, SkillsRequest};
use crate::http::page;
use crate::ops::{FileDifference, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    limit: Option<usize>,
    cursor: Option<String>,
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
    skill_status: Status,
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
    let (id, _) = skill_of(&request)?;
    let status = app.service.changed_files(id.clone()).await?;
    let most = app.service.file_limits().list_entries;
    let skill_status = status.status;
    let page = page::cut(
        status.changes,
        |changed| changed.path.as_str(),
        query.limit,
        query.cursor.as_deref(),
        most,
    )?;
    let differences = app.service.differences(id, page.elements).await?;
    let beside = Beside { skill_status, page: page.beside };
    let bytes = differences.iter().map(|difference| difference.path.len() + difference.text.bytes()).sum();
    made(app.service.admission(), bytes, move || {
        success_with(differences.into_iter().map(Differs::from).collect::<Vec<_>>(), beside)
    })
    .await
}

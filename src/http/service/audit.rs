//! `GET /v1/audit?after&user&action&limit`

use axum::extract::State;
use policy::UserId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{Auditor, Params};
use crate::ops::Error;
use crate::ops::audited::Question;

/// Records in an answer, unless the request says otherwise.
const RECORDS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    after: Option<u64>,
    user: Option<String>,
    action: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Beside {
    /// The number of the last record that was looked at.
    last: u64,
    /// Whether there are more behind it now.
    more: bool,
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    _: Auditor,
    Params(query): Params<Query>,
) -> Answer {
    let user = query.user.as_deref().map(UserId::parse).transpose().map_err(Error::from)?;
    let most = page::span(query.limit.or(Some(RECORDS)), app.service.file_limits().list_entries)?;
    let question = Question { after: query.after.unwrap_or(0), user, action: query.action, most };
    let page = app.service.audited(question).await?;
    // As they lie there, so that a reader of all of them can check the chain.
    let records = page.lines.into_iter().map(RawValue::from_string).collect::<Result<Vec<_>, _>>();
    let records = records.map_err(|_| Error::Panicked)?;
    success_with(records, Beside { last: page.last, more: page.more })
}

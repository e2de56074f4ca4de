//! `GET` and `POST /v1/shares/{u}/{a}`, and `DELETE /v1/shares/{u}/{a}/{share}`

use std::sync::Arc;

use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use policy::{Scope, SkillId};
use serde::{Deserialize, Serialize};

use super::own_url;
use crate::http::answer::problem::Problem;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::{JsonBody, JsonLimit, NoParams, SkillsRequest, bearer};
use crate::http::{App, request_log};
use crate::ops::shares::{NAMED_MAX, NOTE_BYTES_MAX, NewShare, Share, SharedView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Wanted {
    #[serde(default)]
    view: SharedView,
    skills: Option<Vec<SkillId>>,
    ttl_seconds: Option<u64>,
    note: Option<String>,
}

impl JsonLimit for Wanted {}

#[derive(Serialize)]
struct Beside {
    id: String,
    expires_at: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    id: String,
    view: SharedView,
    skills: Option<Vec<SkillId>>,
    note: Option<String>,
    made_by: String,
    made_at: String,
    expires_at: Option<String>,
}

impl From<&Share> for Listed {
    fn from(share: &Share) -> Self {
        Self {
            id: share.id.clone(),
            view: share.view,
            skills: share.skills.clone(),
            note: share.note.clone(),
            made_by: share.by.clone(),
            made_at: second(share.created),
            expires_at: share.expires.map(second),
        }
    }
}

pub(in crate::http) async fn make(
    State(app): State<App>,
    asked: SkillsRequest,
    _: NoParams,
    headers: HeaderMap,
    request: Request,
) -> Answer {
    // Who may not know of the user and agent learns nothing of the body, either.
    asked.check_read()?;
    let JsonBody(wanted) = JsonBody::from_request(request, &app).await?;
    let Wanted { view, skills, ttl_seconds, note } = wanted;
    // A link gives to strangers what only those may give who could change it.
    asked.check_change(match view {
        SharedView::Baseline => Scope::Baseline,
        SharedView::User => Scope::Overlay,
    })?;
    if skills.as_ref().is_some_and(|skills| skills.is_empty() || skills.len() > NAMED_MAX) {
        return Err(Problem::invalid(format!(
            "`skills` names 1 to {NAMED_MAX} skills; leave it out for all"
        )));
    }
    if ttl_seconds == Some(0) {
        return Err(Problem::invalid("`ttl_seconds` is 0: send 1 or more, or leave it out"));
    }
    let is_note = |note: &String| note.len() <= NOTE_BYTES_MAX && !note.chars().any(char::is_control);
    if !note.as_ref().is_none_or(is_note) {
        return Err(Problem::invalid(format!("`note` is one line of at most {NOTE_BYTES_MAX} bytes")));
    }
    let sent = bearer(&headers).map(str::to_owned);
    let token = app.access.caller(sent.as_deref())?.signed_id().map(str::to_owned);
    let access = Arc::clone(&app.access);
    let may_still = move || access.caller(sent.as_deref()).is_ok();
    let SkillsRequest { user, agent, subject: by, .. } = asked;
    let new = NewShare { user, agent, view, skills, note, by, token, seconds: ttl_seconds };
    let (share, secret) = app.service.make_share(new, may_still).await?;
    request_log::issued(&share.user, &share.id);
    let beside = Beside { id: share.id.clone(), expires_at: share.expires.map(second) };
    let mut response = success_with(format!("{}/s/{secret}/", own_url(&app)), beside)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

pub(in crate::http) async fn list(State(app): State<App>, request: SkillsRequest, _: NoParams) -> Answer {
    request.check_read()?;
    let shares = app.service.shares_of(&request.user, &request.agent);
    success(shares.iter().map(|share| Listed::from(&**share)).collect::<Vec<_>>())
}

pub(in crate::http) async fn revoke(
    State(app): State<App>,
    request: SkillsRequest,
    Path((_, _, share)): Path<(String, String, String)>,
    _: NoParams,
) -> Answer {
    // Those who may change the baseline may end what was given of it; those who may change the user's, what the user gave.
    request.check_change(if request.may_publish() { Scope::Baseline } else { Scope::Overlay })?;
    request_log::token(&share);
    app.service.revoke_share(request.user, request.agent, share.clone()).await?;
    success(format!("The share link '{share}' is revoked"))
}

fn second(seconds: u64) -> String {
    rfc3339(i128::from(seconds) * 1_000_000_000)
}

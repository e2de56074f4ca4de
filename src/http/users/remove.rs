//! `DELETE /v1/users/{u}`

use axum::extract::State;
use serde::Serialize;

use super::one::named;
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{NoParams, WorkspacesRequest};
use crate::ops::users::RemovedUser;

#[derive(Serialize)]
struct Beside {
    workspaces: usize,
    skills: usize,
    runs: usize,
    /// Agents with which a run did not end in time: ask again.
    busy: Vec<String>,
    /// Whether there are more agents than one request removes: ask again.
    more: bool,
}

pub(in crate::http) async fn remove(
    State(app): State<App>,
    request: WorkspacesRequest,
    _: NoParams,
) -> Answer {
    let user = named(request)?;
    let RemovedUser { workspaces, skills, runs, busy, more } = app.service.remove_user(user.clone()).await?;
    let is_whole = busy.is_empty() && !more;
    let sentence = match is_whole {
        true => format!("User '{user}' removed"),
        false => format!("User '{user}' removed in part: ask again"),
    };
    let busy = busy.into_iter().map(|id| id.agent.to_string()).collect();
    success_with(sentence, Beside { workspaces, skills, runs, busy, more })
}

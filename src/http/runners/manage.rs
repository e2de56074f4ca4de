//! `GET /v1/runners/{u}`, `POST /v1/runners/{u}/{runner}/choose` and `/cut`, `DELETE /v1/runners/{u}/{runner}`

use axum::extract::State;
use serde::Serialize;

use crate::http::App;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, RunnerRequest, WorkspacesRequest};
use crate::http::users::one::named;
use crate::ops::runners::LentMachine;
use crate::ops::sync;

/// A machine of a user.
#[derive(Serialize)]
struct Facts {
    name: String,
    /// Whether it answers for the user's workspaces.
    active: bool,
    connected: bool,
    /// The rest is null while it is not connected.
    since: Option<String>,
    workspace: Option<String>,
    isolation: Option<String>,
    exact: Option<bool>,
    /// How far its synchronisation is; null where the service has nothing for machines.
    sync: Option<Sync>,
}

/// The synchronisation of a connection.
#[derive(Serialize)]
struct Sync {
    /// `running`, `done` or `failed`.
    state: &'static str,
    /// Why it failed.
    problem: Option<String>,
    files: usize,
    written: usize,
    removed: usize,
    kept: usize,
    notes: Vec<String>,
}

impl From<sync::State> for Sync {
    fn from(state: sync::State) -> Self {
        let (state, problem, counts) = match state {
            sync::State::Running => ("running", None, sync::Counts::default()),
            sync::State::Done(counts) => ("done", None, counts),
            sync::State::Failed(problem) => ("failed", Some(problem), sync::Counts::default()),
        };
        let sync::Counts { files, written, removed, kept, notes } = counts;
        Self { state, problem, files, written, removed, kept, notes }
    }
}

impl From<LentMachine> for Facts {
    fn from(machine: LentMachine) -> Self {
        let there = machine.connection;
        let since = there.as_ref().and_then(|there| there.since.duration_since(std::time::UNIX_EPOCH).ok());
        Self {
            name: machine.name,
            active: machine.is_active,
            connected: there.is_some(),
            since: since.and_then(|since| i128::try_from(since.as_nanos()).ok()).map(rfc3339),
            workspace: there.as_ref().map(|there| there.workspace.clone()),
            isolation: there.as_ref().map(|there| there.isolation.clone()),
            exact: there.as_ref().map(|there| there.is_exact),
            sync: there.and_then(|there| there.sync).map(Sync::from),
        }
    }
}

pub(in crate::http) async fn list(State(app): State<App>, request: WorkspacesRequest, _: NoParams) -> Answer {
    let user = named(request)?;
    success(app.service.runners().of(&user).into_iter().map(Facts::from).collect::<Vec<_>>())
}

pub(in crate::http) async fn choose(
    State(app): State<App>,
    RunnerRequest { user, runner }: RunnerRequest,
    _: NoParams,
) -> Answer {
    app.service.choose_runner(&user, &runner).await?;
    success(format!("The runner '{runner}' answers for the workspaces of '{user}'"))
}

pub(in crate::http) async fn cut(
    State(app): State<App>,
    RunnerRequest { user, runner }: RunnerRequest,
    _: NoParams,
) -> Answer {
    app.service.cut_runner(&user, &runner)?;
    success(format!("The connection of the runner '{runner}' is cut: it may come back"))
}

pub(in crate::http) async fn revoke(
    State(app): State<App>,
    RunnerRequest { user, runner }: RunnerRequest,
    _: NoParams,
) -> Answer {
    app.service.revoke_runner(&user, &runner).await?;
    success(format!("The runner '{runner}' of '{user}' is revoked: none registers with its token any more"))
}

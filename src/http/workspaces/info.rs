//! `GET /v1/sandbox/{u}/{a}/info`

use axum::extract::State;
use serde::Serialize;

use super::usage::Limits;
use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, WorkspaceRequest};
use crate::ops::tree::{Conditions, OwnConditions};

/// The conditions of a command in a workspace.
#[derive(Serialize)]
struct Info<'a> {
    /// Where the workspace stands, as requests and commands name it.
    workspace: String,
    shell: String,
    /// Where commands run: on the host of the service, which is `local`, or where a remote backend is.
    backend: String,
    runs: policy::RunLimits,
    #[serde(flatten)]
    own: Option<Own<'a>>,
}

/// What holds for a command that the service itself runs. What confines a command that a backend runs, and what it may reach, the
/// service does not know.
#[derive(Serialize)]
struct Own<'a> {
    tier: exec::Tier,
    /// The programs that a caller may start with this agent, as far as the host has them.
    commands: Vec<String>,
    network: exec::Network,
    limits: Limits<'a>,
}

pub(in crate::http) async fn info(State(app): State<App>, request: WorkspaceRequest, _: NoParams) -> Answer {
    let Conditions { shell, backend, runs, own } = request.tree.conditions().await?;
    let own = own.map(|OwnConditions { tier, commands, network }| {
        let limits = Limits::of(&app, &request.id.agent);
        Own { tier, commands, network, limits }
    });
    success(Info { workspace: request.id.workspace().sandbox_path(), shell, backend, runs, own })
}

//! `GET /v1/sandbox/{u}/{a}/info`

use axum::extract::State;
use serde::Serialize;

use super::{Answer, Elsewhere};
use crate::http::App;
use crate::http::answer::success;
use crate::http::request::NoParams;

/// What a command finds in a workspace elsewhere. What confines it there, and what it may reach, is not known here.
#[derive(Serialize)]
struct Info<'a> {
    workspace: String,
    shell: String,
    backend: &'a str,
    runs: &'a policy::RunLimits,
}

pub(super) async fn info(State(app): State<App>, tree: Elsewhere, _: NoParams) -> Answer {
    success(Info {
        workspace: tree.id.sandbox_path(),
        shell: tree.backend.shell().await?,
        backend: tree.backend.name(),
        runs: &app.service.run_limits,
    })
}

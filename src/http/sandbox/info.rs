//! `GET /v1/sandbox/{u}/{a}/info`

use axum::extract::State;
use serde::Serialize;

use super::usage::Limits;
use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::request::{NoParams, SandboxRequest};

/// What a command finds in a sandbox.
#[derive(Serialize)]
struct Info<'a> {
    /// Where the workspace stands, as requests and commands name it.
    workspace: String,
    shell: &'static str,
    /// Where commands run: on the host of the service.
    backend: &'static str,
    tier: exec::Tier,
    network: exec::Network,
    runs: &'a policy::RunLimits,
    limits: Limits<'a>,
}

pub(in crate::http) async fn info(State(app): State<App>, request: SandboxRequest, _: NoParams) -> Answer {
    let service = &app.service;
    success(Info {
        workspace: request.id.workspace().sandbox_path(),
        shell: "bash",
        backend: "local",
        tier: service.host.enforcement.tier,
        network: service.network,
        runs: &service.run_limits,
        limits: Limits::of(&app),
    })
}

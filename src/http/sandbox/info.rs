//! `GET /v1/sandbox/{u}/{a}/info`

use axum::extract::State;
use serde::Serialize;

use super::usage::Limits;
use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, SandboxRequest};
use crate::ops::agents::Effective;

/// The conditions of a command in a workspace.
#[derive(Serialize)]
struct Info<'a> {
    /// Where the workspace stands, as requests and commands name it.
    workspace: String,
    shell: &'static str,
    /// Where commands run: on the host of the service.
    backend: &'static str,
    tier: exec::Tier,
    /// The programs that a caller may start with this agent, as far as the host has them.
    commands: Vec<String>,
    network: exec::Network,
    runs: policy::RunLimits,
    limits: Limits<'a>,
}

/// The conditions of a command in a workspace that a remote backend holds. What confines the command there, and what it
/// may reach, the service does not know.
#[derive(Serialize)]
struct RemoteInfo<'a> {
    workspace: String,
    shell: String,
    backend: &'a str,
    runs: policy::RunLimits,
}

pub(in crate::http) async fn info(State(app): State<App>, request: SandboxRequest, _: NoParams) -> Answer {
    let (service, agent) = (&app.service, &request.id.agent);
    if let Some(backend) = &request.backend {
        return success(RemoteInfo {
            workspace: request.id.workspace().sandbox_path(),
            shell: backend.shell().await?,
            backend: backend.name(),
            runs: service.run_limits_of(agent),
        });
    }
    let in_force = service.agent_policy(agent.clone(), Some(&request.id.user)).await?;
    let Effective { mut commands, missing, network, runs, .. } = in_force;
    commands.retain(|name| !missing.contains(name));
    success(Info {
        workspace: request.id.workspace().sandbox_path(),
        shell: "bash",
        backend: "local",
        tier: service.host().enforcement.tier,
        commands,
        network,
        runs,
        limits: Limits::of(&app, agent),
    })
}

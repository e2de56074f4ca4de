//! `GET`, `PUT` and `DELETE /v1/agents/{a}/policy`

use axum::extract::State;
use policy::{AgentId, AgentPolicy, DiskLimits, Profile, RunLimits, SessionLimits};
use serde::{Deserialize, Serialize};

use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::{Governor, JsonBody, JsonLimit, NoParams};
use crate::http::{App, request_log};
use crate::ops::agents::{Changed, Effective, Source};

/// The longest body, with every host and program as long as it may be, in bytes.
const POLICY_BYTES_MAX: usize = 512 * 1024;

/// A policy as it is sent.
#[derive(Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct Sent(AgentPolicy);

impl JsonLimit for Sent {
    fn bytes_max(_app: &App) -> usize {
        POLICY_BYTES_MAX
    }
}

/// What holds for an agent.
#[derive(Serialize)]
struct Facts {
    agent: AgentId,
    source: Source,
    /// As it was written: what it does not say is as for every agent.
    policy: AgentPolicy,
    /// What follows from that.
    effective: InEffect,
}

#[derive(Serialize)]
struct InEffect {
    profile: Profile,
    commands: Vec<String>,
    /// Those of `commands` that the host lacks.
    missing: Vec<String>,
    network: exec::Network,
    runs: RunLimits,
    sessions: SessionLimits,
    disk: DiskLimits,
}

#[derive(Serialize)]
struct Beside {
    /// Digests of what was set.
    before: Option<String>,
    after: Option<String>,
    source: Source,
}

pub(in crate::http) async fn show(
    State(app): State<App>,
    Governor { agent }: Governor,
    _: NoParams,
) -> Answer {
    let Effective { source, policy, profile, commands, missing, network, runs, sessions, disk } =
        app.service.agent_policy(agent.clone(), None).await?;
    success(Facts {
        agent,
        source,
        policy,
        effective: InEffect { profile, commands, missing, network, runs, sessions, disk },
    })
}

pub(in crate::http) async fn set(
    State(app): State<App>,
    Governor { agent }: Governor,
    _: NoParams,
    JsonBody(Sent(policy)): JsonBody<Sent>,
) -> Answer {
    change(&app, agent, Some(policy)).await
}

pub(in crate::http) async fn unset(
    State(app): State<App>,
    Governor { agent }: Governor,
    _: NoParams,
) -> Answer {
    change(&app, agent, None).await
}

async fn change(app: &App, agent: AgentId, policy: Option<AgentPolicy>) -> Answer {
    let done = if policy.is_some() { "set" } else { "removed" };
    let Changed { before, after, source } = app.service.set_agent_policy(agent.clone(), policy).await?;
    request_log::set(before.clone(), after.clone());
    let sentence = format!("The policy of the agent '{agent}' is {done}: it holds from the next run on");
    success_with(sentence, Beside { before, after, source })
}

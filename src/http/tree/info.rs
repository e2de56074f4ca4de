//! `GET T/info`

use axum::extract::State;
use policy::{DiskLimits, Profile, RunLimits, SessionLimits, TreeId};
use serde::Serialize;

use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{NoParams, WorkspaceRequest};
use crate::http::workspaces::usage;
use crate::ops::tree::{Conditions, OwnConditions};

/// The conditions of a command in a tree.
#[derive(Serialize)]
struct Info<'a> {
    /// Where the tree stands, as requests and commands name it.
    workspace: String,
    shell: String,
    /// Where commands run: on the host of the service, which is `local`, or where a remote backend is.
    backend: String,
    runs: RunLimits,
    sessions: SessionLimits,
    #[serde(flatten)]
    own: Option<Own<'a>>,
}

/// What holds for a command that the service itself runs. What confines a command that a backend runs, and what it may reach, the
/// service does not know.
#[derive(Serialize)]
struct Own<'a> {
    tier: exec::Tier,
    profile: Profile,
    /// The programs that a caller may start with this agent, as far as the host has them.
    commands: Vec<String>,
    network: exec::Network,
    limits: Limits<'a>,
}

/// What the tree may take on the disk. A workspace has further limits.
#[derive(Serialize)]
#[serde(untagged)]
enum Limits<'a> {
    Workspace(usage::Limits<'a>),
    Skill { disk: DiskLimits },
}

pub(in crate::http) async fn info(
    State(app): State<App>,
    WorkspaceRequest { tree, .. }: WorkspaceRequest,
    _: NoParams,
) -> Answer {
    let Conditions { shell, backend, runs, sessions, own } = tree.conditions().await?;
    let own = own.map(|OwnConditions { tier, profile, commands, network, disk }| {
        let limits = match tree.id() {
            TreeId::Workspace(..) => Limits::Workspace(usage::Limits::of(&app, disk)),
            TreeId::Skill(..) => Limits::Skill { disk },
        };
        Own { tier, profile, commands, network, limits }
    });
    success(Info { workspace: tree.id().sandbox_path(), shell, backend, runs, sessions, own })
}

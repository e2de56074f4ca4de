//! `GET /healthz` and `GET /v1/info`

use axum::extract::State;
use serde::Serialize;

use super::App;
use super::answer::{Answer, success};
use super::request::Known;

pub(super) async fn healthz() -> Answer {
    success("ok")
}

#[derive(Serialize)]
struct Info<'a> {
    version: &'static str,
    /// What this host grants, layer by layer, as found at start.
    host: &'a exec::HostReport,
    commands: Vec<&'a str>,
    network: exec::Network,
    limits: Limits<'a>,
}

#[derive(Serialize)]
struct Limits<'a> {
    archive: &'a policy::ArchiveLimits,
    files: &'a policy::FileLimits,
    disk: &'a policy::DiskLimits,
    runs: &'a policy::RunLimits,
    sessions: &'a policy::SessionLimits,
}

pub(super) async fn info(State(app): State<App>, _known: Known) -> Answer {
    let service = &app.service;
    success(Info {
        version: env!("CARGO_PKG_VERSION"),
        host: &service.host,
        commands: service.commands.direct().collect(),
        network: service.network,
        limits: Limits {
            archive: &service.archive_limits,
            files: &service.file_limits,
            disk: &service.store.options().disk,
            runs: &service.run_limits,
            sessions: service.table.limits(),
        },
    })
}

//! `GET /healthz`, `GET /readyz`, `GET /metrics` and `GET /v1/info`

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::IntoResponse;
use serde::Serialize;

use crate::audit;
use crate::config::ConnectionLimits;
use crate::http::App;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::{Answer, success};
use crate::http::extract::{Known, NoParams, Observer};
use crate::metrics::{self, Moment};

pub(in crate::http) async fn healthz() -> Answer {
    success("ok")
}

const STOPPING: &str = "the service is stopping: it starts no more runs";
const NOT_READY: &str = "the service is not ready: what is false below is missing";

/// The answer of a service that is ready. Every caller may ask, so the answer is three words.
#[derive(Serialize)]
struct Readiness {
    /// The disk has as much room left as it is to keep, and the service can make, write and remove files in its data
    /// directory.
    disk: bool,
    /// The confinement that was found at the start is whole.
    isolation: bool,
    /// Changes can be recorded.
    audit: bool,
}

pub(in crate::http) async fn readyz(State(app): State<App>) -> Answer {
    let disk = app.service.look_at_disk().await.is_some_and(|found| found.is_writable);
    let ready = Readiness {
        disk,
        isolation: app.service.host().is_sound(),
        audit: app.service.audit().is_writable(),
    };
    let is_stopping = app.service.is_stopping();
    if ready.disk && ready.isolation && ready.audit && !is_stopping {
        return success(ready);
    }
    let problem = Problem::new(Code::Disconnected, if is_stopping { STOPPING } else { NOT_READY });
    Err(problem
        .with("stopping", is_stopping)
        .with("disk", ready.disk)
        .with("isolation", ready.isolation)
        .with("audit", ready.audit)
        .with_header(header::RETRY_AFTER, "5"))
}

pub(in crate::http) async fn metrics(
    State(app): State<App>,
    _observer: Observer,
    _: NoParams,
    headers: HeaderMap,
) -> Answer {
    let service = &app.service;
    let found = service.look_at_disk().await;
    let (free_bytes, live_views, (trash_waiting, trash_failures)) =
        found.map_or_else(Default::default, |found| (found.free_bytes, found.live_views, found.trash));
    let (running, waiting) = service.commands();
    let moment = Moment {
        running,
        waiting,
        live_views,
        networks: service.launcher().network_count(),
        runners: service.runners().connected(),
        free_bytes,
        trash_waiting,
        trash_failures,
        is_audited: app.service.audit().is_writable(),
    };
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let form = metrics::Form::of(accepted);
    let text = service.metrics().text(moment, form);
    let kind = HeaderValue::from_static(form.content_type());
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

#[derive(Serialize)]
struct Info<'a> {
    version: &'static str,
    /// The confinement that this host grants, layer by layer, as found at start.
    host: &'a exec::HostReport,
    commands: Vec<&'a str>,
    network: exec::Network,
    quotas: Quotas<'a>,
    limits: Limits<'a>,
}

#[derive(Serialize)]
struct Limits<'a> {
    archive: &'a policy::ArchiveLimits,
    files: &'a policy::FileLimits,
    disk: &'a policy::DiskLimits,
    snapshots: &'a policy::SnapshotLimits,
    runs: &'a policy::RunLimits,
    sessions: &'a policy::SessionLimits,
    events: &'a policy::EventLimits,
    ports: &'a policy::PortLimits,
    workspaces: Kept,
    keep_versions: usize,
    audit: Option<AuditLimits>,
    connections: &'a ConnectionLimits,
}

/// How long unused workspaces stay.
#[derive(Serialize)]
struct Kept {
    idle_ms: u128,
    keep_ms: u128,
}

/// What keeps `limits.disk` while commands run.
#[derive(Serialize)]
struct Quotas<'a> {
    kept_by: &'static str,
    /// Why the kernel does not.
    reason: Option<&'a str>,
}

/// How long the audit log stays, and what one caller adds to it.
#[derive(Serialize)]
struct AuditLimits {
    total_bytes: u64,
    keep_days: u64,
    account_bytes: u64,
}

impl From<&audit::Settings> for AuditLimits {
    fn from(settings: &audit::Settings) -> Self {
        let keep_days = settings.least_age.as_secs() / (24 * 3600);
        Self { total_bytes: settings.total_bytes, keep_days, account_bytes: settings.account_bytes }
    }
}

pub(in crate::http) async fn info(State(app): State<App>, _known: Known, _: NoParams) -> Answer {
    let service = &app.service;
    let options = service.store_options();
    success(Info {
        version: env!("CARGO_PKG_VERSION"),
        host: service.host(),
        commands: service.programs().collect(),
        network: service.network(),
        quotas: match service.kernel_keeps_quotas() {
            Ok(()) => Quotas { kept_by: "kernel", reason: None },
            Err(reason) => Quotas { kept_by: "service", reason: Some(reason) },
        },
        limits: Limits {
            archive: service.archive_limits(),
            files: service.file_limits(),
            disk: &service.store_options().disk,
            snapshots: &service.store_options().snapshots,
            runs: service.run_limits(),
            sessions: service.session_limits(),
            events: service.event_limits(),
            ports: service.port_limits(),
            workspaces: Kept {
                idle_ms: options.idle.map_or(0, |idle| idle.as_millis()),
                keep_ms: options.keep.as_millis(),
            },
            keep_versions: options.keep_versions,
            audit: service.audit().settings().map(AuditLimits::from),
            connections: &app.connections,
        },
    })
}

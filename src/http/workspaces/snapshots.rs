//! `GET` and `POST /v1/sandbox/{u}/{a}/snapshots`, `GET` and `DELETE …/snapshots/{snapshot}`

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use storage::{Snapshot, SnapshotNote, WorkspaceId};

use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::time::rfc3339;
use crate::http::answer::{Answer, success, success_with};
use crate::http::extract::body;
use crate::http::extract::object::Object;
use crate::http::extract::{Local, NoParams, PageQuery, Params, SnapshotRequest, TreeRequest, parse_json};
use crate::http::request_log;

/// Largest body, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    name: Option<String>,
    note: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Told {
    id: String,
    name: Option<String>,
    note: Option<String>,
    created_at: String,
    /// Files, links and directories.
    entries: u64,
    /// Sizes of its files.
    bytes: u64,
    /// The room that it took on the disk.
    added_bytes: u64,
    /// Whether commands ran meanwhile.
    live: bool,
    unsettled: u64,
    skipped: u64,
}

impl From<Snapshot> for Told {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            id: snapshot.id.to_string(),
            name: snapshot.note.name,
            note: snapshot.note.note,
            created_at: rfc3339(snapshot.created_ns),
            entries: snapshot.entries,
            bytes: snapshot.bytes,
            added_bytes: snapshot.added_bytes,
            live: snapshot.live,
            unsettled: snapshot.unsettled,
            skipped: snapshot.skipped,
        }
    }
}

pub(in crate::http) async fn take(
    State(app): State<App>,
    Local(about): Local<TreeRequest>,
    _: NoParams,
    request: Request,
) -> Answer {
    let bytes = body::collect(&app, request.into_body(), BODY_BYTES_MAX).await?;
    let Body { name, note } =
        if bytes.is_empty() { Body::default() } else { parse_json::<Object<Body>>(&bytes)?.0 };
    let note = SnapshotNote { name, note };
    let snapshot = app.service.take_snapshot(WorkspaceId::of(about.tree.local()?), note).await?;
    request_log::snapshot(&snapshot.id);
    Ok((StatusCode::CREATED, success(Told::from(snapshot))?).into_response())
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    Local(about): Local<TreeRequest>,
    Params(query): Params<PageQuery>,
) -> Answer {
    let snapshots = app.service.snapshots(WorkspaceId::of(about.tree.local()?)).await?;
    let told: Vec<Told> = snapshots.list.into_iter().map(Told::from).collect();
    let most = app.service.file_limits().list_entries;
    let page = page::cut(told, |told| told.id.as_str(), query.limit, query.cursor.as_deref(), most)?;
    success_with(page.elements, page.beside)
}

pub(in crate::http) async fn one(State(app): State<App>, request: SnapshotRequest, _: NoParams) -> Answer {
    success(Told::from(app.service.snapshot(request.sandbox, request.id).await?))
}

pub(in crate::http) async fn remove(State(app): State<App>, request: SnapshotRequest, _: NoParams) -> Answer {
    app.service.remove_snapshot(request.sandbox, request.id).await?;
    success("Removed.")
}

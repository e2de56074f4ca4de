//! `POST /api/v1/devbox/{name}/files/upload` and `GET /api/v1/devbox/{name}/files/download`

use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use policy::tree::WORKSPACE;
use serde::{Deserialize, Serialize};
use storage::{Condition, WriteOptions};

use super::CONTAINER;
use super::dialect::success;
use super::life::namespace;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::{nanoseconds, rfc3339};
use crate::http::extract::body;
use crate::http::extract::{DevboxRequest, Params, TreeRequest};
use crate::http::tree::{mode, raw};
use crate::ops::devbox::name::DevboxName;
use crate::ops::devbox::table::{Devboxes, Inside};
use crate::ops::tree::Tree;

/// The mode of a file that is sent without one.
const MODE: &str = "0644";
/// The time that a transfer has in the dialect without another word, in seconds.
const SECONDS: u64 = 300;
/// The longest time in the dialect, in seconds.
const SECONDS_MAX: u64 = 3600;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct Upload {
    path: Option<String>,
    mode: Option<String>,
    timeout_seconds: Option<u64>,
    #[serde(rename = "container")]
    _container: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct Download {
    path: Option<String>,
    timeout_seconds: Option<u64>,
    #[serde(rename = "container")]
    _container: Option<String>,
    #[serde(rename = "filename")]
    _filename: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Uploaded<'a> {
    name: &'a str,
    namespace: &'a str,
    pod_name: &'a str,
    container: &'a str,
    path: &'a str,
    size_bytes: u64,
    mode: String,
    uploaded_at: String,
    timeout_second: u64,
}

pub(in crate::http) async fn upload(
    State(app): State<App>,
    DevboxRequest { name, devboxes }: DevboxRequest,
    Params(query): Params<Upload>,
    request: Request,
) -> Answer {
    let timeout_second = seconds(query.timeout_seconds)?;
    let path = inside(&devboxes, query.path.as_deref())?;
    let permissions = mode(Some(query.mode.as_deref().unwrap_or(MODE)))?;
    let visit = devboxes.enter(&name)?;
    let place = tree(&app, &devboxes, &name).await?.file(Some(path)).await?;
    raw::check_announced(request.headers(), app.service.file_limits().raw_bytes)?;
    let options = WriteOptions { condition: Condition::Always, parents: true, mode: permissions };
    let written = place.tree.write(&place.path, pieces(request, &visit), options).await?;
    drop(visit);
    success(Uploaded {
        name: name.as_str(),
        namespace: namespace(&app),
        pod_name: name.as_str(),
        container: CONTAINER,
        path: query.path.as_deref().unwrap_or_default(),
        size_bytes: written.size,
        mode: format!("{:04o}", permissions.unwrap_or_default()),
        uploaded_at: rfc3339(nanoseconds(SystemTime::now())),
        timeout_second,
    })
}

pub(in crate::http) async fn download(
    State(app): State<App>,
    DevboxRequest { name, devboxes }: DevboxRequest,
    Params(query): Params<Download>,
    headers: HeaderMap,
) -> Answer {
    seconds(query.timeout_seconds)?;
    let path = inside(&devboxes, query.path.as_deref())?;
    let _visit = devboxes.enter(&name)?;
    let place = tree(&app, &devboxes, &name).await?.file(Some(path)).await?;
    raw::send(place, &headers).await
}

/// The pieces of a body, which break off when the requests in the devbox are to leave it.
fn pieces(
    request: Request,
    visit: &Inside,
) -> impl Stream<Item = Result<Bytes, Problem>> + Unpin + Send + use<> {
    let body = request.into_body().into_data_stream().map_err(|_| body::broken());
    let state = Some((body, visit.leave.clone()));
    Box::pin(stream::unfold(state, async |state| {
        let (mut body, leave) = state?;
        tokio::select! {
            biased;
            () = leave.cancelled() => {
                let message = "the devbox was paused, stopped or deleted before the file was complete: send it again";
                Some((Err(Problem::new(Code::Conflict, message)), None))
            }
            piece = body.next() => Some((piece?, Some((body, leave)))),
        }
    }))
}

/// The workspace of a devbox, which is used.
async fn tree(app: &App, devboxes: &Devboxes, name: &DevboxName) -> Result<TreeRequest, Problem> {
    let tree = Tree::of(&app.service, devboxes.workspace(name));
    tree.note_use().await?;
    Ok(TreeRequest { tree, may_publish: false })
}

/// The path in the workspace that a path of the platform means: one below the work directory, or a relative one.
fn inside<'a>(devboxes: &Devboxes, path: Option<&'a str>) -> Result<&'a str, Problem> {
    let path = path.ok_or_else(|| Problem::invalid("the parameter `path` is missing"))?;
    let below =
        |root: &str| path.strip_prefix(root).filter(|below| below.is_empty() || below.starts_with('/'));
    match below(&devboxes.work_directory).or_else(|| below(WORKSPACE)) {
        Some(below) => Ok(below.strip_prefix('/').unwrap_or(below)),
        None if path.starts_with('/') => {
            let root = &devboxes.work_directory;
            let message = format!(
                "the path is outside `{root}`, the work directory of devboxes: name a file below it, or have the operator set \
                 `devbox.work_directory` to what the platform uses"
            );
            Err(Problem::new(Code::PathEscape, message))
        }
        None => Ok(path),
    }
}

/// Checks the time that an adapter gives a transfer. What ends one here are the limits on connections.
fn seconds(seconds: Option<u64>) -> Result<u64, Problem> {
    let seconds = seconds.unwrap_or(SECONDS);
    if (1..=SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    Err(Problem::invalid(format!("`timeoutSeconds` is {seconds}: send 1 to {SECONDS_MAX}")))
}

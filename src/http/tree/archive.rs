//! `GET T/archive?path&format&layer&version` and `PUT T/archive?path`: a directory of a tree in or out as one archive.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use policy::TreeId;
use serde::{Deserialize, Serialize};
use storage::Spool;
use storage::archive::{Charset, PackFormat};

use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::answer::{disposition, stream};
use crate::http::extract::body::broken;
use crate::http::extract::spooled::{check_announced, spool};
use crate::http::extract::{Local, Params, SeenLayer, TreeRequest, word};
use crate::ops::admission::reads::Reads;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    path: Option<String>,
    format: Option<String>,
    layer: Option<SeenLayer>,
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct PutQuery {
    path: Option<String>,
    charset: Option<String>,
    #[serde(default)]
    parents: bool,
}

#[derive(Serialize)]
struct Beside {
    path: String,
    files: usize,
    bytes: u64,
}

pub(in crate::http) async fn get(
    State(app): State<App>,
    Local(tree): Local<TreeRequest>,
    Params(query): Params<Query>,
) -> Answer {
    let format: PackFormat = word(query.format.as_deref())?;
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    let place = tree.dir(query.path.as_deref()).await?;
    let seen = place.tree.local_seen()?;
    let name = match (place.path.file_name(), &seen.id) {
        (Some(name), _) => name.to_owned(),
        (None, TreeId::Skill(.., skill)) => skill.to_string(),
        (None, TreeId::Workspace(..)) => "workspace".to_owned(),
    };
    let reads = app.service.admission().reads_of(seen.id.user());
    let packed = app.service.pack_directory(seen, place.path, format).await?;
    let content_type = match format {
        PackFormat::Zip => "application/zip",
        PackFormat::Tar => "application/x-tar",
        PackFormat::TarGz => "application/gzip",
    };
    Ok(attached(packed, reads, content_type, &format!("{name}.{}", format.extension())))
}

/// An archive of a known size as an answer that browsers save under `name`.
pub(in crate::http) fn attached(
    (spool, bytes): (Spool, u64),
    reads: Reads,
    content_type: &'static str,
    name: &str,
) -> Response {
    let (file, flight) = spool.into_parts();
    let mut response: Response = stream::counted_body(file, bytes, flight, reads).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Some(disposition) = disposition::attachment(name) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

pub(in crate::http) async fn put(
    State(app): State<App>,
    Local(tree): Local<TreeRequest>,
    Params(query): Params<PutQuery>,
    request: Request,
) -> Answer {
    let charset: Charset = word(query.charset.as_deref())?;
    // What is to be made is a directory, whether the caller says so or not.
    let path = query.path.as_deref().map(|path| path.strip_suffix('/').unwrap_or(path));
    let place = tree.entry(path).await?;
    let (id, to) = (place.tree.local()?.clone(), place.path.clone());
    let mut left = app.service.archive_limits().upload_bytes;
    check_announced(request.headers(), left)?;
    let stream = request.into_body().into_data_stream().map(|chunk| chunk.map_err(|_| broken()));
    let archive = spool(&app, id.user(), stream, &mut left).await?;
    let unpacked = app.service.unpack_directory(id, to, archive, charset, query.parents).await?;
    let beside = Beside { path: place.shown(), files: unpacked.files, bytes: unpacked.bytes };
    let mut response = success_with("Directory made.", beside)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

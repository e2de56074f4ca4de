//! `GET`, `HEAD`, `PUT` and `DELETE` of `T/raw/{path}`: bytes.

use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::{Stream, TryStreamExt};
use policy::RelPath;
use sandbox::{FileInfo, ReadOptions, WriteMode};
use serde::Deserialize;
use storage::tree::Opened;
use storage::{ETag, Stat, WriteOptions, Written};

use super::remove::removed;
use super::{mode, written, written_remotely};
use crate::http::answer::{Answer, bare, tagged_if};
use crate::http::conditional::{self, ByteRange, Fresh};
use crate::http::disposition;
use crate::http::extract::{Params, Place, SeenLayer, TreeRequest};
use crate::http::problem::Problem;
use crate::http::time::{http_date, nanoseconds};
use crate::http::{App, body, stream};
use crate::ops::remote::{self, Backend};

/// Nothing is loaded, nothing runs, and it is of an origin of its own (<https://www.w3.org/TR/CSP3/#directive-sandbox>).
const INERT: &str = "default-src 'none'; sandbox";
/// Permission bits, which HTTP has no word for.
const MODE: HeaderName = HeaderName::from_static("x-mode");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct GetQuery {
    pub(in crate::http) layer: Option<SeenLayer>,
    pub(in crate::http) version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct PutQuery {
    #[serde(default)]
    pub(in crate::http) parents: bool,
    pub(in crate::http) mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DeleteQuery {
    #[serde(default)]
    pub(in crate::http) recursive: bool,
}

/// The headers of an answer with a file.
pub(in crate::http) struct FileHead<'a> {
    pub(in crate::http) path: &'a RelPath,
    pub(in crate::http) size: u64,
    pub(in crate::http) mode: u32,
    pub(in crate::http) modified_ns: i128,
    pub(in crate::http) etag: Option<&'a ETag>,
}

fn path(params: &RawPathParams) -> Option<&str> {
    params.iter().find(|(name, _)| *name == "path").map(|(_, value)| value)
}

pub(in crate::http) async fn get(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    Params(query): Params<GetQuery>,
    headers: HeaderMap,
) -> Answer {
    let tree = tree.seeing(&app, query.layer, query.version.as_deref()).await?;
    let place = tree.file(&app, path(&params)).await?;
    send(&app, place, &headers).await
}

/// Answers with the bytes of a file, or a part of them.
pub(in crate::http) async fn send(app: &App, place: Place, headers: &HeaderMap) -> Answer {
    let seen = place.seen();
    let Place { path, backend, .. } = place;
    if let Some(backend) = backend {
        return get_remotely(&backend, &path, headers).await;
    }
    let reads = app.service.admission().reads_of(seen.id.user());
    let Opened { file, stat, .. } = app.service.open(seen, path.clone()).await?;
    let range = conditional::range(headers, stat.size, Some(&stat.etag()));
    let (response, range) = match head_of(headers, &stat, &path, range)? {
        Ok(headed) => headed,
        Err(not_modified) => return Ok(not_modified),
    };
    let mut response = response;
    *response.body_mut() = stream::body(file, range.first, range.length, reads);
    Ok(response)
}

pub(in crate::http) async fn head(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    Params(query): Params<GetQuery>,
    headers: HeaderMap,
) -> Answer {
    let tree = tree.seeing(&app, query.layer, query.version.as_deref()).await?;
    let place = tree.file(&app, path(&params)).await?;
    let seen = place.seen();
    let Place { path, backend, .. } = place;
    if let Some(backend) = backend {
        let info = backend.stat_file(&path).await?;
        return Ok(match remote_head_of(&headers, &info, &path, None)? {
            Ok((response, _)) | Err(response) => response,
        });
    }
    let Opened { stat, .. } = app.service.open(seen, path.clone()).await?;
    // Ranges are defined for `GET` only (RFC 9110, section 14.2).
    match head_of(&headers, &stat, &path, Ok(None))? {
        Ok((response, _)) => Ok(response),
        Err(not_modified) => Ok(not_modified),
    }
}

/// Answers with bytes of a file that a remote backend holds.
async fn get_remotely(backend: &Backend, path: &RelPath, headers: &HeaderMap) -> Answer {
    let mut range = None;
    let mut looked_at = None;
    if headers.contains_key(header::RANGE) {
        // Which bytes are meant follows from the size, and with `If-Range` from the version.
        let info = backend.stat_file(path).await?;
        let etag = info.version.as_ref().map(remote::tag);
        if let Fresh::NotModified =
            conditional::of_remote_read(headers, info.version.as_ref(), path.as_str())?
        {
            return Ok(not_modified(etag.as_ref()));
        }
        range = conditional::range(headers, info.size, etag.as_ref())?;
        looked_at = info.version;
    }
    let wanted = range.map(|ByteRange { first, length }| first..first.saturating_add(length));
    let mut opened = backend.open(path, ReadOptions { range: wanted, bytes_max: None }).await?;
    if range.is_some() && headers.contains_key(header::IF_RANGE) && opened.info.version != looked_at {
        // A part of another version than the one that the caller has.
        range = None;
        opened = backend.open(path, ReadOptions::default()).await?;
    }
    let part = ByteRange { first: opened.range.start, length: opened.range.end - opened.range.start };
    if range.is_some() && part.length == 0 {
        // The file has become shorter since.
        return Err(conditional::unsatisfiable(opened.info.size));
    }
    let (mut response, _) = match remote_head_of(headers, &opened.info, path, range.map(|_| part))? {
        Ok(headed) => headed,
        Err(not_modified) => return Ok(not_modified),
    };
    *response.body_mut() = Body::from_stream(opened.pieces);
    Ok(response)
}

/// As [`head_of`], of a file that a remote backend holds.
fn remote_head_of(
    headers: &HeaderMap,
    info: &FileInfo,
    path: &RelPath,
    part: Option<ByteRange>,
) -> Result<Result<(Response, ByteRange), Response>, Problem> {
    let etag = info.version.as_ref().map(remote::tag);
    if let Fresh::NotModified = conditional::of_remote_read(headers, info.version.as_ref(), path.as_str())? {
        return Ok(Err(not_modified(etag.as_ref())));
    }
    let modified_ns = nanoseconds(info.modified);
    let head = FileHead { path, size: info.size, mode: info.mode & 0o777, modified_ns, etag: etag.as_ref() };
    Ok(Ok(head.answer(part)))
}

fn not_modified(etag: Option<&ETag>) -> Response {
    tagged_if(bare(StatusCode::NOT_MODIFIED), etag)
}

/// The answer without its body and the part that the body is to be; or the answer that there is nothing new.
fn head_of(
    headers: &HeaderMap,
    stat: &Stat,
    path: &RelPath,
    range: Result<Option<ByteRange>, Problem>,
) -> Result<Result<(Response, ByteRange), Response>, Problem> {
    let etag = stat.etag();
    if let Fresh::NotModified = conditional::of_read(headers, &etag, path.as_str())? {
        return Ok(Err(not_modified(Some(&etag))));
    }
    let range = range?;
    let head =
        FileHead { path, size: stat.size, mode: stat.mode, modified_ns: stat.modified_ns, etag: Some(&etag) };
    Ok(Ok(head.answer(range)))
}

impl FileHead<'_> {
    /// The answer without its body and the part that the body is to be.
    pub(in crate::http) fn answer(&self, range: Option<ByteRange>) -> (Response, ByteRange) {
        let part = range.unwrap_or(ByteRange { first: 0, length: self.size });
        let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut response = tagged_if(bare(status), self.etag);
        let out = response.headers_mut();
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        // A user's file is no page of this host: a browser saves it, and runs nothing of it where it shows the file
        // anyway.
        out.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        out.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(INERT));
        if let Some(disposition) = self.path.file_name().and_then(disposition::attachment) {
            out.insert(header::CONTENT_DISPOSITION, disposition);
        }
        if let Ok(mode) = HeaderValue::try_from(format!("{:04o}", self.mode)) {
            out.insert(MODE, mode);
        }
        out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        out.insert(header::CONTENT_LENGTH, HeaderValue::from(part.length));
        if let Ok(date) = HeaderValue::try_from(http_date(self.modified_ns)) {
            out.insert(header::LAST_MODIFIED, date);
        }
        if range.is_some() {
            let last = part.first + part.length.saturating_sub(1);
            if let Ok(value) = HeaderValue::try_from(format!("bytes {}-{last}/{}", part.first, self.size)) {
                out.insert(header::CONTENT_RANGE, value);
            }
        }
        (response, part)
    }
}

/// Refuses a body that says that it has more bytes than a file may.
pub(in crate::http) fn check_announced(headers: &HeaderMap, limit: u64) -> Result<(), Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match announced.and_then(|value| value.parse::<u64>().ok()) {
        Some(bytes) if bytes > limit => Err(Problem::too_large("the file", limit)),
        _ => Ok(()),
    }
}

pub(in crate::http) async fn put(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    Params(query): Params<PutQuery>,
    request: Request,
) -> Answer {
    let place = tree.file(&app, path(&params)).await?;
    let condition = conditional::of_change(request.headers())?;
    let permissions = mode(query.mode.as_deref())?;
    let options = WriteOptions { condition, parents: query.parents, mode: permissions };
    check_announced(request.headers(), app.service.file_limits().raw_bytes)?;
    let pieces = request.into_body().into_data_stream().map_err(|_| body::broken());
    let result = match store(&app, &place, options, pieces).await? {
        Stored::Here(result) => result,
        Stored::Elsewhere { written, created } => {
            let remote::Written { bytes, version } = written;
            let sentence = "File written.";
            let mut response = written_remotely(sentence, &place, bytes, version.as_ref(), created, None)?;
            if created == Some(true) {
                *response.status_mut() = StatusCode::CREATED;
            }
            return Ok(response);
        }
    };
    let mut response = written("File written.", &place, &result, None)?;
    if result.created {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// A file that was written, here or by a remote backend.
pub(in crate::http) enum Stored {
    Here(Written),
    /// Whether there was no file before, no backend tells; but one that was to be new is new, and one that was swapped was there.
    Elsewhere {
        written: remote::Written,
        created: Option<bool>,
    },
}

impl Stored {
    /// The size of the file, in bytes.
    pub(in crate::http) fn size(&self) -> u64 {
        match self {
            Self::Here(written) => written.stat.size,
            Self::Elsewhere { written, .. } => written.bytes,
        }
    }
}

/// Writes a file whose bytes come as `pieces`, as many as a file may have.
pub(in crate::http) async fn store(
    app: &App,
    place: &Place,
    options: WriteOptions,
    pieces: impl Stream<Item = Result<Bytes, Problem>> + Unpin + Send + 'static,
) -> Result<Stored, Problem> {
    let limit = app.service.file_limits().raw_bytes;
    let Some(backend) = &place.backend else {
        let (id, path) = (place.id.clone(), place.path.clone());
        return Ok(Stored::Here(app.service.write(id, path, pieces, options, limit).await?));
    };
    let mode = backend.mode(&place.path, &options.condition).await?;
    let created = match &mode {
        WriteMode::Replace => None,
        WriteMode::Create => Some(true),
        WriteMode::Swap(_) => Some(false),
    };
    // Above a file that is there nothing is missing.
    if options.parents && created != Some(false) {
        backend.make_parents(&place.path).await?;
    }
    let options = sandbox::WriteOptions { mode, permissions: options.mode };
    let written = backend.write(&place.path, pieces, options, limit).await?;
    Ok(Stored::Elsewhere { written, created })
}

pub(in crate::http) async fn delete(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    headers: HeaderMap,
    Params(query): Params<DeleteQuery>,
) -> Answer {
    let place = tree.entry(&app, path(&params)).await?;
    removed(&app, place, query.recursive, &headers).await
}

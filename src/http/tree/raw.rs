//! `GET`, `HEAD`, `PUT` and `DELETE` of `T/raw/{path}`: bytes.

use std::ops::Range;

use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::TryStreamExt;
use policy::RelPath;
use serde::Deserialize;
use storage::{ETag, WriteOptions};

use super::remove::removed;
use super::{mode, written};
use crate::http::App;
use crate::http::answer::disposition;
use crate::http::answer::problem::Problem;
use crate::http::answer::stream;
use crate::http::answer::time::http_date;
use crate::http::answer::{Answer, bare, tagged_if};
use crate::http::extract::body;
use crate::http::extract::conditional::{self, ByteRange, Fresh};
use crate::http::extract::{Params, Place, SeenLayer, TreeRequest};
use crate::ops::tree::facts::Facts;
use crate::ops::tree::{Extent, Opened, Wanted};

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
struct FileHead<'a> {
    path: &'a RelPath,
    size: u64,
    mode: Option<u32>,
    modified_ns: Option<i128>,
    etag: Option<&'a ETag>,
}

fn path(params: &RawPathParams) -> Option<&str> {
    params.iter().find(|(name, _)| *name == "path").map(|(_, value)| value)
}

pub(in crate::http) async fn get(
    tree: TreeRequest,
    params: RawPathParams,
    Params(query): Params<GetQuery>,
    headers: HeaderMap,
) -> Answer {
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    send(tree.file(path(&params)).await?, &headers).await
}

/// Answers with the bytes of a file, or a part of them.
pub(in crate::http) async fn send(Place { tree, path, .. }: Place, headers: &HeaderMap) -> Answer {
    let extent = if headers.contains_key(header::RANGE) { Extent::Part } else { Extent::Whole };
    let wanted = |file: &Facts| wanted(headers, file, &path);
    let Opened { facts, wanted, content } = tree.open(&path, extent, wanted).await?;
    let etag = facts.etag();
    let head = FileHead::of(&path, &facts, etag.as_ref());
    let range = match wanted {
        Wanted::Nothing => return Ok(not_modified(etag.as_ref())),
        Wanted::All => None,
        Wanted::Part(Range { start, end }) => Some(ByteRange { first: start, length: end - start }),
    };
    let (mut response, part) = head.answer(range);
    *response.body_mut() = stream::content(content, part.first, part.length);
    Ok(response)
}

/// The bytes that a request for a file asks for.
fn wanted(headers: &HeaderMap, file: &Facts, path: &RelPath) -> Result<Wanted, Problem> {
    let etag = file.etag();
    if let Fresh::NotModified = conditional::of_read(headers, etag.as_ref(), path.as_str())? {
        return Ok(Wanted::Nothing);
    }
    let range = conditional::range(headers, file.size, etag.as_ref())?;
    Ok(range.map_or(Wanted::All, |ByteRange { first, length }| Wanted::Part(first..first + length)))
}

pub(in crate::http) async fn head(
    tree: TreeRequest,
    params: RawPathParams,
    Params(query): Params<GetQuery>,
    headers: HeaderMap,
) -> Answer {
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    let Place { tree, path, .. } = tree.file(path(&params)).await?;
    let facts = tree.stat_file(&path).await?;
    let etag = facts.etag();
    // Ranges are defined for `GET` only (RFC 9110, section 14.2).
    Ok(match conditional::of_read(&headers, etag.as_ref(), path.as_str())? {
        Fresh::NotModified => not_modified(etag.as_ref()),
        Fresh::Send => FileHead::of(&path, &facts, etag.as_ref()).answer(None).0,
    })
}

fn not_modified(etag: Option<&ETag>) -> Response {
    tagged_if(bare(StatusCode::NOT_MODIFIED), etag)
}

impl<'a> FileHead<'a> {
    fn of(path: &'a RelPath, facts: &Facts, etag: Option<&'a ETag>) -> Self {
        Self { path, size: facts.size, mode: facts.mode, modified_ns: facts.modified_ns, etag }
    }

    /// The answer without its body and the part that the body is to be.
    fn answer(&self, range: Option<ByteRange>) -> (Response, ByteRange) {
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
        if let Some(Ok(mode)) = self.mode.map(|mode| HeaderValue::try_from(format!("{mode:04o}"))) {
            out.insert(MODE, mode);
        }
        out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        out.insert(header::CONTENT_LENGTH, HeaderValue::from(part.length));
        if let Some(Ok(date)) = self.modified_ns.map(|time| HeaderValue::try_from(http_date(time))) {
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
    let place = tree.file(path(&params)).await?;
    let condition = conditional::of_change(request.headers())?;
    let permissions = mode(query.mode.as_deref())?;
    let options = WriteOptions { condition, parents: query.parents, mode: permissions };
    check_announced(request.headers(), app.service.file_limits().raw_bytes)?;
    let pieces = request.into_body().into_data_stream().map_err(|_| body::broken());
    let result = place.tree.write(&place.path, pieces, options).await?;
    let is_new = result.created == Some(true);
    let mut response = written("File written.", &place, result)?;
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

pub(in crate::http) async fn delete(
    tree: TreeRequest,
    params: RawPathParams,
    headers: HeaderMap,
    Params(query): Params<DeleteQuery>,
) -> Answer {
    removed(tree.entry(path(&params)).await?, query.recursive, &headers).await
}

//! `GET`, `HEAD`, `PUT` and `DELETE` of `T/raw/{path}`: bytes.

use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::TryStreamExt;
use policy::{RelPath, TreeId};
use serde::Deserialize;
use storage::tree::Opened;
use storage::{ETag, Stat, WriteOptions};

use super::{mode, written};
use crate::http::answer::{Answer, bare, success, tagged};
use crate::http::conditional::{self, ByteRange, Fresh};
use crate::http::disposition;
use crate::http::problem::Problem;
use crate::http::request::{NoParams, Params, TreeRequest, path_of};
use crate::http::time::http_date;
use crate::http::{App, body, stream};

/// Nothing is loaded, nothing runs, and it is of an origin of its own (<https://www.w3.org/TR/CSP3/#directive-sandbox>).
const INERT: &str = "default-src 'none'; sandbox";
/// Permission bits, which HTTP has no word for.
const MODE: HeaderName = HeaderName::from_static("x-mode");

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

/// What the head of an answer tells of a file.
pub(in crate::http) struct FileHead<'a> {
    pub(in crate::http) path: &'a RelPath,
    pub(in crate::http) size: u64,
    pub(in crate::http) mode: u32,
    pub(in crate::http) modified_ns: i128,
    pub(in crate::http) etag: Option<&'a ETag>,
}

pub(in crate::http) fn path(id: &TreeId, params: &RawPathParams) -> Result<RelPath, Problem> {
    path_of(id, params.iter().find(|(name, _)| *name == "path").map(|(_, value)| value))
}

pub(in crate::http) async fn get(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    _: NoParams,
    headers: HeaderMap,
) -> Answer {
    let path = path(&tree.id, &params)?;
    let Opened { file, stat, .. } = app.service.open(tree.id, path.clone()).await?;
    let range = conditional::range(&headers, stat.size, Some(&stat.etag()));
    let (response, range) = match head_of(&headers, &stat, &path, range)? {
        Ok(headed) => headed,
        Err(not_modified) => return Ok(not_modified),
    };
    let mut response = response;
    *response.body_mut() = stream::body(file, range.first, range.length);
    Ok(response)
}

pub(in crate::http) async fn head(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    _: NoParams,
    headers: HeaderMap,
) -> Answer {
    let path = path(&tree.id, &params)?;
    let Opened { stat, .. } = app.service.open(tree.id, path.clone()).await?;
    // Ranges are defined for `GET` only (RFC 9110, section 14.2).
    match head_of(&headers, &stat, &path, Ok(None))? {
        Ok((response, _)) => Ok(response),
        Err(not_modified) => Ok(not_modified),
    }
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
        return Ok(Err(tagged(bare(StatusCode::NOT_MODIFIED), &etag)));
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
        let mut response = bare(if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK });
        if let Some(etag) = self.etag {
            response = tagged(response, etag);
        }
        let out = response.headers_mut();
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        // What a user stored is no page of this host: a browser saves it, and runs nothing of it where it shows it anyway.
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
    let path = path(&tree.id, &params)?;
    let options = WriteOptions {
        condition: conditional::of_change(request.headers())?,
        parents: query.parents,
        mode: mode(query.mode.as_deref())?,
    };
    let limit = app.service.file_limits.raw_bytes;
    check_announced(request.headers(), limit)?;
    let pieces = request.into_body().into_data_stream().map_err(|_| body::broken());
    let result = app.service.write(tree.id, path.clone(), pieces, options, limit).await?;
    let mut response = written("File written.", &path, &result, None)?;
    if result.created {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

pub(in crate::http) async fn delete(
    State(app): State<App>,
    tree: TreeRequest,
    params: RawPathParams,
    headers: HeaderMap,
    Params(query): Params<DeleteQuery>,
) -> Answer {
    let path = path(&tree.id, &params)?;
    let condition = conditional::of_change(&headers)?;
    app.service.remove(tree.id, path, query.recursive, condition).await?;
    success("Removed.")
}

//! `GET`, `HEAD` and `PUT` of `/v1/sandbox/{u}/{a}/raw/{path}`: bytes.

use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::TryStreamExt;
use policy::RelPath;
use sandbox::{FileInfo, ReadOptions, WriteMode, WriteOptions};

use super::{Answer, Elsewhere};
use crate::http::answer::success_with;
use crate::http::conditional::{self, ByteRange};
use crate::http::request::{NoParams, Params};
use crate::http::time::nanoseconds;
use crate::http::tree::raw::{FileHead, PutQuery, check_announced, path};
use crate::http::tree::{WrittenFacts, mode};
use crate::http::{App, body};
use crate::ops::elsewhere::Opened;

pub(super) async fn get(tree: Elsewhere, params: RawPathParams, _: NoParams, headers: HeaderMap) -> Answer {
    let path = path(&tree.id, &params)?;
    conditional::of_untagged_read(&headers)?;
    let range = match headers.contains_key(header::RANGE) {
        // Which bytes are meant follows from the size.
        true => conditional::range(&headers, tree.backend.stat_file(&path).await?.size, None)?,
        false => None,
    };
    let wanted = range.map(|ByteRange { first, length }| first..first.saturating_add(length));
    let options = ReadOptions { range: wanted, bytes_max: None };
    let Opened { info, range: came, pieces } = tree.backend.open(&path, options).await?;
    let part = ByteRange { first: came.start, length: came.end - came.start };
    if range.is_some() && part.length == 0 {
        // It has become shorter since.
        return Err(conditional::unsatisfiable(info.size));
    }
    let (mut response, _) = head_of(&path, &info).answer(range.map(|_| part));
    *response.body_mut() = Body::from_stream(pieces);
    Ok(response)
}

pub(super) async fn head(tree: Elsewhere, params: RawPathParams, _: NoParams, headers: HeaderMap) -> Answer {
    let path = path(&tree.id, &params)?;
    conditional::of_untagged_read(&headers)?;
    Ok(head_of(&path, &tree.backend.stat_file(&path).await?).answer(None).0)
}

fn head_of<'a>(path: &'a RelPath, info: &FileInfo) -> FileHead<'a> {
    let modified_ns = nanoseconds(info.modified);
    FileHead { path, size: info.size, mode: info.mode & 0o777, modified_ns, etag: None }
}

pub(super) async fn put(
    State(app): State<App>,
    tree: Elsewhere,
    params: RawPathParams,
    Params(query): Params<PutQuery>,
    request: Request,
) -> Answer {
    let path = path(&tree.id, &params)?;
    let write_mode = conditional::of_untagged_change(request.headers())?;
    let options = WriteOptions { mode: write_mode, permissions: mode(query.mode.as_deref())? };
    let limit = app.service.file_limits.raw_bytes;
    check_announced(request.headers(), limit)?;
    if query.parents {
        tree.backend.make_parents(&path).await?;
    }
    let pieces = request.into_body().into_data_stream().map_err(|_| body::broken());
    let size = tree.backend.write(&path, pieces, options, limit).await?;
    // Whether there was one before, no backend tells; but one that was to be new is.
    let created = (write_mode == WriteMode::Create).then_some(true);
    let facts = WrittenFacts { path: path.to_string(), etag: None, size, created, encoding: None };
    let mut response = success_with("File written.", facts)?;
    if created.is_some() {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

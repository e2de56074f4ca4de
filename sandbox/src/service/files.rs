//! Files and directories through the routes of a tree.

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED,
    RANGE,
};
use hyper::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::http::{Http, PATIENCE, broken, drain, nothing, success, whole};
use super::upload::Upload;
use crate::{
    ByteStream, DirEntry, Error, ErrorKind, FileBody, FileInfo, FileKind, ReadOptions, Result, SandboxPath,
    Version, WriteMode, WriteOptions,
};

/// A file of fewer bytes than this, if they come at once, is sent with its length.
const SMALL_BYTES: usize = 1 << 20;
/// The bits of directories that the service makes on the way to another.
const MODE_ABOVE: u32 = 0o755;

#[derive(Deserialize)]
struct Facts {
    kind: FileKind,
    size: u64,
    mode: String,
    modified_at: String,
    /// None of a workspace elsewhere that tells no versions.
    etag: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    kind: FileKind,
    size: u64,
}

#[derive(Serialize)]
struct Mkdir<'a> {
    path: &'a str,
    mode: String,
    parents: bool,
}

pub(super) async fn read(
    http: &Http,
    at: &Address,
    path: &SandboxPath,
    options: ReadOptions,
) -> Result<FileBody> {
    if at.path.is_empty() {
        return Err(Error::about(ErrorKind::IsDirectory, "read_file", path));
    }
    let range = options.range.clone();
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        return nothing_of(http, at, path, &options).await;
    }
    let headers: Vec<(HeaderName, HeaderValue)> = range.iter().filter_map(range_header).collect();
    let response = http.send("read_file", Method::GET, &at.raw(), &headers, nothing(), PATIENCE).await?;
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return nothing_of(http, at, path, &options).await;
    }
    let response = success("read_file", response).await.map_err(|error| error.at(path))?;
    let size = match response.status() {
        StatusCode::PARTIAL_CONTENT => total(&response),
        _ => number(response.headers().get(CONTENT_LENGTH)),
    };
    let size = size.ok_or_else(|| broken("read_file").at(path))?;
    let info = info_of(&response, path, size);
    let window = options.window(size, path)?;
    let begin = match response.status() {
        StatusCode::PARTIAL_CONTENT => begin(&response),
        _ => Some(0),
    };
    if begin != Some(window.start) {
        return Err(other_bytes(path));
    }
    Ok(FileBody { info, range: window.clone(), stream: body(response, window, path) })
}

fn other_bytes(path: &SandboxPath) -> Error {
    Error::new(ErrorKind::Internal, "read_file", "the service sent other bytes than those asked for").at(path)
}

/// No bytes, with the facts of the file: what HTTP has no range for.
async fn nothing_of(
    http: &Http,
    at: &Address,
    path: &SandboxPath,
    options: &ReadOptions,
) -> Result<FileBody> {
    let info = stat(http, at, path).await?;
    match info.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::about(ErrorKind::IsDirectory, "read_file", path)),
        FileKind::Symlink | FileKind::Other => {
            return Err(Error::about(ErrorKind::PermissionDenied, "read_file", path));
        }
    }
    let window = options.window(info.size, path)?;
    Ok(FileBody::whole(info, window, Bytes::new()))
}

fn range_header(range: &Range<u64>) -> Option<(HeaderName, HeaderValue)> {
    Some((RANGE, HeaderValue::try_from(format!("bytes={}-{}", range.start, range.end - 1)).ok()?))
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.parse().ok()
}

/// The size of the whole file of which a part comes: what follows `/`.
fn total(response: &Response<Incoming>) -> Option<u64> {
    response.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

/// The first byte that comes: what is between the unit and `-`.
fn begin(response: &Response<Incoming>) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.parse().ok()
}

fn info_of(response: &Response<Incoming>, path: &SandboxPath, size: u64) -> FileInfo {
    let text = |name: &str| response.headers().get(name)?.to_str().ok();
    FileInfo {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind: FileKind::File,
        size,
        mode: text("x-mode").and_then(|mode| u32::from_str_radix(mode, 8).ok()).unwrap_or(0o644),
        modified: text(LAST_MODIFIED.as_str())
            .and_then(|date| httpdate::parse_http_date(date).ok())
            .unwrap_or(SystemTime::UNIX_EPOCH),
        version: version_of(response),
    }
}

/// The version that a strong tag of an answer is.
fn version_of(response: &Response<Incoming>) -> Option<Version> {
    Version::of_tag(response.headers().get(ETAG)?.to_str().ok()?)
}

/// The bytes of an answer, each piece of which comes in time, and all of which come.
fn body(response: Response<Incoming>, window: Range<u64>, path: &SandboxPath) -> ByteStream {
    let (expected, path) = (window.end - window.start, path.clone());
    let pieces = response.into_body().into_data_stream();
    stream::try_unfold((pieces, expected), move |(mut pieces, left)| {
        let path = path.clone();
        async move {
            let next = tokio::time::timeout(PATIENCE, pieces.try_next()).await;
            let next = next.map_err(|_| Error::about(ErrorKind::Timeout, "read_file", &path))?;
            match next.map_err(|error| broken("read_file").at(&path).because(error))? {
                Some(piece) => match left.checked_sub(piece.len() as u64) {
                    Some(left) => Ok(Some((piece, (pieces, left)))),
                    None => Err(other_bytes(&path)),
                },
                None if left == 0 => Ok(None),
                None => Err(broken("read_file").at(&path)),
            }
        }
    })
    .boxed()
}

pub(super) async fn write(
    http: &Http,
    at: &Address,
    path: &SandboxPath,
    mut body: ByteStream,
    options: WriteOptions,
) -> Result<Option<Version>> {
    let is_new = options.mode == WriteMode::Create;
    let taken = |error: Error| match error.kind() {
        // Something is there that was not to be: a file, a directory, or a link to nothing.
        ErrorKind::IsDirectory | ErrorKind::Stale if is_new => {
            Error::about(ErrorKind::AlreadyExists, "write_file", path).because(error)
        }
        _ => error.at(path),
    };
    if at.path.is_empty() {
        return Err(taken(Error::about(ErrorKind::IsDirectory, "write_file", path)));
    }
    let target = match options.permissions {
        Some(bits) => format!("{}?mode={bits:04o}", at.raw()),
        None => at.raw(),
    };
    let condition = match &options.mode {
        WriteMode::Replace => None,
        WriteMode::Create => Some((IF_NONE_MATCH, HeaderValue::from_static("*"))),
        WriteMode::Swap(version) => {
            let tag = HeaderValue::try_from(version.tag());
            Some((IF_MATCH, tag.map_err(|_| Error::about(ErrorKind::Invalid, "write_file", path))?))
        }
    };
    let headers = condition.as_slice();
    let first = body.try_next().await?.unwrap_or_default();
    let response = match (first.len() < SMALL_BYTES, body.try_next().await?) {
        (true, None) => {
            http.send("write_file", Method::PUT, &target, headers, whole(first), PATIENCE).await?
        }
        (_, second) => {
            let begun = stream::iter([first].into_iter().chain(second).map(Ok));
            http.upload("write_file", &target, headers, Upload::new(begun.chain(body).boxed(), path)).await?
        }
    };
    let response = success("write_file", response).await.map_err(taken)?;
    let version = version_of(&response);
    drain(response).await;
    Ok(version)
}

pub(super) async fn stat(http: &Http, at: &Address, path: &SandboxPath) -> Result<FileInfo> {
    let name = path.file_name().unwrap_or_default().to_owned();
    match http.ask::<Facts>("stat", Method::GET, &at.with_path("stat")).await {
        Ok(facts) => Ok(FileInfo {
            name,
            kind: facts.kind,
            size: facts.size,
            mode: u32::from_str_radix(&facts.mode, 8).unwrap_or(0),
            modified: time_of(&facts.modified_at),
            version: facts
                .etag
                .filter(|_| facts.kind == FileKind::File)
                .and_then(|etag| Version::of_tag(&etag)),
        }),
        Err(error) if error.is_not_found() && is_workspace(at) => Ok(untouched(name)),
        Err(error) => Err(error.at(path)),
    }
}

/// A workspace in which nothing was written yet is an empty directory.
fn untouched(name: String) -> FileInfo {
    FileInfo {
        name,
        kind: FileKind::Directory,
        size: 0,
        mode: 0o755,
        modified: SystemTime::UNIX_EPOCH,
        version: None,
    }
}

fn is_workspace(at: &Address) -> bool {
    at.path.is_empty() && at.tree.starts_with("/v1/sandbox/")
}

fn time_of(text: &str) -> SystemTime {
    let parsed = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
    parsed.map_or(SystemTime::UNIX_EPOCH, SystemTime::from)
}

pub(super) async fn read_dir(http: &Http, at: &Address, path: &SandboxPath) -> Result<Vec<DirEntry>> {
    match http.ask::<Vec<Listed>>("read_dir", Method::GET, &at.with_path("dir")).await {
        Ok(listed) => Ok(listed
            .into_iter()
            .map(|entry| DirEntry { name: entry.name, kind: entry.kind, size: entry.size })
            .collect()),
        Err(error) if error.is_not_found() && is_workspace(at) => Ok(Vec::new()),
        Err(error) => Err(error.at(path)),
    }
}

pub(super) async fn mkdir_all(http: &Http, at: &Address, path: &SandboxPath, mode: u32) -> Result<()> {
    // The service gives missing levels above 0755; with other bits each level is asked for by itself.
    let ends =
        at.path.match_indices('/').map(|(end, _)| end).filter(|_| mode != MODE_ABOVE).chain([at.path.len()]);
    for level in ends.filter_map(|end| at.path.get(..end)).filter(|level| !level.is_empty()) {
        let body = Mkdir { path: level, mode: format!("{mode:04o}"), parents: true };
        let target = format!("{}/mkdir", at.tree);
        let made = http.post::<serde::de::IgnoredAny>("mkdir_all", &target, &body, PATIENCE).await;
        made.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Error::about(ErrorKind::NotADirectory, "mkdir_all", path).because(error)
            }
            _ => error.at(path),
        })?;
    }
    Ok(())
}

pub(super) async fn remove(
    http: &Http,
    operation: &'static str,
    at: &Address,
    path: &SandboxPath,
    recursive: bool,
) -> Result<()> {
    if at.path.is_empty() {
        return Err(Error::about(ErrorKind::Invalid, operation, path));
    }
    let target = format!("{}?recursive={recursive}", at.raw());
    // A large tree takes its time.
    let patience = if recursive { PATIENCE * 10 } else { PATIENCE };
    let response = http.send(operation, Method::DELETE, &target, &[], nothing(), patience).await?;
    match success(operation, response).await {
        Ok(response) => {
            drain(response).await;
            Ok(())
        }
        Err(error) if recursive && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(())
        }
        Err(error) => Err(error.at(path)),
    }
}

/// The user's skills as directories.
pub(super) async fn read_skills(http: &Http, routes: &str, path: &SandboxPath) -> Result<Vec<DirEntry>> {
    #[derive(Deserialize)]
    struct Skill {
        skill_id: String,
    }
    let skills = http.ask::<Vec<Skill>>("read_dir", Method::GET, &format!("{routes}/list")).await;
    let entry = |skill: Skill| DirEntry { name: skill.skill_id, kind: FileKind::Directory, size: 0 };
    skills.map(|skills| skills.into_iter().map(entry).collect()).map_err(|error| error.at(path))
}

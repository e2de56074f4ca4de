//! Files and directories through the operations of the service.

use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt};
use policy::RelPath;
use sandbox::{
    ByteStream, DirEntry, Error, ErrorKind, FILE_BYTES_MAX, FileBody, FileInfo, FileKind, ReadOptions,
    Result, SandboxPath, Version, WriteMode, WriteOptions,
};
use storage::tree::Opened;
use storage::{Condition, ETag, Kind, Stat};

use super::record::{Records, entry, recorded};
use super::store_path::At;
use super::{errors, unmade};
use crate::ops::Service;
use crate::ops::pieces::pieces;
use crate::ops::write::Unwritten;

/// The bits of directories that the service makes on the way to another.
const MODE_ABOVE: u32 = 0o755;

pub(super) async fn read(
    service: &Service,
    at: At,
    path: &SandboxPath,
    options: ReadOptions,
) -> Result<FileBody> {
    if at.path.is_root() {
        return Err(Error::about(ErrorKind::IsDirectory, "read_file", path));
    }
    let reads = service.admission().reads_of(at.tree.user());
    let opened = service.open(at.tree, at.path).await;
    let Opened { file, stat, .. } = opened.map_err(|error| errors::at("read_file", path, error))?;
    let range = options.window(stat.size, path)?;
    let of_stream = path.clone();
    let stream = pieces(file, range.start, range.end - range.start, reads).map_err(move |error| {
        Error::new(ErrorKind::Internal, "read_file", "the file broke off").at(&of_stream).because(error)
    });
    Ok(FileBody { info: info(&stat, path), range, stream: stream.boxed() })
}

pub(super) async fn write(
    service: &Service,
    records: Records,
    at: At,
    path: &SandboxPath,
    body: ByteStream,
    options: WriteOptions,
) -> Result<Option<Version>> {
    let is_new = options.mode == WriteMode::Create;
    if at.path.is_root() {
        let kind = if is_new { ErrorKind::AlreadyExists } else { ErrorKind::IsDirectory };
        return Err(Error::about(kind, "write_file", path));
    }
    let options = storage::WriteOptions {
        condition: match &options.mode {
            WriteMode::Replace => Condition::Always,
            WriteMode::Create => Condition::Missing,
            WriteMode::Swap(version) => Condition::Matches(vec![ETag::from_opaque(version.as_str())]),
        },
        parents: false,
        mode: options.permissions,
    };
    let limit = service.file_limits().raw_bytes.min(FILE_BYTES_MAX);
    let entry = entry("write_file", &at);
    let written = async {
        match service.write(at.tree, at.path, body, options, limit).await {
            Ok(written) => Ok(version(&written.stat)),
            Err(Unwritten::Sender(error)) => Err(error),
            Err(Unwritten::Service(error)) => {
                let error = errors::at("write_file", path, error);
                match error.kind() {
                    // Something is there that was not to be: a file, a directory, or a link to nothing.
                    ErrorKind::IsDirectory | ErrorKind::Stale if is_new => {
                        Err(Error::about(ErrorKind::AlreadyExists, "write_file", path).because(error))
                    }
                    _ => Err(error),
                }
            }
        }
    };
    recorded((service, records), "write_file", entry, written).await
}

pub(super) async fn stat(service: &Service, at: At, path: &SandboxPath) -> Result<FileInfo> {
    let is_workspace = at.is_workspace();
    match service.stat(at.tree, at.path).await {
        Ok((stat, _)) => Ok(info(&stat, path)),
        Err(error) => match errors::at("stat", path, error) {
            error if error.is_not_found() && is_workspace => Ok(unmade(path)),
            error => Err(error),
        },
    }
}

pub(super) async fn read_dir(service: &Service, at: At, path: &SandboxPath) -> Result<Vec<DirEntry>> {
    let children = service.list_dir(at.tree, at.path).await;
    let mut children = children.map_err(|error| errors::at("read_dir", path, error))?;
    children.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let entry = |(child, stat): (storage::tree::Child, Option<Stat>)| DirEntry {
        name: child.name.to_string_lossy().into_owned(),
        kind: kind(child.kind),
        size: stat.map_or(0, |stat| stat.size),
    };
    Ok(children.into_iter().map(entry).collect())
}

pub(super) async fn mkdir_all(
    service: &Service,
    records: Records,
    at: At,
    path: &SandboxPath,
    mode: u32,
) -> Result<()> {
    let made = async {
        for level in levels(&at.path, mode) {
            let made = service.make_dir(at.tree.clone(), level, mode, true).await;
            made.map_err(|error| match errors::at("mkdir_all", path, error) {
                error if error.kind() == ErrorKind::AlreadyExists => {
                    Error::about(ErrorKind::NotADirectory, "mkdir_all", path).because(error)
                }
                error => error,
            })?;
        }
        Ok(())
    };
    if at.path.is_root() {
        return Ok(());
    }
    recorded((service, records), "mkdir_all", entry("mkdir_all", &at), made).await
}

/// The directories to ask for. The service gives missing levels above [`MODE_ABOVE`]; with other bits each level is
/// asked for by itself.
fn levels(path: &RelPath, mode: u32) -> Vec<RelPath> {
    let upwards = std::iter::successors(Some(path.clone()), RelPath::parent);
    let most = if mode == MODE_ABOVE { 1 } else { usize::MAX };
    let mut levels: Vec<RelPath> = upwards.take_while(|level| !level.is_root()).take(most).collect();
    levels.reverse();
    levels
}

pub(super) async fn remove(
    service: &Service,
    records: Records,
    operation: &'static str,
    at: At,
    path: &SandboxPath,
    recursive: bool,
) -> Result<()> {
    if at.path.is_root() {
        return Err(Error::about(ErrorKind::Invalid, operation, path));
    }
    let entry = entry(operation, &at);
    let removed = async {
        let removed = service.remove(at.tree, at.path, recursive, Condition::Always).await;
        match removed.map_err(|error| errors::at(operation, path, error)) {
            Err(error)
                if recursive && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(())
            }
            other => other,
        }
    };
    recorded((service, records), operation, entry, removed).await
}

fn info(stat: &Stat, path: &SandboxPath) -> FileInfo {
    FileInfo {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind: kind(stat.kind),
        size: stat.size,
        mode: stat.mode,
        modified: time(stat.modified_ns),
        version: version(stat),
    }
}

/// The version of a regular file: its tag.
fn version(stat: &Stat) -> Option<Version> {
    Version::parse(stat.etag().as_str()).ok().filter(|_| stat.kind == Kind::File)
}

pub(super) fn kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Other => FileKind::Other,
    }
}

/// Nanoseconds since 1970 as a time; commands may set any.
fn time(nanoseconds: i128) -> SystemTime {
    let distance = u64::try_from(nanoseconds.unsigned_abs()).map_or(Duration::MAX, Duration::from_nanos);
    let time = if nanoseconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

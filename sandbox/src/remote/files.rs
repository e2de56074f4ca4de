//! Requests about files that fit one frame: all of a founding runner, and those without bytes of every runner.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::PATIENCE;
use super::answer::Answer;
use super::link::{Call, Link};
use super::machine::Lent;
use crate::wire::request::{MkdirAll, Path, WriteFile};
use crate::wire::response::Failed;
use crate::wire::{Data, ONE_FRAME_BYTES_MAX, Request, Response, mode, response};
use crate::{
    ByteStream, DIR_ENTRIES_MAX, DirEntry, Error, ErrorKind, FileBody, FileInfo, FileKind, ReadOptions,
    Result, SandboxPath, Version, WriteMode, WriteOptions,
};

/// The permission bits of new files, which founding runners make without any.
const FILE: u32 = 0o644;

/// Asks about `path`; an `error` is one of ours.
pub(super) async fn ask(
    link: &Lent,
    operation: &'static str,
    request: &Request,
    path: &SandboxPath,
) -> Result<Answer> {
    let call = Call { operation, request, patience: PATIENCE, output_bytes_max: 0 };
    let answered = match request {
        request if request.is_change() => link.change(call).await,
        // Asked again on the next connection of the machine: nothing is done twice by it.
        Request::Stat(_) | Request::ReadDir(_) => link.look(call).await.map(|(_, answer)| answer),
        _ => link.call(call).await,
    };
    let answer = answered.map_err(|error| error.at(path))?;
    match &answer.response {
        Response::Error(told) => Err(failure(operation, told, path)),
        _ => Ok(answer),
    }
}

/// What a runner failed with, in the words that all backends share: its own may name anything of its machine.
pub(super) fn failure(operation: &'static str, told: &Failed, path: &SandboxPath) -> Error {
    let kind = told.kind(matches!(operation, "remove" | "remove_all"));
    Error::about(kind, operation, path)
}

/// An answer of another type than the request has.
pub(super) fn nonsense(operation: &'static str, path: &SandboxPath) -> Error {
    Error::new(ErrorKind::Internal, operation, "the runner answered something else than was asked").at(path)
}

fn at(path: &SandboxPath) -> Path {
    Path { path: path.as_str().to_owned() }
}

/// Awaits that `request` is done.
async fn done(link: &Lent, operation: &'static str, request: &Request, path: &SandboxPath) -> Result<()> {
    match ask(link, operation, request, path).await?.response {
        Response::Ok => Ok(()),
        _ => Err(nonsense(operation, path)),
    }
}

pub(super) async fn stat(link: &Lent, operation: &'static str, path: &SandboxPath) -> Result<FileInfo> {
    match ask(link, operation, &Request::Stat(at(path)), path).await?.response {
        Response::FileInfo(told) => Ok(info(link, told, path)),
        _ => Err(nonsense(operation, path)),
    }
}

/// What a runner told about `path`.
pub(super) fn info(link: &Link, told: response::FileInfo, path: &SandboxPath) -> FileInfo {
    let (kind, permissions) = mode::from_wire(told.mode);
    let kind = if told.is_dir { FileKind::Directory } else { kind };
    let modified = match told.modified_ns {
        Some(since) => moment(since),
        None => {
            OffsetDateTime::parse(&told.mod_time, &Rfc3339).map_or(SystemTime::UNIX_EPOCH, SystemTime::from)
        }
    };
    let name = path.file_name().unwrap_or_default().to_owned();
    let version = told.version.filter(|_| kind == FileKind::File);
    let version = self::version(link, version);
    FileInfo { name, kind, size: told.size, mode: permissions, modified, version }
}

/// The version that a runner tells, where it has said that it has some; what is none is no reason to refuse the rest.
pub(super) fn version(link: &Link, told: Option<String>) -> Option<Version> {
    told.filter(|_| link.has_versions()).and_then(|told| Version::parse(&told).ok())
}

/// A moment of nanoseconds since 1970.
fn moment(since: i64) -> SystemTime {
    let away = Duration::from_nanos(since.unsigned_abs());
    let moment = match since {
        0.. => SystemTime::UNIX_EPOCH.checked_add(away),
        _ => SystemTime::UNIX_EPOCH.checked_sub(away),
    };
    moment.unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(super) async fn read_dir(link: &Lent, path: &SandboxPath) -> Result<Vec<DirEntry>> {
    let answer = ask(link, "read_dir", &Request::ReadDir(at(path)), path).await?;
    let Response::DirEntries(last) = answer.response else { return Err(nonsense("read_dir", path)) };
    if answer.entries.len() + last.entries.len() > DIR_ENTRIES_MAX {
        return Err(Error::about(ErrorKind::TooLarge, "read_dir", path));
    }
    let entry = |told: response::DirEntry| {
        let kind = told.kind.unwrap_or(if told.is_dir { FileKind::Directory } else { FileKind::File });
        DirEntry { name: told.name, kind, size: told.size }
    };
    let mut entries: Vec<DirEntry> = answer.entries.into_iter().chain(last.entries).map(entry).collect();
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

pub(super) async fn mkdir_all(link: &Lent, path: &SandboxPath, permissions: u32) -> Result<()> {
    let request = Request::MkdirAll(MkdirAll { path: path.as_str().to_owned(), perm: permissions });
    done(link, "mkdir_all", &request, path).await
}

pub(super) async fn remove(link: &Lent, path: &SandboxPath) -> Result<()> {
    not_the_workspace(link, "remove", path)?;
    done(link, "remove", &Request::Remove(at(path)), path).await
}

pub(super) async fn remove_all(link: &Lent, path: &SandboxPath) -> Result<()> {
    not_the_workspace(link, "remove_all", path)?;
    done(link, "remove_all", &Request::RemoveAll(at(path)), path).await
}

/// Founding runners remove the whole workspace when they are asked to.
fn not_the_workspace(link: &Lent, operation: &'static str, path: &SandboxPath) -> Result<()> {
    let holds_it = link.workspace().below(path).is_some();
    if holds_it { Err(Error::about(ErrorKind::Invalid, operation, path)) } else { Ok(()) }
}

/// Reads a file of a founding runner.
pub(super) async fn read(link: &Lent, path: &SandboxPath, options: &ReadOptions) -> Result<FileBody> {
    let told = stat(link, "read_file", path).await?;
    match told.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::about(ErrorKind::IsDirectory, "read_file", path)),
        FileKind::Symlink | FileKind::Other => {
            return Err(Error::about(ErrorKind::PermissionDenied, "read_file", path));
        }
    }
    options.window(told.size, path)?;
    fits_one_frame("read_file", told.size, path)?;
    match ask(link, "read_file", &Request::ReadFile(at(path)), path).await?.response {
        Response::FileContent(content) => {
            let bytes = content.data.0;
            let told = FileInfo { size: bytes.len() as u64, ..told };
            let window = options.window(told.size, path)?;
            let cut = |at: u64| usize::try_from(at).unwrap_or(bytes.len()).min(bytes.len());
            let part = bytes.slice(cut(window.start)..cut(window.end));
            Ok(FileBody::whole(told, window, part))
        }
        _ => Err(nonsense("read_file", path)),
    }
}

/// Writes a file of a founding runner: whole in one frame.
pub(super) async fn write(
    link: &Lent,
    path: &SandboxPath,
    mut body: ByteStream,
    options: WriteOptions,
) -> Result<Option<Version>> {
    if let WriteMode::Swap(_) = options.mode {
        return Err(no_versions(path));
    }
    let mut whole = BytesMut::new();
    while let Some(piece) = body.try_next().await? {
        fits_one_frame("write_file", (whole.len() + piece.len()) as u64, path)?;
        whole.extend_from_slice(&piece);
    }
    if options.mode == WriteMode::Create {
        // Two steps, because a founding runner has no other way: of two callers at once both may make the file.
        match stat(link, "write_file", path).await {
            Ok(_) => return Err(Error::about(ErrorKind::AlreadyExists, "write_file", path)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let data = Data(Bytes::from(whole));
    let request =
        WriteFile { path: path.as_str().to_owned(), data, perm: options.permissions.unwrap_or(FILE) };
    done(link, "write_file", &Request::WriteFile(request), path).await.map(|()| None)
}

/// A swap that was asked of a runner that tells no versions.
pub(super) fn no_versions(path: &SandboxPath) -> Error {
    let message = "this runner tells no versions of files: replace it with a newer one";
    Error::new(ErrorKind::Unsupported, "write_file", message).at(path)
}

fn fits_one_frame(operation: &'static str, size: u64, path: &SandboxPath) -> Result<()> {
    if size <= ONE_FRAME_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "this runner carries files of at most {ONE_FRAME_BYTES_MAX} bytes: replace it with a newer one"
    );
    Err(Error::new(ErrorKind::TooLarge, operation, message).at(path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::{StreamExt, stream};
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::wire::{Feature, Frame, Register};
    use crate::{RemoteSandbox, Sandbox, UserId};

    /// A backend whose runner tells `version` of every file, in every answer; and the types of what it was asked.
    fn telling(features: &[Feature], version: &str) -> (RemoteSandbox, Arc<Mutex<Vec<String>>>) {
        let register = Register { workspace: "/w".to_owned(), ..Register::default() };
        let (link, mut frames) = Link::new(user(), &register, features).unwrap();
        let (sandbox, asked) = (RemoteSandbox::new(), Arc::<Mutex<Vec<String>>>::default());
        sandbox.attach(Arc::clone(&link));
        let (seen, version) = (Arc::clone(&asked), version.to_owned());
        tokio::spawn(async move {
            while let Some(frame) = frames.recv().await {
                let frame = Frame::parse(&frame.text).unwrap();
                seen.lock().push(frame.kind.to_string());
                let info = json!({ "name": "f", "size": 1, "mode": 420, "version": version });
                let (kind, body) = match &*frame.kind {
                    "stat" => ("file_info", info),
                    "open_read" => (
                        "opened",
                        json!({ "handle": 1, "range": [0, 1], "data": "eA==", "last": true, "info": info }),
                    ),
                    _ => ("written", json!({ "version": version })),
                };
                link.receive(&json!({ "id": frame.id, "type": kind, "body": body }).to_string());
            }
        });
        (sandbox, asked)
    }

    fn user() -> UserId {
        UserId::parse("alice").unwrap()
    }

    async fn write(sandbox: &RemoteSandbox, mode: WriteMode) -> Result<Option<Version>> {
        let (path, body) = (SandboxPath::parse("/w/f").unwrap(), stream::iter([Ok("x".into())]).boxed());
        sandbox.write_file(&user(), &path, body, WriteOptions { mode, permissions: None }).await
    }

    #[tokio::test]
    async fn a_version_is_believed_where_it_was_agreed_on_and_can_be_one() {
        let agreed = [Feature::Exact, Feature::Swap];
        let long = "x".repeat(1 << 20);
        for (features, told, is_believed) in [
            (&agreed[..], "v-1", true),
            (&agreed, "", false),
            (&agreed, "v\"1", false),
            (&agreed, "v\r\nset-cookie: a=b", false),
            (&agreed, "版本", false),
            (&agreed, &long, false),
            (&[Feature::Exact], "v-1", false),
        ] {
            let (sandbox, _) = telling(features, told);
            let path = SandboxPath::parse("/w/f").unwrap();
            let expected = Version::parse(told).ok().filter(|_| is_believed);
            assert_eq!(sandbox.stat(&user(), &path).await.unwrap().version, expected, "{features:?}");
            let read = sandbox.read_file(&user(), &path, ReadOptions::default()).await.unwrap();
            assert_eq!(read.info.version, expected);
            assert_eq!(write(&sandbox, WriteMode::Replace).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_runner_without_versions_is_asked_for_no_swap() {
        for features in [&[][..], &[Feature::Swap], &[Feature::Exact], &[Feature::Exact, Feature::Live]] {
            let (sandbox, asked) = telling(features, "v-1");
            let swap = WriteMode::Swap(Version::parse("v-1").unwrap());
            assert_eq!(write(&sandbox, swap).await.unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(*asked.lock(), [""; 0], "{features:?}");
        }
    }
}

//! The file operations in an open workspace. All of them block.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use dirfd::{Kind, Stat};
use futures_util::{StreamExt, stream};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Beneath, DIRECTORY};
use super::blocking::blocking;
use super::remove;
use super::turn::turn;
use crate::{
    DIR_ENTRIES_MAX, DirEntry, Error, ErrorKind, FileBody, FileInfo, FileKind, ReadOptions, Result,
    SandboxPath, Version,
};

/// How much of a file is read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The meaning of `errno` to an agent.
pub(super) fn kind(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST => ErrorKind::AlreadyExists,
        Errno::ISDIR => ErrorKind::IsDirectory,
        Errno::NOTDIR => ErrorKind::NotADirectory,
        Errno::NOTEMPTY => ErrorKind::NotEmpty,
        // `openat2` beneath: EXDEV for a way out, ELOOP for a cycle. ENXIO is a socket.
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
            ErrorKind::PermissionDenied
        }
        Errno::NOSPC | Errno::DQUOT => ErrorKind::Quota,
        Errno::FBIG => ErrorKind::TooLarge,
        Errno::NAMETOOLONG | Errno::INVAL => ErrorKind::Invalid,
        Errno::BUSY | Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM => ErrorKind::Busy,
        Errno::NOSYS | Errno::OPNOTSUPP => ErrorKind::Unsupported,
        _ => ErrorKind::Internal,
    }
}

/// Names a failure of the kernel.
pub(super) fn failed(operation: &'static str, path: &SandboxPath) -> impl Fn(Errno) -> Error {
    move |errno| Error::about(kind(errno), operation, path).because(errno)
}

pub(super) fn failed_io(operation: &'static str, path: &SandboxPath) -> impl Fn(std::io::Error) -> Error {
    move |error| {
        let kind =
            error.raw_os_error().map_or(ErrorKind::Internal, |code| kind(Errno::from_raw_os_error(code)));
        Error::about(kind, operation, path).because(error)
    }
}

pub(super) fn read(
    workspace: &Beneath,
    below: &str,
    path: &SandboxPath,
    options: &ReadOptions,
) -> Result<FileBody> {
    let (file, stat) = workspace.open_file(below).map_err(failed("read_file", path))?;
    let info = info(path, &stat);
    let range = options.window(info.size, path)?;
    let first = piece(&file, &range, path)?;
    let rest = range.start + first.len() as u64..range.end;
    if rest.is_empty() {
        return Ok(FileBody::whole(info, range, first));
    }
    let file = Arc::new(file);
    let path = path.clone();
    let pieces = stream::try_unfold(rest, move |rest| {
        let (file, path) = (file.clone(), path.clone());
        async move {
            if rest.is_empty() {
                return Ok(None);
            }
            let bytes = blocking("read_file", {
                let rest = rest.clone();
                move || piece(&file, &rest, &path)
            })
            .await?;
            let next = rest.start + bytes.len() as u64..rest.end;
            Ok(Some((bytes, next)))
        }
    });
    let stream = stream::once(async { Ok(first) }).chain(pieces).boxed();
    Ok(FileBody { info, range, stream })
}

fn piece(file: &File, range: &Range<u64>, path: &SandboxPath) -> Result<Bytes> {
    let wanted = (range.end - range.start).min(PIECE_BYTES);
    let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, range.start) {
        Ok(()) => Ok(bytes.into()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            let message = "the file became shorter while it was read: read it again";
            Err(Error::new(ErrorKind::Busy, "read_file", message).at(path))
        }
        Err(error) => Err(failed_io("read_file", path)(error)),
    }
}

pub(super) fn stat(workspace: &Beneath, below: &str, path: &SandboxPath) -> Result<FileInfo> {
    workspace.stat(below).map(|stat| info(path, &stat)).map_err(failed("stat", path))
}

pub(super) fn read_dir(workspace: &Beneath, below: &str, path: &SandboxPath) -> Result<Vec<DirEntry>> {
    let failed = failed("read_dir", path);
    let directory = workspace.open(below, DIRECTORY).map_err(&failed)?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&directory).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == DIR_ENTRIES_MAX {
            return Err(Error::about(ErrorKind::TooLarge, "read_dir", path));
        }
        let stat = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue, // removed meanwhile
            looked => Stat::from(looked.map_err(&failed)?),
        };
        entries.push((name.to_bytes().to_owned(), file_kind(stat.kind), stat.size));
    }
    entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let named = |(name, kind, size): (Vec<u8>, FileKind, u64)| DirEntry {
        name: String::from_utf8(name)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        kind,
        size,
    };
    Ok(entries.into_iter().map(named).collect())
}

pub(super) fn mkdir_all(workspace: &Beneath, below: &str, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    let ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]).filter(|at| *at > 0);
    let mut directory = workspace.open("", DIRECTORY)?;
    let mut begin = 0;
    for end in ends {
        let (upto, name) = (below.get(..end).unwrap_or(below), below.get(begin..end).unwrap_or(below));
        begin = end + 1;
        directory = match workspace.open(upto, DIRECTORY) {
            Err(Errno::NOENT) => make_dir(workspace, &directory, upto, name, mode)?,
            opened => opened?,
        };
    }
    Ok(())
}

fn make_dir(
    workspace: &Beneath,
    above: &OwnedFd,
    path: &str,
    name: &str,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(above, name, mode | Mode::RWXU) {
        Ok(()) => {}
        // By another call meanwhile; or a link is there, which leads to nothing.
        Err(Errno::EXIST) => {
            return workspace.open(path, DIRECTORY).map_err(|errno| match errno {
                Errno::NOENT => Errno::NOTDIR,
                errno => errno,
            });
        }
        Err(errno) => return Err(errno),
    }
    let made = rustix::fs::openat(above, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    rustix::fs::fchmod(&made, mode)?;
    Ok(made)
}

pub(super) fn remove(workspace: &Beneath, below: &str) -> Result<(), Errno> {
    let entry = workspace.entry(below)?;
    let stat = entry.stat.ok_or(Errno::NOENT)?;
    match stat.kind {
        Kind::Directory => {
            match rustix::fs::unlinkat(&entry.directory, &entry.name, AtFlags::REMOVEDIR) {
                Err(Errno::EXIST) => Err(Errno::NOTEMPTY), // POSIX allows either
                done => done,
            }
        }
        _ => {
            let _turn = turn(&entry.directory, &entry.name)?;
            rustix::fs::unlinkat(&entry.directory, &entry.name, AtFlags::empty())
        }
    }
}

pub(super) fn remove_all(workspace: &Beneath, below: &str) -> Result<(), Errno> {
    let removed = workspace.entry(below).and_then(|entry| match &entry.stat {
        Some(stat) if stat.kind == Kind::Directory => remove::remove_all(entry.directory, &entry.name),
        Some(_) => {
            let _turn = turn(&entry.directory, &entry.name)?;
            remove::remove_all(entry.directory, &entry.name)
        }
        None => Ok(()),
    });
    match removed {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        other => other,
    }
}

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Other => FileKind::Other,
    }
}

/// The version of a regular file.
pub(super) fn version(stat: &Stat) -> Option<Version> {
    let version = || Version::of_inode(stat.inode, stat.size, stat.modified_ns, stat.changed_ns);
    (stat.kind == Kind::File).then(version)
}

fn info(path: &SandboxPath, stat: &Stat) -> FileInfo {
    FileInfo {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind: file_kind(stat.kind),
        size: stat.size,
        mode: stat.mode,
        modified: time(stat.modified_ns).unwrap_or(SystemTime::UNIX_EPOCH),
        version: version(stat),
    }
}

/// A time in nanoseconds since 1970-01-01T00:00:00Z; `None` for one that the system's clock cannot tell.
fn time(since_1970_ns: i128) -> Option<SystemTime> {
    const SECOND_NS: i128 = 1_000_000_000;
    let seconds =
        Duration::from_secs(u64::try_from(since_1970_ns.div_euclid(SECOND_NS).unsigned_abs()).ok()?);
    let nanoseconds = Duration::from_nanos(u64::try_from(since_1970_ns.rem_euclid(SECOND_NS)).ok()?);
    let whole = match since_1970_ns < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    whole?.checked_add(nanoseconds)
}

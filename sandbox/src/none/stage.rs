//! [`Stage`]: a file on its way to its name, which takes it whole or not at all.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use dirfd::{Kind, name_unnamed, open_unnamed};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::beneath::{Beneath, Entry, lstat};
use super::files::version;
use super::turn::turn;
use crate::{Version, WriteMode, WriteOptions};

/// The mode of a new file, and the bits of an old one that a new one may have.
const NEW: u32 = 0o644;
const BITS: u32 = 0o777;

/// Why a file does not get its name.
#[derive(Debug)]
pub(super) enum Unplaced {
    /// What is there is not what was to be replaced.
    Stale,
    /// The kernel refuses.
    Failed(Errno),
}

impl From<Errno> for Unplaced {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// An unfinished file. It has no name where the file system can do that, so that a crash leaves nothing; else a name
/// beside the file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Stage {
    file: File,
    entry: Entry,
    mode: WriteMode,
    permissions: u32,
    name: Option<String>,
}

impl Stage {
    /// Begins to write the file `path`.
    pub(super) fn begin(workspace: &Beneath, path: &str, options: WriteOptions) -> Result<Self, Unplaced> {
        if path.is_empty() {
            return Err(if options.mode == WriteMode::Create { Errno::EXIST } else { Errno::ISDIR }.into());
        }
        let entry = match options.mode {
            WriteMode::Create => workspace.entry(path)?,
            WriteMode::Replace => workspace.target(path)?,
            // Without its directory the file is gone, too.
            WriteMode::Swap(_) => workspace.target(path).map_err(|errno| match errno {
                Errno::NOENT => Unplaced::Stale,
                errno => errno.into(),
            })?,
        };
        let found = match &entry.stat {
            Some(_) if options.mode == WriteMode::Create => return Err(Errno::EXIST.into()),
            Some(stat) => match stat.kind {
                Kind::File => stat.mode & BITS,
                Kind::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::ACCESS.into()),
            },
            None => NEW,
        };
        // Once more before the file gets its name; this look spares the writing of what would be refused then.
        if let WriteMode::Swap(expected) = &options.mode
            && entry.stat.as_ref().and_then(version).as_ref() != Some(expected)
        {
            return Err(Unplaced::Stale);
        }
        let (file, name) = unfinished(&entry.directory)?;
        let permissions = options.permissions.unwrap_or(found);
        Ok(Self { file, entry, mode: options.mode, permissions, name })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its bits and its name, and tells its version. With `sync`, it is on the disk before.
    pub(super) fn finish(mut self, sync: bool) -> Result<Version, Unplaced> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(self.permissions))?;
        // The kernel stamps a write with the time of its last tick. A time of our own tells two writes of one tick apart,
        // the second of which may have got the inode of what the first replaced. A file system that takes none is no reason
        // to write nothing.
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let _kept =
            rustix::fs::futimens(&self.file, &Timestamps { last_access: kept, last_modification: now });
        if sync {
            rustix::fs::fdatasync(&self.file)?;
        }
        let version = self.place()?;
        if sync {
            rustix::fs::fsync(&self.entry.directory)?;
        }
        Ok(version)
    }

    /// Gives the file its name, when what is there may be replaced, while no other call does so.
    fn place(&mut self) -> Result<Version, Unplaced> {
        let directory = &self.entry.directory;
        let _turn = turn(directory, &self.entry.name)?;
        if let WriteMode::Swap(expected) = &self.mode {
            let there = lstat(directory, &self.entry.name)?;
            if there.as_ref().and_then(version).as_ref() != Some(expected) {
                return Err(Unplaced::Stale);
            }
        }
        if self.mode == WriteMode::Create && self.name.is_none() {
            name_unnamed(&self.file, directory, self.entry.name.as_str())?;
            return self.version();
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let name = aside()?;
                name_unnamed(&self.file, directory, name.as_str())?;
                self.name.insert(name).clone()
            }
        };
        let flags = match self.mode {
            WriteMode::Create => RenameFlags::NOREPLACE,
            WriteMode::Replace | WriteMode::Swap(_) => RenameFlags::empty(),
        };
        rustix::fs::renameat_with(directory, &name, directory, &self.entry.name, flags)?;
        self.name = None;
        self.version()
    }

    /// The version of the file in its place: the rename has moved its change time.
    fn version(&self) -> Result<Version, Unplaced> {
        // A regular file has one.
        version(&rustix::fs::fstat(&self.file)?.into()).ok_or(Unplaced::Failed(Errno::IO))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _gone = rustix::fs::unlinkat(&self.entry.directory, name, AtFlags::empty());
        }
    }
}

fn unfinished(directory: &OwnedFd) -> Result<(File, Option<String>), Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    match open_unnamed(directory, mode.as_raw_mode()) {
        Ok(fd) => return Ok((fd.into(), None)),
        // Network and older overlay file systems have no files without names (open(2), `O_TMPFILE`). A workspace may be on
        // any of them; a data directory of `storage` may not, so that `Dir::create_unnamed` knows `EOPNOTSUPP` alone.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let name = aside()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, &name, flags, mode)?;
    Ok((fd.into(), Some(name)))
}

/// A name that no other write uses.
fn aside() -> Result<String, Errno> {
    let number = getrandom::u64().map_err(|_| Errno::IO)?;
    Ok(format!(".filesecbox-{number:016x}.part"))
}

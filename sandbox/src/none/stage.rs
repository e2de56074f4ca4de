//! [`Stage`]: a file on its way to its name, which takes it whole or not at all.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::beneath::{Beneath, Entry};
use crate::{WriteMode, WriteOptions};

/// The mode of a new file, and the bits of an old one that a new one may have.
const NEW: u32 = 0o644;
const BITS: u32 = 0o777;

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
    pub(super) fn begin(workspace: &Beneath, path: &str, options: WriteOptions) -> Result<Self, Errno> {
        if path.is_empty() {
            return Err(if options.mode == WriteMode::Create { Errno::EXIST } else { Errno::ISDIR });
        }
        let entry = match options.mode {
            WriteMode::Create => workspace.entry(path)?,
            WriteMode::Replace => workspace.target(path)?,
        };
        let found = match entry.stat {
            None => NEW,
            Some(_) if options.mode == WriteMode::Create => return Err(Errno::EXIST),
            Some(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => stat.st_mode & BITS,
                FileType::Directory => return Err(Errno::ISDIR),
                _ => return Err(Errno::ACCESS),
            },
        };
        let (file, name) = unfinished(&entry.directory)?;
        let permissions = options.permissions.unwrap_or(found);
        Ok(Self { file, entry, mode: options.mode, permissions, name })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its bits and its name. With `sync`, it is on the disk before.
    pub(super) fn finish(mut self, sync: bool) -> Result<(), Errno> {
        let directory = &self.entry.directory;
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(self.permissions))?;
        if sync {
            rustix::fs::fdatasync(&self.file)?;
        }
        if self.mode == WriteMode::Create && self.name.is_none() {
            return link(&self.file, directory, &self.entry.name);
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let name = aside()?;
                link(&self.file, directory, &name)?;
                self.name.insert(name).clone()
            }
        };
        let flags = match self.mode {
            WriteMode::Create => RenameFlags::NOREPLACE,
            WriteMode::Replace => RenameFlags::empty(),
        };
        rustix::fs::renameat_with(directory, &name, directory, &self.entry.name, flags)?;
        self.name = None;
        if sync { rustix::fs::fsync(directory) } else { Ok(()) }
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
    match rustix::fs::openat(directory, ".", OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        Ok(fd) => return Ok((fd.into(), None)),
        // Network and older overlay file systems have no files without names (open(2), `O_TMPFILE`).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let name = aside()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, &name, flags, mode)?;
    Ok((fd.into(), Some(name)))
}

/// Gives a nameless file a name (open(2), `O_TMPFILE`): without privileges, through its descriptor in `/proc`.
fn link(file: &File, directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let through = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, through, directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// A name that no other write uses.
fn aside() -> Result<String, Errno> {
    let number = getrandom::u64().map_err(|_| Errno::IO)?;
    Ok(format!(".filesecbox-{number:016x}.part"))
}

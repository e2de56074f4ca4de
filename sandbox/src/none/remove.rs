//! Removing a tree of any depth with three descriptors.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;

use super::beneath::DIRECTORY;

/// How often a directory is emptied that others keep filling.
const ROUNDS_MAX: usize = 20;

/// Removes the entry `name` of `directory` with all below it; links are removed and not followed.
///
/// Directories further down are moved up and emptied there, so that the depth costs neither stack nor descriptors. Who
/// looks meanwhile may see them under other names.
pub(super) fn remove_all(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        done => return done,
    }
    for _ in 0..ROUNDS_MAX {
        let top = open(directory, &name)?;
        let mut moved = 0_u64;
        let mut waiting = vec![];
        empty(&top, &top, &mut waiting, &mut moved)?;
        while let Some(below) = waiting.pop() {
            for _ in 0..ROUNDS_MAX {
                match open(&top, &below) {
                    Ok(inner) => empty(&inner, &top, &mut waiting, &mut moved)?,
                    Err(Errno::NOENT) => break,
                    Err(errno) => return Err(errno),
                }
                match rustix::fs::unlinkat(&top, &below, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => break,
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        match rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

/// Removes what is in `inner` but for directories with entries: those are moved into `top`.
fn empty(inner: &OwnedFd, top: &OwnedFd, waiting: &mut Vec<CString>, moved: &mut u64) -> Result<(), Errno> {
    let is_top = std::ptr::eq(inner, top);
    for entry in Dir::read_from(inner)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => is_directory(inner, name)?,
            kind => kind == FileType::Directory,
        };
        if !is_directory {
            ignore_missing(rustix::fs::unlinkat(inner, name, AtFlags::empty()))?;
        } else if rustix::fs::unlinkat(inner, name, AtFlags::REMOVEDIR).is_ok() {
            // It was empty.
        } else if is_top {
            waiting.push(name.to_owned());
        } else {
            waiting.push(move_up(inner, name, top, moved)?);
        }
    }
    Ok(())
}

fn move_up(inner: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> Result<CString, Errno> {
    loop {
        *moved += 1;
        let new = CString::new(format!(".removed-{moved}")).map_err(|_| Errno::INVAL)?;
        match rustix::fs::renameat_with(inner, name, top, &new, rustix::fs::RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done.map(|()| new),
        }
    }
}

fn open(directory: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, rustix::fs::Mode::empty())
}

fn is_directory(directory: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

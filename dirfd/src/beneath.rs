//! Opening beneath a directory: the system calls, by their error numbers.
//!
//! [`Dir`](crate::Dir) is made of these. A caller with rules of its own for links uses them without it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

use crate::stat::{Kind, Stat};

/// How often a path is tried while others are renamed; each attempt takes some microseconds.
const ATTEMPTS_MAX: usize = 1000;

/// What the kernel holds every path to (openat2(2)).
pub(crate) const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// How a directory is opened, to be listed and to be a beginning of paths.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How a regular file is opened for reading: without waiting for the other end of a pipe that was planted in its place.
/// [`regular`] then refuses the pipe.
pub const READING: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What becomes of symbolic links on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// A link that stays beneath the directory is followed; one that leaves it fails with `EXDEV`.
    Follow,
    /// A link fails with `ELOOP`.
    Refuse,
}

/// Opens what `path` leads to beneath the directory `dir`.
///
/// A path with `..`, also in a link, is tried again when anything on this machine was renamed or mounted meanwhile: the
/// kernel cannot tell then whether it led out.
///
/// # Errors
/// As openat2(2): `EXDEV` for a way out, `ELOOP` for a refused link or a cycle of links, `EAGAIN` for a file that another
/// process has a lease on.
///
/// # References
/// openat2(2), `RESOLVE_BENEATH`, `RESOLVE_NO_MAGICLINKS` and `EAGAIN`.
pub fn open_beneath(dir: impl AsFd, path: &str, flags: OFlags, links: Links) -> Result<OwnedFd> {
    let resolve = match links {
        Links::Follow => BENEATH,
        Links::Refuse => BENEATH.union(ResolveFlags::NO_SYMLINKS),
    };
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS_MAX {
        opened = rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve);
        if !matches!(opened, Err(Errno::AGAIN)) {
            break;
        }
    }
    opened
}

/// Lets only regular files through.
///
/// # Errors
/// `EISDIR` for a directory, `ENXIO` for a socket, pipe or device, as opening a socket has it (open(2)); those of fstat(2).
pub fn regular(fd: OwnedFd) -> Result<(File, Stat)> {
    let stat: Stat = rustix::fs::fstat(&fd)?.into();
    match stat.kind {
        Kind::File => Ok((fd.into(), stat)),
        Kind::Directory => Err(Errno::ISDIR),
        Kind::Symlink | Kind::Other => Err(Errno::NXIO),
    }
}

//! [`Beneath`]: an open workspace, and the only way to anything in it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// How often a path is tried while others are renamed; each attempt takes some microseconds.
const ATTEMPTS_MAX: usize = 1000;
/// Links that a path may lead through (path_resolution(7)).
const LINKS_MAX: usize = 40;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// For paths that were resolved already: a link that was planted meanwhile is refused.
const RESOLVED: ResolveFlags = BENEATH.union(ResolveFlags::NO_SYMLINKS);
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The open directory of a workspace.
///
/// * The kernel resolves every path beneath it (`openat2(2)`): a path that leads out is refused, even when directories
///   move meanwhile.
/// * An absolute link into the workspace is followed by its text, which the kernel alone would refuse.
#[derive(Debug)]
pub(super) struct Beneath {
    fd: OwnedFd,
    /// The path of the directory on the host, for links that name it.
    place: String,
}

/// Where a path leads to: an open directory, and a name in it that may be missing and is no link to be followed.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) directory: OwnedFd,
    pub(super) name: String,
    pub(super) stat: Option<Stat>,
}

impl Beneath {
    pub(super) fn new(fd: OwnedFd, place: String) -> Self {
        Self { fd, place }
    }

    /// Opens what `path` leads to; the workspace itself for an empty one.
    pub(super) fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let path = if path.is_empty() { "." } else { path };
        match self.open_by(path, flags, BENEATH) {
            // An absolute link, or `..` beyond the top on the way.
            Err(Errno::XDEV) => {
                let resolved = self.resolve(path)?;
                self.open_by(&resolved, flags, RESOLVED)
            }
            opened => opened,
        }
    }

    /// Opens a path by the kernel's rules. A path with `..` is tried again when anything on this machine was renamed or mounted
    /// meanwhile: the kernel cannot tell then whether the path led out (openat2(2), `EAGAIN`).
    fn open_by(&self, path: &str, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS_MAX {
            opened = rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
        }
        opened
    }

    /// The regular file `path`, open for reading; a pipe or a device in its place is refused.
    pub(super) fn open_file(&self, path: &str) -> Result<(File, Stat), Errno> {
        // Without waiting: the other end of a pipe may never be written.
        let fd = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((fd.into(), stat)),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::ACCESS),
        }
    }

    /// The entry that `path` leads to, links followed.
    pub(super) fn stat(&self, path: &str) -> Result<Stat, Errno> {
        rustix::fs::fstat(self.open(path, OFlags::PATH)?)
    }

    /// The entry `path` itself: only links above it are followed. The workspace is none.
    pub(super) fn entry(&self, path: &str) -> Result<Entry, Errno> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = self.open(above, DIRECTORY)?;
        let stat = lstat(&directory, name)?;
        Ok(Entry { directory, name: name.to_owned(), stat })
    }

    /// The entry that `path` leads to, a link at its end followed also to what is not there yet.
    pub(super) fn target(&self, path: &str) -> Result<Entry, Errno> {
        let entry = self.entry(path)?;
        if !entry.stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink) {
            return Ok(entry);
        }
        let resolved = self.resolve(path)?;
        let (above, name) = resolved.rsplit_once('/').unwrap_or(("", &resolved));
        let above = if above.is_empty() { "." } else { above };
        let directory = self.open_by(above, DIRECTORY, RESOLVED)?;
        let stat = lstat(&directory, name)?;
        Ok(Entry { directory, name: name.to_owned(), stat })
    }

    /// The way to where `path` leads, without links; its last name may be missing.
    ///
    /// It is read name by name and proves nothing: it must be opened with [`RESOLVED`].
    fn resolve(&self, path: &str) -> Result<String, Errno> {
        let mut waiting: VecDeque<String> = segments(path);
        let (mut way, mut links) = (Vec::<String>::new(), 0);
        while let Some(segment) = waiting.pop_front() {
            if segment == ".." {
                way.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            way.push(segment);
            let target = match rustix::fs::readlinkat(&self.fd, way.join("/"), Vec::new()) {
                Ok(target) => target,
                Err(Errno::INVAL) => continue, // no link
                Err(Errno::NOENT) if waiting.is_empty() => continue,
                Err(errno) => return Err(errno),
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP);
            }
            way.pop();
            let mut target = target.to_str().map_err(|_| Errno::XDEV)?;
            if target.starts_with('/') {
                let below =
                    target.strip_prefix(&self.place).filter(|rest| rest.is_empty() || rest.starts_with('/'));
                target = below.ok_or(Errno::XDEV)?;
                way.clear();
            }
            let mut first = segments(target);
            first.append(&mut waiting);
            waiting = first;
        }
        Ok(if way.is_empty() { ".".to_owned() } else { way.join("/") })
    }
}

/// Looks at an entry without following it; `None` when there is none.
pub(super) fn lstat(directory: impl AsFd, name: &str) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn segments(path: &str) -> VecDeque<String> {
    path.split('/').filter(|segment| !matches!(*segment, "" | ".")).map(str::to_owned).collect()
}

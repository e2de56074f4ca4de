//! [`Beneath`]: an open workspace, and the only way to anything in it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use dirfd::{Kind, Links, READING, Stat, open_beneath, regular};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

/// Links that a path may lead through (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// For paths that were resolved already: a link that was planted meanwhile is refused.
const RESOLVED: Links = Links::Refuse;
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The open directory of a workspace.
///
/// * The kernel resolves every path beneath it (`openat2(2)`): a path that leads out is refused, even when directories
///   move meanwhile.
/// * An absolute link into the workspace is followed by its text, which the kernel alone would refuse. Commands see the
///   workspace under its path on the host and make such links; what `storage` keeps has no such path, so `dirfd` refuses
///   them all, and the rule is here.
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
        match open_beneath(&self.fd, path, flags, Links::Follow) {
            // An absolute link, or `..` beyond the top on the way.
            Err(Errno::XDEV) => {
                let resolved = self.resolve(path)?;
                open_beneath(&self.fd, &resolved, flags, RESOLVED)
            }
            opened => opened,
        }
    }

    /// The regular file `path`, open for reading; a pipe or a device in its place is refused.
    pub(super) fn open_file(&self, path: &str) -> Result<(File, Stat), Errno> {
        regular(self.open(path, READING)?)
    }

    /// The entry that `path` leads to, links followed.
    pub(super) fn stat(&self, path: &str) -> Result<Stat, Errno> {
        Ok(rustix::fs::fstat(self.open(path, OFlags::PATH)?)?.into())
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
        if !entry.stat.as_ref().is_some_and(|stat| stat.kind == Kind::Symlink) {
            return Ok(entry);
        }
        let resolved = self.resolve(path)?;
        let (above, name) = resolved.rsplit_once('/').unwrap_or(("", &resolved));
        let above = if above.is_empty() { "." } else { above };
        let directory = open_beneath(&self.fd, above, DIRECTORY, RESOLVED)?;
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
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn segments(path: &str) -> VecDeque<String> {
    path.split('/').filter(|segment| !matches!(*segment, "" | ".")).map(str::to_owned).collect()
}

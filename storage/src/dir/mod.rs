//! [`Dir`]: an open directory, the only way to anything stored.

mod list;
mod make;
mod remove;
mod rename;
#[cfg(test)]
pub(crate) mod trace;
mod unnamed;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use policy::RelPath;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

pub use self::list::Entry;
pub(crate) use self::unnamed::{PassingName, is_without_unnamed};
use crate::error::{Error, Result};
use crate::stat::{Kind, Stat};

/// The longest extended attribute that is read, in bytes.
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 2048;

/// Levels that a walk goes down before it refuses.
///
/// A walk holds up to three descriptors and, unoptimised, up to 10 KB of stack a level: this many levels stay
/// below the usual limits of 1024 descriptors and 2 MB. The deepest of 29 818 published skills has 8.
pub(crate) const DEPTH_MAX: usize = 128;

/// An open directory.
///
/// * What a `RelPath` names is resolved by the kernel beneath it (`openat2(2)`, `RESOLVE_BENEATH |
///   RESOLVE_NO_MAGICLINKS`): a symbolic link that stays inside is followed, one that leaves is refused.
/// * What a single name (`&OsStr`) names is an entry of this directory and is never followed.
/// * Files are opened without blocking and only when they are regular: a planted pipe cannot hang a reader.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    own: Own,
}

/// The part of a directory that is the service's own, so that the service gives itself back the permissions that
/// something took from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Nothing.
    Nothing,
    /// The directory itself, but not what is in it.
    Itself,
    /// The directory, and each that is opened below it by [`Dir::open_dir`] and [`Dir::ensure_path`].
    Below,
}

/// The one segment that calls without `RESOLVE_BENEATH` may be given.
fn segment(name: &OsStr) -> Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(Error::Escape(name.to_string_lossy().into_owned()));
    }
    Ok(name)
}

fn shown(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// How often a path is tried while others are renamed; each attempt takes some microseconds.
const ATTEMPTS_MAX: usize = 1000;

/// How a file that must not exist is opened.
const NEW_FILE: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a directory by its host path, outside every other `Dir`: the store's root, at start.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], or [`Error::Io`].
    pub fn ambient_open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Self::from)
            .map_err(|errno| Error::from_errno("open", path.display(), errno))
    }

    /// Opens the store's root by its host path. What [`Dir::open_dir`] and [`Dir::ensure_path`] open below it are the
    /// service's own directories.
    ///
    /// Where commands have the service's user id, one may take away the permissions of a directory whose path it
    /// knows. The service gives them back to itself when it meets that: on the root now, on others when they are opened.
    ///
    /// # Errors
    /// As [`Dir::ambient_open`]; [`Error::Io`] when the root is another user's and closed.
    pub fn own_root(path: &Path) -> Result<Self> {
        let opened = Self::ambient_open(path);
        let dir = match opened {
            Err(Error::Closed(_)) => {
                let failed = |errno| shut(path.display(), errno);
                let mode = rustix::fs::stat(path).map_err(failed)?.st_mode & 0o7777;
                rustix::fs::chmod(path, Mode::from_raw_mode(mode | 0o700)).map_err(failed)?;
                Self::ambient_open(path)?
            }
            opened => opened?,
        };
        Ok(Self { own: Own::Below, ..dir })
    }

    /// Opens the directory `path`, following links that stay beneath this directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Escape`].
    pub fn open_dir(&self, path: &RelPath) -> Result<Self> {
        if path.is_root() {
            return self.reopen();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || open_beneath(&self.fd, path, flags);
        match open() {
            Err(Errno::ACCESS) if self.own == Own::Below => {
                self.open_up_path(path)?;
                open().map(|fd| self.below(fd)).map_err(|errno| match errno {
                    Errno::ACCESS => shut(path, errno),
                    errno => Error::from_errno("open", path, errno),
                })
            }
            opened => opened.map(|fd| self.below(fd)).map_err(|errno| Error::from_errno("open", path, errno)),
        }
    }

    /// A directory that was opened by a path below this one.
    fn below(&self, fd: OwnedFd) -> Self {
        let own = if self.own == Own::Below { Own::Itself } else { Own::Nothing };
        Self { fd, own }
    }

    /// Does `act`, once more when something had closed this directory of the service's own.
    fn with_access<T>(&self, act: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match act() {
            Err(Errno::ACCESS) if self.open_up_itself() => act(),
            done => done,
        }
    }

    /// Gives the service access again to a directory of its own. Tells whether something had closed it.
    fn open_up_itself(&self) -> bool {
        if self.own == Own::Nothing {
            return false;
        }
        let is_closed = |stat: &Stat| stat.mode & 0o700 != 0o700;
        let closed = self.stat().ok().filter(is_closed);
        closed.is_some_and(|stat| self.set_mode(stat.mode | 0o700).is_ok())
    }

    /// Gives the service access again to this directory and each on the way to `path`, as far as they are there.
    fn open_up_path(&self, path: &RelPath) -> Result<()> {
        tracing::warn!(%path, "a process closed a directory of the service: opening it again");
        self.open_up_itself();
        let mut dir = self.reopen()?;
        for name in path.segments() {
            dir = match dir.open_closed_dir(OsStr::new(name)) {
                Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => return Ok(()),
                // The directory of another user id: an agent can do nothing about it.
                Err(Error::Closed(_)) => return Err(shut(path, Errno::ACCESS)),
                opened => opened?,
            };
        }
        Ok(())
    }

    /// Opens the entry `name` as a directory; a link is refused.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`] (also for a link).
    pub fn open_dir_entry(&self, name: &OsStr) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = segment(name)?;
        self.with_access(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()))
            .map(Self::from)
            .map_err(|errno| Error::from_errno("open", shown(name), errno))
    }

    /// Opens the entry `name` as a directory, giving the service access first when a command had closed it.
    ///
    /// No process may be changing this directory meanwhile.
    ///
    /// # Errors
    /// As [`Dir::open_dir_entry`].
    pub(crate) fn open_closed_dir(&self, name: &OsStr) -> Result<Self> {
        self.open_up(name, Kind::Directory, 0o700)?;
        self.open_dir_entry(name)
    }

    /// Gives the service access to the file `name`, if there is one, when a command had closed it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open_up_file(&self, name: &OsStr) -> Result<()> {
        self.open_up(name, Kind::File, 0o600)
    }

    fn open_up(&self, name: &OsStr, kind: Kind, bits: u32) -> Result<()> {
        let closed = |stat: &Stat| stat.kind == kind && stat.mode & bits != bits;
        if !self.stat_entry(name)?.as_ref().is_some_and(closed) {
            return Ok(());
        }
        let failed = |errno| Error::from_errno("chmod", shown(name), errno);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(failed)?;
        let stat: Stat = rustix::fs::fstat(&fd).map_err(failed)?.into();
        if !closed(&stat) {
            return Ok(());
        }
        // chmod(2) follows links and fchmod(2) takes no `O_PATH` descriptor. This way leads to the entry that was
        // looked at, even when a process has put another under the name since (open(2), "O_PATH").
        let through = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::chmod(through, Mode::from_raw_mode(stat.mode | bits)).map_err(failed)
    }

    /// Opens this directory again, with a position of its own.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub fn reopen(&self) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.with_access(|| rustix::fs::openat(&self.fd, ".", flags, Mode::empty()))
            .map(|fd| Self { fd, own: self.own })
            .map_err(|errno| Error::from_errno("open", ".", errno))
    }

    /// Opens the regular file `path` for reading, following links that stay beneath this directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotAFile`], [`Error::Escape`].
    pub fn open_file(&self, path: &RelPath) -> Result<(File, Stat)> {
        if path.is_root() {
            return Err(Error::IsDirectory(path.to_string()));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd =
            open_beneath(&self.fd, path, flags).map_err(|errno| Error::from_errno("open", path, errno))?;
        regular(fd, || path.to_string())
    }

    /// Opens the entry `name` as a regular file for reading; a link is refused.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotAFile`], [`Error::Escape`] for a link.
    pub fn open_file_entry(&self, name: &OsStr) -> Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = segment(name)?;
        let fd = self
            .with_access(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()))
            .map_err(|errno| Error::from_errno("open", shown(name), errno))?;
        regular(fd, || shown(name))
    }

    /// Reads the target of the symbolic link `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`] when it is no link.
    pub fn read_link(&self, name: &OsStr) -> Result<OsString> {
        rustix::fs::readlinkat(&self.fd, segment(name)?, Vec::new())
            .map(|target| OsStr::from_bytes(target.as_bytes()).to_owned())
            .map_err(|errno| Error::from_errno("readlink", shown(name), errno))
    }

    /// Tells what the entry `name` is, without following it; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat_entry(&self, name: &OsStr) -> Result<Option<Stat>> {
        let name = segment(name)?;
        match self.with_access(|| rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::from_errno("stat", shown(name), errno)),
        }
    }

    /// Tells what this directory itself is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.fd).map(Stat::from).map_err(|errno| Error::from_errno("stat", ".", errno))
    }

    /// Sets the permission bits of this directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|errno| Error::from_errno("chmod", ".", errno))
    }

    /// Gives this directory to the user and group `owner`.
    ///
    /// # Errors
    /// [`Error::Io`] without the privilege.
    pub fn set_owner(&self, owner: u32) -> Result<()> {
        rustix::fs::fchown(&self.fd, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|errno| Error::from_errno("chown", ".", errno))
    }

    /// Reads the extended attribute `name` of this directory, at most [`ATTRIBUTE_BYTES_MAX`] bytes; `None` when it has none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut value = [0; ATTRIBUTE_BYTES_MAX];
        match rustix::fs::fgetxattr(&self.fd, name, &mut value) {
            Ok(length) => Ok(value.get(..length).map(<[u8]>::to_vec)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(Error::from_errno("getxattr", name, errno)),
        }
    }

    /// Sets the extended attribute `name` of this directory.
    ///
    /// # Errors
    /// [`Error::Io`], also where the file system keeps no user attributes.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        rustix::fs::fsetxattr(&self.fd, name, value, rustix::fs::XattrFlags::empty())
            .map_err(|errno| Error::from_errno("setxattr", name, errno))
    }

    /// Bytes that its file system has left for processes without privileges.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_bytes(&self) -> Result<u64> {
        rustix::fs::fstatvfs(&self.fd)
            .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
            .map_err(|errno| Error::from_errno("statvfs", ".", errno))
    }

    /// Makes the entries of this directory durable (fsync(2) of the directory).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd).map_err(|errno| Error::from_errno("fsync", ".", errno))
    }

    /// Makes everything on this directory's file system durable (syncfs(2)): one call for a whole tree.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_file_system(&self) -> Result<()> {
        #[cfg(test)]
        trace::note("syncfs", OsStr::new(""));
        rustix::fs::syncfs(&self.fd).map_err(|errno| Error::from_errno("syncfs", ".", errno))
    }
}

impl From<OwnedFd> for Dir {
    /// Takes a descriptor that was opened as a directory.
    fn from(fd: OwnedFd) -> Self {
        Self { fd, own: Own::Nothing }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The directory `name` in `dir`; `None` where there is none.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn subdirectory(dir: Option<&Dir>, name: &OsStr) -> Result<Option<Dir>> {
    match dir.map(|dir| dir.open_dir_entry(name)) {
        None | Some(Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_))) => Ok(None),
        Some(opened) => opened.map(Some),
    }
}

/// Names that the service is kept out of a directory of its own, which is a failure of the service.
fn shut(path: impl ToString, errno: Errno) -> Error {
    Error::Io { operation: "open a directory of the service", path: path.to_string(), source: errno.into() }
}

/// Lets only regular files through.
fn regular(fd: OwnedFd, path: impl Fn() -> String) -> Result<(File, Stat)> {
    let stat: Stat = rustix::fs::fstat(&fd).map_err(|errno| Error::from_errno("stat", path(), errno))?.into();
    match stat.kind {
        Kind::File => Ok((fd.into(), stat)),
        Kind::Directory => Err(Error::IsDirectory(path())),
        Kind::Symlink | Kind::Other => Err(Error::NotAFile(path())),
    }
}

/// Opens what `path` leads to beneath a directory. A link with `..` is tried again when anything on this machine was renamed or
/// mounted meanwhile: the kernel cannot tell then whether it led out (openat2(2), `EAGAIN`).
fn open_beneath(fd: &OwnedFd, path: &RelPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS_MAX {
        opened = rustix::fs::openat2(fd, path.as_str(), flags, Mode::empty(), BENEATH);
        if !matches!(opened, Err(Errno::AGAIN)) {
            break;
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::fs::FileType;

    use super::*;

    fn fixture() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        (temp, dir)
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn a_link_that_stays_inside_is_followed_and_one_that_leaves_is_refused() {
        let (_temp, dir) = fixture();
        dir.create_file(OsStr::new("a"), 0o644).unwrap().write_all(b"hi").unwrap();
        dir.create_symlink(OsStr::new("a"), OsStr::new("inside")).unwrap();
        dir.create_symlink(OsStr::new("/etc/passwd"), OsStr::new("absolute")).unwrap();
        dir.create_symlink(OsStr::new("../../etc/passwd"), OsStr::new("upward")).unwrap();
        dir.create_symlink(OsStr::new("loop"), OsStr::new("loop")).unwrap();
        let mut text = String::new();
        dir.open_file(&path("inside")).unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");
        for name in ["absolute", "upward", "loop"] {
            assert!(matches!(dir.open_file(&path(name)), Err(Error::Escape(_))), "{name}");
        }
    }

    #[test]
    fn a_planted_pipe_or_socket_neither_blocks_nor_opens() {
        let (temp, dir) = fixture();
        rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();
        for name in ["pipe", "socket"] {
            assert!(matches!(dir.open_file(&path(name)), Err(Error::NotAFile(_))), "{name}");
        }
    }

    #[test]
    fn a_single_name_cannot_climb() {
        let (_temp, dir) = fixture();
        for name in ["..", ".", "", "a/b", "/etc"] {
            assert!(matches!(dir.remove_file(OsStr::new(name)), Err(Error::Escape(_))), "{name}");
            assert!(matches!(dir.stat_entry(OsStr::new(name)), Err(Error::Escape(_))), "{name}");
        }
    }

    #[test]
    fn removing_a_tree_follows_no_link_and_opens_closed_directories() {
        let (temp, dir) = fixture();
        let outside = tempfile::tempdir().unwrap();
        let kept = Dir::ambient_open(outside.path()).unwrap();
        kept.create_file(OsStr::new("kept"), 0o644).unwrap();
        let tree = dir.create_dir(OsStr::new("tree"), 0o755).unwrap();
        let closed = tree.create_dir(OsStr::new("closed"), 0o755).unwrap();
        closed.create_file(OsStr::new("x"), 0).unwrap();
        closed.set_mode(0).unwrap();
        tree.create_symlink(outside.path().as_os_str(), OsStr::new("link")).unwrap();
        dir.remove_tree(OsStr::new("tree")).unwrap();
        assert_eq!(dir.entries().unwrap(), []);
        assert!(kept.stat_entry(OsStr::new("kept")).unwrap().is_some());
        drop(temp);
    }

    #[test]
    fn a_directory_of_the_services_own_that_was_closed_is_opened_again() {
        let (temp, dir) = fixture();
        drop(dir.ensure_path(&path("a/b/c")).unwrap());
        let own = Dir::own_root(temp.path()).unwrap();
        let mode = |at: &str| dir.open_dir(&path(at)).unwrap().stat().unwrap().mode;
        for closed in ["a", "a/b", "a/b/c"] {
            dir.open_dir(&path(closed)).unwrap().set_mode(0).unwrap();
        }
        own.open_up_path(&path("a/b/c/none")).unwrap();
        assert_eq!(["a", "a/b", "a/b/c"].map(mode), [0o700; 3]);
        // The held directory is opened itself, and no entry of it.
        let held = own.open_dir(&path("a")).unwrap();
        for closed in ["a/b", "a"] {
            dir.open_dir(&path(closed)).unwrap().set_mode(0).unwrap();
        }
        assert!(held.open_up_itself() && !held.open_up_itself());
        assert_eq!([mode("a"), mode("a/b")], [0o700, 0]);
        assert!(!held.open_dir_entry(OsStr::new("b")).unwrap().open_up_itself());
    }

    #[test]
    fn a_directory_that_was_removed_since_it_was_opened_is_an_empty_one() {
        let (_temp, dir) = fixture();
        let removed = dir.create_dir(OsStr::new("removed"), 0o755).unwrap();
        dir.remove_dir(OsStr::new("removed")).unwrap();
        assert_eq!(removed.entries().unwrap(), []);
    }

    #[test]
    fn modes_are_exact_whatever_the_umask() {
        let (_temp, dir) = fixture();
        dir.create_dir(OsStr::new("dir"), 0o777).unwrap();
        dir.create_dir(OsStr::new("closed"), 0o500).unwrap();
        dir.create_file(OsStr::new("file"), 0o666).unwrap();
        dir.create_file(OsStr::new("read-only"), 0o400).unwrap();
        dir.create_file_beneath(&path("dir/file"), 0o666).unwrap();
        let mode = |name: &str| dir.stat_entry(OsStr::new(name)).unwrap().unwrap().mode;
        assert_eq!(["dir", "closed", "file", "read-only"].map(mode), [0o777, 0o500, 0o666, 0o400]);
        assert_eq!(dir.open_file(&path("dir/file")).unwrap().1.mode, 0o666);
    }

    #[test]
    fn a_file_is_made_beneath_neither_over_another_nor_through_a_link() {
        let (_temp, dir) = fixture();
        dir.create_dir(OsStr::new("dir"), 0o755).unwrap();
        dir.create_symlink(OsStr::new("dir"), OsStr::new("link")).unwrap();
        dir.create_file_beneath(&path("dir/x"), 0o644).unwrap();
        let made = |at: &str| dir.create_file_beneath(&path(at), 0o644).map(drop);
        assert!(matches!(made("dir/x"), Err(Error::AlreadyExists(_))));
        assert!(matches!(made("link/y"), Err(Error::Escape(_))));
        assert!(matches!(made("none/y"), Err(Error::NotFound(_))));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "other programs do this, beside the service")]
    fn renames_elsewhere_disturb_no_link_with_dots() {
        let (temp, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("../../file", temp.path().join("a/b/link")).unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        let (one, other) = (elsewhere.path().join("one"), elsewhere.path().join("other"));
        std::fs::write(&one, "").unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let path = RelPath::parse("a/b/link").unwrap();
            let opened = (0..20_000).try_for_each(|_| dir.open_file(&path).map(drop));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            opened.unwrap();
        });
    }
}

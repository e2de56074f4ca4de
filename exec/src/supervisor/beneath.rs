//! [`Grounds`]: the directories in which a run may change attributes and find sockets, and making such a change.
//!
//! The changed file, or the socket, is never the one that the caller's path led to, but the one that was opened anew
//! beneath one of the run's own directories, by the kernel's own rule (`RESOLVE_BENEATH`) and through no link. The name
//! for that comes from the kernel, too; if it is outdated, or a forgery, the worst that happens is a change to another
//! file of the run's own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timestamps, Uid, chmodat, chownat, fstat,
    openat2, readlinkat, statat, utimensat,
};
use rustix::io::Errno;

/// Bits that make a program run as another user, which no run may set.
const SET_ID_BITS: u32 = 0o6000;
/// The permission bits that the owner of a run's own directory keeps: without them the service could not get in either.
const OWNER_BITS: u32 = 0o700;
/// Leaves an id as it is (chown(2)).
const UNCHANGED: u32 = u32::MAX;

/// A change of a file's attributes.
pub(super) enum Attribute {
    Mode(u32),
    Owner { uid: u32, gid: u32 },
    Times(Timestamps),
}

/// The directories that are a run's own.
#[derive(Debug)]
pub(super) struct Grounds {
    own: Vec<OwnedFd>,
}

/// A file that is the run's own.
struct Own {
    file: OwnedFd,
    /// Whether it is one of the directories that were given to the run.
    is_ground: bool,
}

impl Grounds {
    pub(super) fn new(own: Vec<OwnedFd>) -> Self {
        Self { own }
    }

    /// Changes `found`, if it is the run's own.
    ///
    /// # Errors
    /// `EPERM` for what is not the run's own, for set-id bits, and for a mode with which the run's own directory would
    /// be closed to its owner. Otherwise as `chmod(2)`, `chown(2)` and `utimensat(2)`.
    pub(super) fn change(&self, found: &OwnedFd, attribute: Attribute) -> Result<(), Errno> {
        let Own { file, is_ground } = self.again(found)?;
        let path = name_of(file.as_fd());
        match attribute {
            Attribute::Mode(mode) => {
                if mode & SET_ID_BITS != 0 || (is_ground && mode & OWNER_BITS != OWNER_BITS) {
                    return Err(Errno::PERM);
                }
                if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Symlink {
                    return Err(Errno::OPNOTSUPP);
                }
                chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
            }
            Attribute::Owner { uid, gid } => {
                let uid = (uid != UNCHANGED).then(|| Uid::from_raw(uid));
                let gid = (gid != UNCHANGED).then(|| Gid::from_raw(gid));
                chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)
            }
            Attribute::Times(times) => utimensat(CWD, path, &times, AtFlags::empty()),
        }
    }

    /// Opens the socket `found` once more, if it is beneath one of the run's own directories.
    ///
    /// # Errors
    /// `EACCES` for what is not, `ECONNREFUSED` for another file.
    pub(super) fn socket(&self, found: &OwnedFd) -> Result<OwnedFd, Errno> {
        let own =
            self.again(found).map_err(|error| if error == Errno::PERM { Errno::ACCESS } else { error })?;
        match FileType::from_raw_mode(fstat(&own.file)?.st_mode) {
            FileType::Socket => Ok(own.file),
            _ => Err(Errno::CONNREFUSED),
        }
    }

    /// Opens the directory `found` once more, as a place, if it is one of the run's own directories or beneath one.
    ///
    /// # Errors
    /// `EPERM` for another directory, `ENOTDIR` for another file.
    pub(super) fn directory(&self, found: &OwnedFd) -> Result<OwnedFd, Errno> {
        let own = self.again(found)?;
        match FileType::from_raw_mode(fstat(&own.file)?.st_mode) {
            FileType::Directory => Ok(own.file),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Tells whether the directory `found`, which must be beneath one of the run's own directories, has the entry `name`.
    ///
    /// # Errors
    /// `EACCES` for another directory.
    pub(super) fn holds(&self, found: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
        let own =
            self.again(found).map_err(|error| if error == Errno::PERM { Errno::ACCESS } else { error })?;
        match statat(&own.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens `found` once more, beneath one of the run's own directories.
    fn again(&self, found: &OwnedFd) -> Result<Own, Errno> {
        let meta = fstat(found)?;
        if meta.st_nlink == 0 && FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile {
            // A file without a name belongs to the processes that have it open; no path leads to it.
            return Ok(Own { file: found.try_clone().map_err(|_| Errno::MFILE)?, is_ground: false });
        }
        let name = path_of(found.as_fd())?;
        for own in &self.own {
            let Some(rest) = name.strip_prefix(path_of(own.as_fd())?.as_slice()) else { continue };
            let (rest, is_ground) = match rest {
                [] => (&b"."[..], true),
                [b'/', rest @ ..] => (rest, false),
                _ => continue,
            };
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            return Ok(Own { file: openat2(own, rest, flags, Mode::empty(), resolve)?, is_ground });
        }
        Err(Errno::PERM)
    }
}

/// Where the kernel says that an open file is.
///
/// # Errors
/// `EPERM` where `/proc` is not there.
pub(super) fn path_of(file: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let path = readlinkat(CWD, name_of(file), Vec::new()).map_err(|_| Errno::PERM)?;
    Ok(path.into_bytes())
}

/// A path that leads to an open file, under any name and under none.
fn name_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

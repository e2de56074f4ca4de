//! [`Inotify`]: the kernel's notices about directories (inotify(7)).

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};

/// Bytes of notices that are read at once.
const BUFFER_BYTES: usize = 16 * 1024;
/// Notices that one call reads: changes that come faster than they are read are told later.
const NOTICES_MAX: usize = 65_536;

/// Everything that changes a name in a directory, or what is under it.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// One notice.
pub(super) enum Told {
    /// Something became of `name` in the directory of `watch`; of the directory itself without a name.
    Name { watch: i32, name: Option<OsString> },
    /// The watch is gone, as its directory is.
    Gone { watch: i32 },
    /// Notices were lost.
    Lost,
}

/// Watches of directories, and what they tell.
pub(super) struct Inotify {
    fd: OwnedFd,
}

impl Inotify {
    /// # Errors
    /// [`Error::Watches`] when the kernel gives no more.
    pub(super) fn new() -> Result<Self> {
        match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
            Ok(fd) => Ok(Self { fd }),
            Err(Errno::MFILE) => Err(Error::Watches),
            Err(errno) => Err(Error::from_errno("inotify_init", "events", errno)),
        }
    }

    /// Watches a directory: the inode, wherever it is moved. A directory has one watch, however often it is asked for.
    ///
    /// # Errors
    /// [`Error::Watches`] when the kernel gives no more; [`Error::Closed`] for a directory that may not be read.
    pub(super) fn watch(&self, dir: &Dir) -> Result<i32> {
        // The link leads to the open directory, even when another lies under its name by now (proc_pid_fd(5)).
        let through = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        match inotify::add_watch(&self.fd, through, MASK) {
            Ok(watch) => Ok(watch),
            Err(Errno::NOSPC | Errno::NOMEM) => Err(Error::Watches),
            Err(errno) => Err(Error::from_errno("inotify_add_watch", ".", errno)),
        }
    }

    /// Ends a watch. One that has gone with its directory is none any more.
    pub(super) fn forget(&self, watch: i32) {
        let _ = inotify::remove_watch(&self.fd, watch);
    }

    /// Reads what there is without waiting. Tells whether that was all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn read(&self, take: &mut dyn FnMut(Told)) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        for _ in 0..NOTICES_MAX {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Error::from_errno("read", "events", errno)),
            };
            let what = event.events();
            let watch = event.wd();
            take(if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                Told::Lost
            } else if what.contains(ReadFlags::IGNORED) {
                Told::Gone { watch }
            } else {
                let name = event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec()));
                Told::Name { watch, name }
            });
        }
        Ok(false)
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

//! [`Workplace`]: the directory of one live view below `views/`, and the lock that tells that it is in use.
//!
//! ```text
//! views/{view}/lease     flock(2) held while the view is; the text is where its upper directory lies
//! views/{view}/work      overlayfs' own
//! views/{view}/none      an empty lower layer, for a skill of which nothing of the baseline shows
//! views/{view}/shadow    empty directories as a further lower layer, where the overlay has whiteouts that hide nothing
//! views/{view}/mount     where the mount is attached when it has to be
//! views/{view}/layers    where the layers are attached while it is made
//! ```
//!
//! A duplicate of the lock's descriptor goes to the first process of every run. So a service that died while its
//! commands live on leaves a lock that the next one sees, and waits for, before it touches an upper directory.
//!
//! No command gets to this directory, and no tree of a command is ever an entry of it: a start believes what it finds.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::RelPath;
use rustix::fs::{FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::mount;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;

pub(crate) const LEASE: &str = "lease";
pub(crate) const WORK: &str = "work";
pub(crate) const NONE: &str = "none";
pub(crate) const SHADOW: &str = "shadow";
pub(crate) const MOUNT: &str = "mount";
pub(crate) const LAYERS: &str = "layers";

/// How long a start waits for the commands of a former service.
const LEASE_WAIT: Duration = Duration::from_secs(5);
const LEASE_POLL: Duration = Duration::from_millis(50);

/// The directory of one live view. It is removed when this is dropped, and the lock released after that.
pub(crate) struct Workplace {
    root: Arc<Dir>,
    name: OsString,
    /// Whether the directory is left to the next start, which tidies the overlay it is of.
    pub(crate) stays: bool,
    pub(crate) lease: Arc<OwnedFd>,
}

impl Workplace {
    /// Makes the directory `name` in `views/` for a view of the upper directory `upper`, and locks it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn new(root: &Arc<Dir>, name: OsString, upper: &RelPath) -> Result<Self> {
        let dir = views(root)?.create_dir(&name, 0o700)?;
        let lease = dir.create_file(OsStr::new(LEASE), 0o600)?;
        rustix::fs::flock(&lease, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| Error::from_errno("flock", LEASE, errno))?;
        let lease = lease_of(lease, upper)?;
        Ok(Self { root: Arc::clone(root), name, stays: false, lease: Arc::new(lease.into()) })
    }

    /// The directory itself.
    ///
    /// # Errors
    /// [`Error::Io`] when descriptors run out.
    pub(crate) fn dir(&self) -> Result<Dir> {
        views(&self.root)?.open_dir_entry(&self.name)
    }

    /// Opens the directory `name` in this one, which [`Workplace::make`] made.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn open(&self, name: &str) -> Result<Dir> {
        self.dir()?.open_dir_entry(OsStr::new(name))
    }

    /// Makes the directory `name` in this one. Returns where it lies, from the store's root.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn make(&self, name: &str) -> Result<RelPath> {
        drop(self.dir()?.create_dir(OsStr::new(name), 0o700)?);
        let views = RelPath::parse(layout::VIEWS)?;
        Ok(views.join(&self.name.to_string_lossy())?.join(name)?)
    }
}

/// Writes into a fresh lease which upper directory it is of.
fn lease_of(mut lease: File, upper: &RelPath) -> Result<File> {
    lease.write_all(upper.as_str().as_bytes()).map_err(|error| Error::from_io("write", LEASE, error))?;
    Ok(lease)
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Err(error) = views(&self.root).and_then(|views| views.remove_tree(&self.name)) {
            tracing::warn!(%error, "a view's directory stays until the next start");
        }
    }
}

fn views(root: &Dir) -> Result<Dir> {
    root.open_dir(&RelPath::parse(layout::VIEWS)?)
}

/// Waits until no command of a former service holds a lease in `views`. Returns where the upper directories lie that
/// were mounted when that service ended.
///
/// # Errors
/// [`Error::Conflict`] when commands live on for too long.
pub(crate) fn wait_for_former(views: &Dir) -> Result<Vec<RelPath>> {
    let deadline = Instant::now() + LEASE_WAIT;
    let mut uppers = Vec::new();
    for entry in views.entries()? {
        let Ok((file, _)) =
            views.open_dir_entry(&entry.name).and_then(|dir| dir.open_file_entry(OsStr::new(LEASE)))
        else {
            continue;
        };
        while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            if Instant::now() >= deadline {
                let message = "commands that a former filesecbox started are still running in skills of this \
                               data directory: wait for their end, or end them, and start again";
                return Err(Error::Conflict(message.to_owned()));
            }
            std::thread::sleep(LEASE_POLL);
        }
        let mut text = String::new();
        let most = u64::try_from(policy::path::PATH_BYTES_MAX).unwrap_or(u64::MAX);
        // A lease whose text was never written is of a view that was never mounted.
        if file.take(most).read_to_string(&mut text).is_ok()
            && let Ok(upper) = RelPath::parse(&text)
        {
            uppers.push(upper);
        }
    }
    Ok(uppers)
}

/// Takes everything off the directories of the entry `name` of `views` that a former service attached there.
///
/// With a mount namespace of its own nothing is left of that. Without one, removing the entry would remove what is
/// mounted in it.
///
/// # Errors
/// [`Error::Conflict`] when something stays mounted.
pub(crate) fn unmount_left_over(views: &Dir, name: &OsStr) -> Result<()> {
    let Ok(dir) = views.open_dir_entry(name) else { return Ok(()) };
    for name in [MOUNT, LAYERS] {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let same = || {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
            rustix::fs::openat2(dir.as_fd(), name, flags, Mode::empty(), resolve)
        };
        if let Err(Errno::XDEV) = same() {
            let mounted = dir.open_dir_entry(OsStr::new(name))?;
            mount::detach(mounted.as_fd());
            if let Err(Errno::XDEV) = same() {
                return Err(Error::Conflict("a view of a former service is still mounted".to_owned()));
            }
        }
    }
    Ok(())
}

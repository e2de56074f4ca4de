//! [`Temporary`]: the directory for temporary files of a run, in which parts of the host's directories have their stand-ins.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::beneath::Grounds;
use super::walled::walled;

/// A directory of the run's own, changed with the ids of the run and behind its walls.
#[derive(Debug)]
pub(super) struct Temporary {
    walls: Arc<OwnedFd>,
    directory: OwnedFd,
}

impl Temporary {
    /// The directory `found`; `None` where that is not beneath `grounds`, because the caller has set another one.
    pub(super) fn new(grounds: &Grounds, walls: Arc<OwnedFd>, found: &OwnedFd) -> Option<Self> {
        let directory = grounds.directory(found).ok()?;
        Some(Self { walls, directory })
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Acts in the directory.
    ///
    /// # Errors
    /// Those of `act`; `ENOMEM` without a thread.
    pub(super) fn act<T: Send>(
        &self,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno> + Send,
    ) -> Result<T, Errno> {
        walled(self.walls.as_fd(), || act(self.directory.as_fd()))
    }
}

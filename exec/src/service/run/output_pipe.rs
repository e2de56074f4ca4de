//! [`OutputPipe`]: our end of a pipe that a command writes to.
//!
//! Most commands end soon and write little, and their output can as well be read afterwards. Each wake-up for a few bytes
//! takes the processor from the command that wrote them, so standard output is watched only once its command has lived for
//! a moment, or has written to standard error: then the order of both is to be told.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::Error;
use crate::sys;

/// How long a command lives before its output is watched. One that fills its pipes earlier waits that long.
pub(crate) const LATE: Duration = Duration::from_millis(2);

/// Our end of a pipe, which does not block.
pub(crate) enum OutputPipe {
    /// Without a notice when there is something to read.
    Unwatched(OwnedFd),
    /// With a notice to its readers.
    Watched(AsyncFd<OwnedFd>),
}

impl OutputPipe {
    /// The same, watched.
    ///
    /// # Errors
    /// [`Error::Resource`]: the event loop takes no more descriptors.
    pub(crate) fn watched(self) -> Result<Self, Error> {
        match self {
            Self::Unwatched(pipe) => {
                sys::watch(pipe, Interest::READABLE).map(Self::Watched).map_err(Error::resource("epoll_ctl"))
            }
            watched @ Self::Watched(_) => Ok(watched),
        }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// As `read(2)`: `EAGAIN` when there is nothing yet.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self, rustix::io::read(self, &mut *buffer)) {
            // Notes that there is nothing, if that is still so, so that readers wait.
            (Self::Watched(pipe), Err(Errno::AGAIN)) => {
                pipe.try_io(Interest::READABLE, |pipe| Ok(rustix::io::read(pipe, &mut *buffer)?))
            }
            (_, read) => Ok(read?),
        }
    }

    /// Tells whether something can be read now, be it the end.
    pub(crate) fn has_more(&self) -> bool {
        let mut asked = [PollFd::new(self, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits until there is something to read; for ever where no notice comes.
    pub(crate) async fn readable(&self) {
        match self {
            Self::Unwatched(_) => pending().await,
            // An error shows again, with its reason, when the pipe is read.
            Self::Watched(pipe) => drop(pipe.ready(Interest::READABLE).await),
        }
    }
}

impl AsFd for OutputPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unwatched(pipe) => pipe.as_fd(),
            Self::Watched(pipe) => pipe.as_fd(),
        }
    }
}

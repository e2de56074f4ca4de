//! [`DescriptorSlot`]: the socket of a caller, in whose place another comes; and the call by which that happens.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::beneath::Grounds;
use super::target::Target;
use crate::sys;

/// A call that waits for its answer, and what it is judged by.
pub(super) struct Asked<'a> {
    pub(super) target: &'a Target,
    pub(super) grounds: &'a Grounds,
    pub(super) listener: BorrowedFd<'a>,
    /// Names the call to the kernel.
    pub(super) call: u64,
}

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Made,
    /// The answer comes later, from `try_again` of the one who was asked.
    Later,
}

/// The slot of a socket in the caller's table of descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorSlot {
    number: u32,
    flags: OFlags,
}

impl DescriptorSlot {
    /// Finds the caller's socket.
    pub(super) fn of(target: &Target, number: i32) -> Result<Self, Errno> {
        target.socket(number)?;
        let flags = target.open_flags(number)?;
        Ok(Self { number: u32::try_from(number).map_err(|_| Errno::BADF)?, flags })
    }

    /// Tells whether the caller waits for what it does with the socket.
    pub(super) fn waits(self) -> bool {
        !self.flags.contains(OFlags::NONBLOCK)
    }

    /// Gives the caller `socket` there.
    pub(super) fn fill(self, socket: &OwnedFd, listener: BorrowedFd<'_>, call: u64) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(socket, !self.waits())?;
        let closes = self.flags.contains(OFlags::CLOEXEC);
        sys::put_in_place(listener, call, socket.as_fd(), self.number, closes)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::BADF))
    }
}

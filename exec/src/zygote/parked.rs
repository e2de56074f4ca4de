//! [`Parked`]: the first process of a mounted run, made before anybody asked for the run.
//!
//! Copying the launcher into new namespaces and mounting what is the same for all runs takes a third of a millisecond,
//! which the next run need not wait for. A parked process holds nothing of any run, serves one, and ends with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::unistd::Pid;

use super::busy::Busy;
use crate::wire::{self, Descriptors, Request, Whole};

/// A first process that waits for its run. Dropping it before ends the process.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) pid: Pid,
    /// The number of the run that it will be.
    pub(super) number: u64,
    /// The limits of its control group.
    pub(super) whole: Whole,
    socket: OwnedFd,
    busy: Busy,
}

impl Parked {
    /// A new process, its socket, and what it shares with the launcher.
    pub(super) fn new((pid, socket, busy): (Pid, OwnedFd, Busy), number: u64, whole: Whole) -> Self {
        Self { pid, number, whole, socket, busy }
    }

    /// Gives it its run. What it goes on sharing, when it may stay after that.
    ///
    /// # Errors
    /// As `sendmsg(2)`: `EPIPE` when it is gone.
    pub(super) fn take(
        self,
        request: &Request,
        descriptors: &Descriptors<OwnedFd>,
    ) -> io::Result<Option<Busy>> {
        self.busy.begin(request.deadline_ms);
        wire::send_request(self.socket.as_fd(), request, &descriptors.borrowed())?;
        Ok(Some(self.busy).filter(|_| request.may_stay))
    }
}

//! [`Parked`]: the first process of a mounted run, made before a request for the run came.
//!
//! Copying the launcher into new namespaces and mounting what is the same for all runs takes a third of a millisecond,
//! which the next run need not wait for. A parked process holds nothing of any run, serves one, and ends with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::unistd::Pid;

use super::cgroup::Group;
use super::run::Spawned;
use super::shared_clock::SharedClock;
use super::users::Users;
use super::{Loop, PARKED};
use crate::step::Step;
use crate::wire::{self, Descriptors, Request, Whole};

/// A first process that waits for its run. Dropping it before ends the process.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) pid: Pid,
    /// The number of the run that it will be.
    pub(super) number: u64,
    /// The limits of its control group.
    pub(super) whole: Whole,
    /// The user namespace of its command.
    pub(super) users: Option<OwnedFd>,
    socket: OwnedFd,
    busy: SharedClock,
}

impl Parked {
    /// A new process, its socket, and what it shares with the launcher.
    pub(super) fn new(
        (pid, socket, busy): (Pid, OwnedFd, SharedClock),
        number: u64,
        whole: Whole,
        users: Option<OwnedFd>,
    ) -> Self {
        Self { pid, number, whole, users, socket, busy }
    }

    /// Gives it its run. What it goes on sharing, when it may stay after that.
    ///
    /// # Errors
    /// As `sendmsg(2)`: `EPIPE` when it is gone.
    pub(super) fn take(
        self,
        request: &Request,
        descriptors: &Descriptors<OwnedFd>,
    ) -> io::Result<Option<SharedClock>> {
        self.busy.begin(request.deadline_ms);
        wire::send_request(self.socket.as_fd(), request, &descriptors.borrowed())?;
        Ok(Some(self.busy).filter(|_| request.may_stay))
    }
}

impl Loop {
    /// Gives a run to a first process, parked or made now.
    pub(super) fn hand_over(
        &mut self,
        request: &Request,
        descriptors: &Descriptors<OwnedFd>,
    ) -> Result<Spawned, (Step, io::Error)> {
        while let Some(mut parked) = self.parked.pop_front() {
            let (number, pid, users) = (parked.number, parked.pid, parked.users.take());
            // A parked process that died, or was made for other limits, ends when it is dropped.
            if parked.whole == request.whole
                && let Ok(busy) = parked.take(request, descriptors)
            {
                return Ok(Spawned { number, pid, busy, users });
            }
            self.memory.ended(number, false);
        }
        let mut parked = self.park(request.whole)?;
        let (number, pid, users) = (parked.number, parked.pid, parked.users.take());
        match parked.take(request, descriptors) {
            Ok(busy) => Ok(Spawned { number, pid, busy, users }),
            Err(error) => {
                self.memory.ended(number, false);
                Err((Step::Request, error))
            }
        }
    }

    /// Makes a first process for a run with these limits.
    fn park(&mut self, whole: Whole) -> Result<Parked, (Step, io::Error)> {
        let number = self.next;
        self.next += 1;
        let users = self.users.as_mut().map(Users::lend).transpose().map_err(|error| (Step::Users, error))?;
        let group = self.memory.birthplace(number, whole).map_err(|error| (Step::Group, error));
        let parked = group.and_then(|group| {
            let group = group.as_ref().and_then(Group::birthplace).map(AsFd::as_fd);
            let made = self.spawner.park(group, users.as_ref()).map_err(|error| (Step::Clone, error))?;
            Ok(Parked::new(made, number, whole, users))
        });
        if parked.is_err() {
            self.memory.ended(number, false);
        }
        parked
    }

    /// The limits of the first process to be made ahead; `None` when there are enough.
    pub(super) fn wants_parked(&self) -> Option<Whole> {
        self.usual.filter(|_| self.parked.len() < PARKED)
    }

    pub(super) fn park_ahead(&mut self) {
        let Some(whole) = self.wants_parked().filter(|_| self.free <= Instant::now()) else { return };
        match self.park(whole) {
            Ok(parked) => self.parked.push_back(parked),
            // The next run will try it again, and tell.
            Err(_) => self.usual = None,
        }
    }
}

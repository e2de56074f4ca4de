//! [`OwnerMaps`]: the service's files as a sandbox sees them, as its own.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::service::launcher::Launcher;
use crate::service::mounts::clone_mapped;
use crate::wire::{self, Order, packet_sockets};

/// User namespaces kept; each is one descriptor of the service.
const KEPT_MAX: usize = 256;
/// How long the launcher may take to make one.
const ANSWER: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Makes mounts on which the service and a sandbox's owner have changed places.
///
/// What the service stores stays its own on disk; through such a mount the sandbox's user is its owner, and what that
/// user makes is the service's on disk. The other way round too, so that nothing of it is without an owner.
#[derive(Debug)]
pub struct OwnerMaps {
    launcher: Weak<Launcher>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    namespaces: HashMap<u32, (Arc<OwnedFd>, u64)>,
    clock: u64,
}

impl OwnerMaps {
    /// Maps made with the help of `launcher`, as long as it lives.
    #[must_use]
    pub fn new(launcher: &Arc<Launcher>) -> Self {
        Self { launcher: Arc::downgrade(launcher), kept: Mutex::default() }
    }

    /// A detached mount that shows what is below `directory`, with the service's own id and `owner` in each other's
    /// places, both as user and as group. Blocks for a fraction of a millisecond.
    ///
    /// # Errors
    /// As `clone(2)`, `open_tree(2)` and `mount_setattr(2)`: `EPERM` without the privilege, `EINVAL` where the file
    /// system cannot do it, `ETIMEDOUT` when the launcher does not answer.
    pub fn swapped(&self, directory: BorrowedFd<'_>, owner: u32) -> io::Result<OwnedFd> {
        let namespace = match self.find(owner) {
            Some(namespace) => namespace,
            None => self.keep(owner, self.make(owner)?),
        };
        clone_mapped(directory, namespace.as_fd())
    }

    fn make(&self, owner: u32) -> io::Result<OwnedFd> {
        let launcher = self.launcher.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let (ours, theirs) = packet_sockets()?;
        let order = wire::encode(&Order::<()>::SwapOwner { owner })?;
        launcher.send_blocking(&order, theirs.as_fd())?;
        drop(theirs);
        let mut set = [PollFd::new(&ours, PollFlags::IN)];
        if poll(&mut set, Some(&ANSWER))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut answer = [0; 512];
        let (length, attached) = wire::receive(ours.as_fd(), &mut answer)?;
        match attached.into_iter().next() {
            Some(namespace) => Ok(namespace),
            None => match wire::decode(answer.get(..length).unwrap_or_default()) {
                Ok(wire::Report::Failed { errno, .. }) => Err(io::Error::from_raw_os_error(errno)),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            },
        }
    }

    fn find(&self, owner: u32) -> Option<Arc<OwnedFd>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        let (namespace, used) = kept.namespaces.get_mut(&owner)?;
        *used = clock;
        Some(Arc::clone(namespace))
    }

    fn keep(&self, owner: u32, namespace: OwnedFd) -> Arc<OwnedFd> {
        let namespace = Arc::new(namespace);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.namespaces.len() >= KEPT_MAX {
            let oldest = kept.namespaces.iter().min_by_key(|(_, (_, used))| *used).map(|(owner, _)| *owner);
            oldest.map(|oldest| kept.namespaces.remove(&oldest));
        }
        let clock = kept.clock;
        kept.namespaces.insert(owner, (Arc::clone(&namespace), clock));
        namespace
    }
}

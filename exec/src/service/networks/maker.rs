//! [`NetworkMaker`]: the process that makes network namespaces ahead, as the service knows it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::service::networks::Made;
use crate::wire::{self, NetworkReport};

/// How long a request for a namespace waits. Making one takes milliseconds at worst, unless the kernel is at its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer, in bytes.
const ANSWER_BYTES: usize = 32;

/// The socket of the process, in which namespaces wait to be taken. Any number of threads may take some at once: each
/// asks for one, and it does not matter which run gets which namespace.
#[derive(Debug)]
pub(crate) struct NetworkMaker {
    socket: OwnedFd,
    /// The first one, by which the service found out whether there can be any.
    first: Mutex<Option<Made>>,
}

/// One more namespace was asked for.
#[must_use]
pub(crate) struct Asked(());

impl NetworkMaker {
    /// Takes over the socket of the process.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, first: Mutex::default() })
    }

    /// Waits for the first namespace, which the next caller of [`Self::take_ready`] gets. A later one may be possible
    /// where this one is not.
    ///
    /// # Errors
    /// As [`NetworkMaker::wait`].
    pub(crate) fn try_out(&self) -> io::Result<()> {
        let made = self.wait(&self.ask()?)?;
        *self.first() = Some(made);
        Ok(())
    }

    /// Takes a namespace that is ready; `None` when none is, and [`NetworkMaker::wait`] is to be called.
    ///
    /// # Errors
    /// As `sendmsg(2)` and `recvmsg(2)`: `EPIPE` when the process is gone.
    pub(crate) fn take_ready(&self) -> io::Result<Result<Made, Asked>> {
        if let Some(first) = self.first().take() {
            return Ok(Ok(first));
        }
        let asked = self.ask()?;
        match self.receive() {
            Ok((made, loopback)) => loopback.map(|()| Ok(made)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Err(asked)),
            Err(error) => Err(error),
        }
    }

    /// Waits for a namespace that was asked for, on a thread that may wait.
    ///
    /// # Errors
    /// As `unshare(2)`: `ENOSPC` at the limit on network namespaces (`user.max_net_namespaces`), `EPERM`; `ETIMEDOUT`.
    pub(crate) fn wait(&self, asked: &Asked) -> io::Result<Made> {
        let (made, loopback) = self.receive_within(asked, PATIENCE)?;
        loopback.map(|()| made)
    }

    fn ask(&self) -> io::Result<Asked> {
        wire::send(self.socket.as_fd(), b"take", &[])?;
        Ok(Asked(()))
    }

    fn receive_within(&self, _asked: &Asked, patience: Duration) -> io::Result<(Made, io::Result<()>)> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut set, Some(&left)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match self.receive() {
                // Another thread was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }

    /// The answer that has come: a namespace, and whether its loopback interface and the listener work.
    fn receive(&self) -> io::Result<(Made, io::Result<()>)> {
        let mut answer = [0; ANSWER_BYTES];
        let (length, attached) = wire::receive(self.socket.as_fd(), &mut answer)?;
        if length == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let loopback = match wire::decode(answer.get(..length).unwrap_or_default())? {
            NetworkReport::Made => Ok(()),
            NetworkReport::WithoutLoopback { errno } => Err(io::Error::from_raw_os_error(errno)),
            NetworkReport::Failed { errno } => return Err(io::Error::from_raw_os_error(errno)),
        };
        let mut attached = attached.into_iter();
        // Without room for descriptors here, the kernel has closed them on the way (unix(7), `MSG_CTRUNC`).
        let namespace = attached.next().ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        Ok((Made { namespace, listener: attached.next() }, loopback))
    }

    fn first(&self) -> std::sync::MutexGuard<'_, Option<Made>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

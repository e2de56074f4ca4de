//! [`Connector`]: connects a run to the egress proxy, and to nothing else.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::pace::Pace;
use super::pair::tcp_pair;
use super::target::Target;
use crate::network_owner::NetworkOwner;
use crate::sys;

/// A connection that a command has made to the egress proxy.
#[derive(Debug)]
pub struct ProxyConnection {
    /// The user and agent whose command it is.
    pub owner: NetworkOwner,
    /// The proxy's end.
    pub stream: TcpStream,
}

/// The way of a run to the egress proxy.
#[derive(Debug)]
pub(crate) struct ProxyLink {
    /// The port of `127.0.0.1` at which the run looks for the proxy.
    pub(crate) port: u16,
    /// The user and agent of the run.
    pub(crate) owner: NetworkOwner,
    /// The way to the proxy.
    pub(crate) proxy: mpsc::Sender<ProxyConnection>,
}

/// Connects one run.
#[derive(Debug)]
pub(super) struct Connector {
    link: ProxyLink,
    pace: Pace,
}

impl Connector {
    pub(super) fn new(link: ProxyLink) -> Self {
        Self { link, pace: Pace::new(Instant::now()) }
    }

    /// Tells whether `address` is that of the proxy, as a run knows it.
    pub(super) fn is_at(&self, address: SocketAddrV4) -> bool {
        address == SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.link.port)
    }

    /// Connects the caller's socket to the proxy.
    ///
    /// # Errors
    /// `ECONNREFUSED` when the proxy takes no more; those of [`Target`] and of making the connection.
    pub(super) fn connect(
        &mut self,
        target: &Target,
        socket: i32,
        listener: BorrowedFd<'_>,
        call: u64,
    ) -> Result<(), Errno> {
        let number = u32::try_from(socket).map_err(|_| Errno::BADF)?;
        let flags = target.open_flags(socket)?;
        // Before the connection, so that none is made in vain.
        let proxy = self.link.proxy.try_reserve().map_err(|_| Errno::CONNREFUSED)?;
        std::thread::sleep(self.pace.pause(Instant::now()));
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::TIMEDOUT);
        let (theirs, ours) = tcp_pair().map_err(failed)?;
        theirs.set_nonblocking(flags.contains(OFlags::NONBLOCK)).map_err(failed)?;
        sys::put_in_place(listener, call, theirs.as_fd(), number, flags.contains(OFlags::CLOEXEC))
            .map_err(failed)?;
        proxy.send(ProxyConnection { owner: self.link.owner.clone(), stream: ours });
        Ok(())
    }
}

//! [`Connector`]: connects a run to the egress proxy, and to nothing else.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::pair::tcp_pair;
use super::target::Target;
use crate::network_owner::NetworkOwner;
use crate::sys;

/// The connections that a run makes at once without a pause, and the pause before each further one: an ended connection
/// takes a port of the loopback interface for a minute more.
const BURST: u32 = 128;
const PAUSE: Duration = Duration::from_millis(40);

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

    /// Connects the caller's socket to the proxy, when `address` is the proxy's.
    ///
    /// # Errors
    /// `ECONNREFUSED` at other ports and addresses of this host, or when the proxy takes no more; `ENETUNREACH` elsewhere;
    /// those of [`Target`] and of making the connection.
    pub(super) fn connect(
        &mut self,
        target: &Target,
        address: SocketAddrV4,
        socket: i32,
        listener: BorrowedFd<'_>,
        call: u64,
    ) -> Result<(), Errno> {
        let number = u32::try_from(socket).map_err(|_| Errno::BADF)?;
        judge(address, self.link.port)?;
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

/// Tells whether `address` is that of the proxy, as a run knows it.
fn judge(address: SocketAddrV4, port: u16) -> Result<(), Errno> {
    match *address.ip() {
        Ipv4Addr::LOCALHOST if address.port() == port => Ok(()),
        own if own.is_loopback() || own.is_unspecified() => Err(Errno::CONNREFUSED),
        _ => Err(Errno::NETUNREACH),
    }
}

/// How fast a run makes connections.
#[derive(Debug)]
struct Pace {
    /// How many it may make at once.
    left: u32,
    /// Since when one more is granted with each [`PAUSE`].
    since: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Counts one more; how long to wait before it.
    fn pause(&mut self, now: Instant) -> Duration {
        let pauses = now.saturating_duration_since(self.since).as_millis() / PAUSE.as_millis();
        let granted = u32::try_from(pauses).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(granted).min(BURST);
        self.since = if self.left == BURST { now } else { self.since + PAUSE * granted };
        if self.left > 0 {
            self.left -= 1;
            return Duration::ZERO;
        }
        // The one that the pause grants.
        self.since += PAUSE;
        self.since.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_proxy_is_within_reach() {
        let judged = |text: &str| judge(text.parse().unwrap(), 3128);
        assert_eq!(judged("127.0.0.1:3128"), Ok(()));
        for own in ["127.0.0.1:8003", "127.0.0.2:3128", "0.0.0.0:3128", "127.255.0.1:22"] {
            assert_eq!(judged(own), Err(Errno::CONNREFUSED), "{own}");
        }
        for other in ["10.0.0.1:3128", "169.254.169.254:80", "192.168.0.1:3128", "255.255.255.255:3128"] {
            assert_eq!(judged(other), Err(Errno::NETUNREACH), "{other}");
        }
    }

    #[test]
    fn a_burst_is_free_and_then_each_waits_for_its_turn() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.pause(start), Duration::ZERO);
        }
        assert_eq!(pace.pause(start), PAUSE);
        assert_eq!(pace.pause(start + PAUSE), PAUSE);
        assert_eq!(pace.pause(start + 2 * PAUSE + PAUSE / 2), PAUSE / 2);
        // A run that made none for a while may make as many at once again, and no more.
        let later = start + PAUSE * (3 * BURST);
        for _ in 0..BURST {
            assert_eq!(pace.pause(later), Duration::ZERO);
        }
        assert_eq!(pace.pause(later), PAUSE);
    }
}

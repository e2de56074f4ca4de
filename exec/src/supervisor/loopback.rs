//! [`LoopbackSockets`]: TCP between processes of the runs of one user and agent, over loopback addresses of their own.
//!
//! The runs share the network of the host, in which a port is everyone's. So the calls that give a socket of TCP a name or a
//! peer come here, and a new socket of the service takes the place of the caller's, as with [`LocalSockets`]:
//!
//! * **Binding** is done at the own addresses of the run (see [`Loopback`]), whichever address of the machine the caller names.
//! * **Connecting** is done from there to there, and only to a socket that the service has let listen there. Whether it still
//!   does is asked again when the connection is made: otherwise a server of the host may have answered, which listens on all
//!   addresses.
//! * **Listening** is done at a socket that was bound here. It listens once.
//!
//! No socket that connects is in the hands of the caller before that is certain. So a caller that would not wait gets its
//! connection at once, or waits for [`HASTY`] where a server has no room.
//!
//! # References
//! ip(7), tcp(7), seccomp_unotify(2).
//!
//! [`LocalSockets`]: super::local::LocalSockets

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use super::pace::Pace;
use super::slot::{Asked, DescriptorSlot, Outcome};
use super::target::{Kind, Target};
use crate::loopback::{Listener, Loopback};
use crate::sys;

/// The first port that a run may listen at, as without privileges.
const FIRST_PORT: u16 = 1024;
/// Sockets of one run that are bound and do not listen yet. The oldest is let go first.
const BOUND_MAX: usize = 64;
/// Sockets of one run of which it is known that they listen, are connected, or were let go.
const REMEMBERED_MAX: usize = 1024;
/// Connections of one run that wait for a listener to have room.
const WAITING_MAX: usize = 16;
/// How long the kernel may take for a connection to a listener that has room; it takes some microseconds.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// How long a connection waits whose caller would not: until the kernel has tried once more.
const HASTY: Duration = Duration::from_millis(1200);

/// The sockets of TCP of one run.
#[derive(Debug)]
pub(super) struct LoopbackSockets {
    own: Arc<Loopback>,
    /// The group of the run's processes.
    group: i32,
    /// The port of the egress proxy, where the run reaches that.
    proxy: Option<u16>,
    bound: VecDeque<(u64, Bound)>,
    /// Sockets that have got all that they can get.
    done: VecDeque<u64>,
    waiting: Vec<Waiting>,
    pace: Pace,
}

/// A socket that is bound.
#[derive(Debug)]
struct Bound {
    socket: OwnedFd,
    is_ipv6: bool,
    /// The address that the caller named.
    asked: IpAddr,
}

/// A connection that waits until its listener has room.
#[derive(Debug)]
struct Waiting {
    call: u64,
    slot: DescriptorSlot,
    socket: OwnedFd,
    place: SocketAddrV4,
    listener: Listener,
    /// When it is given up; `None` leaves that to the kernel.
    until: Option<Instant>,
}

impl LoopbackSockets {
    /// The sockets of the run with this group of processes. At `proxy` it finds the egress proxy.
    pub(super) fn new(own: Arc<Loopback>, group: i32, proxy: Option<u16>) -> Self {
        Self {
            own,
            group,
            proxy,
            bound: VecDeque::new(),
            done: VecDeque::new(),
            waiting: Vec::new(),
            pace: Pace::new(Instant::now()),
        }
    }

    /// Gives the caller's socket an address.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` for an address that is not the machine's, `EACCES` for a port below 1024, `EADDRINUSE` for that of the
    /// proxy, `EINVAL` for a socket that has an address. Otherwise as `bind(2)`.
    pub(super) fn bind(&mut self, asked: &Asked<'_>, address: SocketAddr, socket: i32) -> Result<(), Errno> {
        let &Asked { target, listener, call, .. } = asked;
        let slot = DescriptorSlot::of(target, socket)?;
        let is_ipv6 = kind_of(target, socket, address)?;
        let inode = target.socket(socket)?;
        if self.done.contains(&inode) || self.bound.iter().any(|(bound, _)| *bound == inode) {
            return Err(Errno::INVAL);
        }
        let own = self.own.meant_by(address.ip()).first().copied().ok_or(Errno::ADDRNOTAVAIL)?;
        let place = SocketAddrV4::new(own, checked(address.port(), self.proxy)?);
        let new = Bound { socket: bind_at(place, is_ipv6)?, is_ipv6, asked: address.ip() };
        let inode = rustix::fs::fstat(&new.socket)?.st_ino;
        slot.fill(&new.socket, listener, call)?;
        if self.bound.len() >= BOUND_MAX
            && let Some((oldest, _)) = self.bound.pop_front()
        {
            self.remember(oldest);
        }
        self.bound.push_back((inode, new));
        Ok(())
    }

    /// Has the caller's socket listen; at a free port, when it has no address yet.
    ///
    /// # Errors
    /// `ENOBUFS` where too many listen, `EINVAL` for a socket that listened or is connected. Otherwise as `listen(2)`.
    pub(super) fn listen(
        &mut self,
        asked: &Asked<'_>,
        socket: i32,
        is_ipv6: bool,
        backlog: i32,
    ) -> Result<(), Errno> {
        let &Asked { target, listener, call, .. } = asked;
        let inode = target.socket(socket)?;
        if self.done.contains(&inode) {
            // Many programs say twice that a socket is to listen.
            return if self.own.knows(inode) { Ok(()) } else { Err(Errno::INVAL) };
        }
        self.own.make_room()?;
        // From here on only the caller has it, so that it is closed when the caller closes it.
        let found = self.bound.iter().position(|(bound, _)| *bound == inode);
        let bound = match found.and_then(|found| self.bound.remove(found)) {
            Some((_, bound)) => bound,
            None => {
                let asked = if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                let own = self.own.meant_by(asked).first().copied().ok_or(Errno::ADDRNOTAVAIL)?;
                let new = Bound { socket: bind_at(SocketAddrV4::new(own, 0), is_ipv6)?, is_ipv6, asked };
                DescriptorSlot::of(target, socket)?.fill(&new.socket, listener, call)?;
                new
            }
        };
        let inode = rustix::fs::fstat(&bound.socket)?.st_ino;
        self.remember(inode);
        rustix::net::listen(&bound.socket, backlog)?;
        let Bound { socket, is_ipv6, asked } = bound;
        let listener = Listener { inode, is_ipv6, asked, group: self.group, program: target.program() };
        self.own.note(place_of(&socket)?, listener);
        Ok(())
    }

    /// Connects the caller's socket to one that listens at the own addresses.
    ///
    /// # Errors
    /// `ECONNREFUSED` where none does, `ENETUNREACH` for an address that is not the machine's, `EISCONN` for a socket that is
    /// connected, `ETIMEDOUT` where too many wait. Otherwise as `connect(2)`.
    pub(super) fn connect(
        &mut self,
        asked: &Asked<'_>,
        address: SocketAddr,
        socket: i32,
    ) -> Result<Outcome, Errno> {
        let &Asked { target, listener, call, .. } = asked;
        let slot = DescriptorSlot::of(target, socket)?;
        let is_ipv6 = kind_of(target, socket, address)?;
        let inode = target.socket(socket)?;
        if self.done.contains(&inode) {
            return Err(Errno::ISCONN);
        }
        let addresses = self.own.meant_by(address.ip());
        let Some((place, there)) = self.own.find(&addresses, address.port()) else {
            return Err(if is_of_this_machine(address) { Errno::CONNREFUSED } else { Errno::NETUNREACH });
        };
        std::thread::sleep(self.pace.pause(Instant::now()));
        self.bound.retain(|(bound, _)| *bound != inode);
        let new = stream(is_ipv6)?;
        // The port is chosen when the peer is known: one that was used for another peer may be used again (ip(7)).
        let _ = nix::sys::socket::setsockopt(&new, IpBindAddressNoPort, &true);
        bind_to(&new, SocketAddrV4::new(*place.ip(), 0), is_ipv6)?;
        match connect_to(&new, place, is_ipv6) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let until = (!slot.waits()).then(|| Instant::now() + HASTY);
        let waiting = Waiting { call, slot, socket: new, place, listener: there, until };
        match waiting.attempt(&self.own, listener, &AT_ONCE) {
            Err(Errno::AGAIN) if self.waiting.len() < WAITING_MAX => {
                self.waiting.push(waiting);
                Ok(Outcome::Later)
            }
            Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
            made => {
                let inode = made?;
                self.remember(inode);
                Ok(Outcome::Made)
            }
        }
    }

    /// Tells whether calls wait for [`LoopbackSockets::try_again`].
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Looks at the connections that wait once more, and tells `answer` what came of those that wait no longer.
    pub(super) fn try_again(&mut self, listener: BorrowedFd<'_>, answer: impl Fn(u64, Result<(), Errno>)) {
        let mut connected = Vec::new();
        let own = &self.own;
        self.waiting.retain(|waiting| {
            if !sys::is_waiting(listener, waiting.call) {
                return false;
            }
            let made = match waiting.attempt(own, listener, &Timespec::default()) {
                Err(Errno::AGAIN) if waiting.until.is_none_or(|until| Instant::now() < until) => return true,
                Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
                made => made.map(|inode| connected.push(inode)),
            };
            answer(waiting.call, made);
            false
        });
        for inode in connected {
            self.remember(inode);
        }
    }

    fn remember(&mut self, inode: u64) {
        if self.done.len() >= REMEMBERED_MAX {
            self.done.pop_front();
        }
        self.done.push_back(inode);
    }
}

impl Drop for LoopbackSockets {
    fn drop(&mut self) {
        self.own.forget(self.group);
    }
}

impl Waiting {
    /// Gives the caller its connection, when it is made within `patience`; its number. `EAGAIN` where it is not made yet,
    /// `ECONNREFUSED` where the listener is gone.
    fn attempt(&self, own: &Loopback, listener: BorrowedFd<'_>, patience: &Timespec) -> Result<u64, Errno> {
        let mut set = [PollFd::new(&self.socket, PollFlags::OUT)];
        if poll(&mut set, Some(patience)) == Ok(0) {
            return Err(Errno::AGAIN);
        }
        sockopt::socket_error(&self.socket)??;
        if !own.listens(self.place, &self.listener) {
            return Err(Errno::CONNREFUSED);
        }
        self.slot.fill(&self.socket, listener, self.call)?;
        Ok(rustix::fs::fstat(&self.socket)?.st_ino)
    }
}

/// Tells whether the caller's socket is one of IPv6, and that it can have an address of the kind of `address`.
fn kind_of(target: &Target, socket: i32, address: SocketAddr) -> Result<bool, Errno> {
    match target.kind(socket)? {
        Kind::Tcp { is_ipv6 } if is_ipv6 == address.is_ipv6() => Ok(is_ipv6),
        Kind::Tcp { .. } => Err(Errno::AFNOSUPPORT),
        Kind::Unix => Err(Errno::INVAL),
    }
}

/// The port, when a run may listen there.
fn checked(port: u16, proxy: Option<u16>) -> Result<u16, Errno> {
    match port {
        1..FIRST_PORT => Err(Errno::ACCESS),
        _ if Some(port) == proxy => Err(Errno::ADDRINUSE),
        _ => Ok(port),
    }
}

/// Tells whether an address is one of the loopback interface, or stands for all of the machine's.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

/// A new socket, which does not wait.
fn stream(is_ipv6: bool) -> Result<OwnedFd, Errno> {
    let family = if is_ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if is_ipv6 {
        // Its addresses are those of IPv4, in the form that IPv6 has for them.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    // The caller may have asked for it on its own socket, and over the loopback interface it costs nothing.
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// A new socket that is bound at `place`.
fn bind_at(place: SocketAddrV4, is_ipv6: bool) -> Result<OwnedFd, Errno> {
    let socket = stream(is_ipv6)?;
    // A server that was there before has connections that are not over yet (socket(7)).
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind_to(&socket, place, is_ipv6)?;
    Ok(socket)
}

fn bind_to(socket: &OwnedFd, place: SocketAddrV4, is_ipv6: bool) -> Result<(), Errno> {
    if is_ipv6 { rustix::net::bind(socket, &mapped(place)) } else { rustix::net::bind(socket, &place) }
}

fn connect_to(socket: &OwnedFd, place: SocketAddrV4, is_ipv6: bool) -> Result<(), Errno> {
    if is_ipv6 { rustix::net::connect(socket, &mapped(place)) } else { rustix::net::connect(socket, &place) }
}

/// An IPv4 address in the form that IPv6 has for it.
fn mapped(place: SocketAddrV4) -> SocketAddrV6 {
    SocketAddrV6::new(place.ip().to_ipv6_mapped(), place.port(), 0, 0)
}

/// Where a socket is bound.
fn place_of(socket: &OwnedFd) -> Result<SocketAddrV4, Errno> {
    let address = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => Ok(SocketAddrV4::new(ip, address.port())),
        IpAddr::V6(_) => Err(Errno::ADDRNOTAVAIL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_system_and_of_the_proxy_are_not_to_be_had() {
        for (port, expected) in [
            (0, Ok(0)),
            (1, Err(Errno::ACCESS)),
            (1023, Err(Errno::ACCESS)),
            (1024, Ok(1024)),
            (3128, Err(Errno::ADDRINUSE)),
            (65535, Ok(65535)),
        ] {
            assert_eq!(checked(port, Some(3128)), expected, "{port}");
        }
        assert_eq!(checked(3128, None), Ok(3128));
    }

    #[test]
    fn a_socket_of_either_family_is_where_it_was_bound() {
        for is_ipv6 in [false, true] {
            let socket = bind_at("127.5.6.8:0".parse().unwrap(), is_ipv6).unwrap();
            let place = place_of(&socket).unwrap();
            assert_eq!(*place.ip(), Ipv4Addr::new(127, 5, 6, 8));
            assert_ne!(place.port(), 0);
        }
    }
}

//! What listens in the network namespaces, or at the loopback addresses, of a user and agent, and connections to it.
//!
//! A socket belongs to the network namespace in which it was made (`network_namespaces(7)`), not to that of the process
//! that uses it. So a thread of its own enters the namespace, makes the socket or reads the kernel's tables, and ends; the
//! service connects with that socket from where it is. A thread that has entered a namespace never does anything else.

pub(crate) mod holders;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::{TcpSocket, TcpStream};

use self::holders::{Holder, RunNumber};
use crate::error::Error;
use crate::loopback::Loopback;
use crate::network_owner::NetworkOwner;
use crate::service::launcher::Launcher;
use crate::service::networks::NetworkNamespace;
use crate::socket_tables::{self, Protocol, Row};
use crate::tier::Network;

/// Sockets that one look tells of, of one namespace.
const SOCKETS_MAX: usize = 256;
/// The network modes whose namespaces have servers, in the order in which a port is looked for in them.
const MODES: [Network; 2] = [Network::Proxy, Network::None];

/// A socket that waits for connections or datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// The network mode of the runs in its namespace.
    pub network: Network,
    /// The protocol.
    pub protocol: Protocol,
    /// Its address; `0.0.0.0` and `::` are all of the namespace's, which has the loopback addresses alone.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The process that holds it, where the service may see that.
    pub holder: Option<Holder>,
}

impl Launcher {
    /// What listens in the namespaces of `owner`, by port: at most 256 sockets of each network mode. The egress proxy's
    /// listener is not among them.
    ///
    /// Blocks for some hundred microseconds, and longer on hosts with many processes.
    ///
    /// # Errors
    /// * [`Error::NoPorts`]: runs have no loopback addresses of their own here.
    /// * [`Error::Resource`]: a namespace cannot be entered.
    pub fn listening(&self, owner: &NetworkOwner) -> Result<Vec<ListeningSocket>, Error> {
        self.require_ports()?;
        let mut found = Vec::new();
        for (network, loopback) in self.loopbacks_of(owner) {
            let listening = loopback.listening().into_iter().take(SOCKETS_MAX);
            found.extend(listening.map(|(place, listener)| ListeningSocket {
                network,
                protocol: Protocol::Tcp,
                address: listener.asked,
                port: place.port(),
                holder: Some(Holder {
                    program: listener.program,
                    run: RunNumber::ProcessGroup(listener.group),
                }),
            }));
        }
        for (network, namespace) in self.namespaces_of(owner) {
            let rows = within(&namespace, socket_tables::all).map_err(Error::resource("setns"))?;
            let is_proxy = |row: &Row| {
                network == Network::Proxy
                    && row.protocol == Protocol::Tcp
                    && Some(row.port) == self.config.proxy_port
            };
            let rows: Vec<Row> = rows.into_iter().filter(|row| !is_proxy(row)).take(SOCKETS_MAX).collect();
            let inodes = rows.iter().map(|row| row.inode).collect();
            let mut holders = holders::of(namespace.as_fd(), &inodes);
            found.extend(rows.into_iter().map(|Row { port, protocol, address, inode }| ListeningSocket {
                network,
                protocol,
                address,
                port,
                holder: holders.remove(&inode),
            }));
        }
        found.sort_by_key(|socket| (socket.port, socket.protocol, socket.address));
        Ok(found)
    }

    /// Connects to a server of `owner` that listens at `port` of the loopback address or of all addresses. A server in the
    /// network of runs with the proxy comes before one in that of runs without.
    ///
    /// To be given a deadline: a server whose queue is full lets a connection wait.
    ///
    /// # Errors
    /// * [`Error::NoPorts`]: runs have no loopback addresses of their own here.
    /// * [`Error::NothingListens`]: nothing does, or the port is the egress proxy's.
    /// * [`Error::Resource`]: a namespace cannot be entered, or the service has no descriptor left.
    pub async fn connect(self: &Arc<Self>, owner: &NetworkOwner, port: u16) -> Result<TcpStream, Error> {
        self.require_ports()?;
        if Some(port) == self.config.proxy_port {
            return Err(Error::NothingListens { port });
        }
        for (_, loopback) in self.loopbacks_of(owner) {
            if let Some(stream) = connect_at(&loopback, port).await {
                return Ok(stream);
            }
        }
        for (_, namespace) in self.namespaces_of(owner) {
            for host in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                let entered = Arc::clone(&namespace);
                let made = tokio::task::spawn_blocking(move || within(&entered, move || tcp_socket(host)));
                let made = made.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                let socket = match made {
                    Ok(socket) => socket,
                    // A kernel without IPv6.
                    Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => continue,
                    Err(error) => return Err(Error::resource("socket")(error)),
                };
                let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
                // A namespace has nothing but its loopback interface: a connection fails for what is in it only.
                if let Ok(stream) = socket.connect(SocketAddr::new(host, port)).await {
                    return Ok(stream);
                }
            }
        }
        Err(Error::NothingListens { port })
    }

    /// Checks that something of a run can listen.
    ///
    /// # Errors
    /// [`Error::NoPorts`].
    pub fn require_ports(&self) -> Result<(), Error> {
        if self.network_maker().is_some() {
            return Ok(());
        }
        self.unconnected().map_or(Ok(()), |reason| Err(Error::NoPorts { reason }))
    }

    /// The namespaces of `owner` that are kept at the moment.
    fn namespaces_of(&self, owner: &NetworkOwner) -> Vec<(Network, Arc<NetworkNamespace>)> {
        MODES.into_iter().filter_map(|network| Some((network, self.networks.kept(owner, network)?))).collect()
    }

    /// The loopback addresses of `owner`, where runs have no namespaces.
    fn loopbacks_of(&self, owner: &NetworkOwner) -> Vec<(Network, Arc<Loopback>)> {
        MODES
            .into_iter()
            .filter_map(|network| Some((network, self.loopbacks.kept(owner, network)?)))
            .collect()
    }
}

/// Connects to what listens at `port` of the loopback addresses of runs, if that still does when the connection is made.
async fn connect_at(loopback: &Loopback, port: u16) -> Option<TcpStream> {
    let all = loopback.meant_by(Ipv4Addr::LOCALHOST.into());
    let (place, listener) = loopback.find(&all, port)?;
    let stream = TcpStream::connect(place).await.ok()?;
    loopback.listens(place, &listener).then_some(stream)
}

/// Does `work` in a network namespace, on a thread that ends with it.
fn within<T: Send + 'static>(
    namespace: &Arc<NetworkNamespace>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = Arc::clone(namespace);
    let thread = std::thread::Builder::new().name("in-network".to_owned());
    let entered = thread.spawn(move || {
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
        work()
    })?;
    entered.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
}

fn tcp_socket(host: IpAddr) -> io::Result<OwnedFd> {
    let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

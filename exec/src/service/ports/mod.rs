//! What listens in the network namespaces of a user and agent, and connections to it.
//!
//! A socket belongs to the network namespace in which it was made (`network_namespaces(7)`), not to that of the process
//! that uses it. So a thread of its own enters the namespace, makes the socket or reads the kernel's tables, and ends; the
//! service connects with that socket from where it is. A thread that has entered a namespace never does anything else.

pub(crate) mod holders;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use tokio::net::{TcpSocket, TcpStream};

use self::holders::Holder;
use crate::error::Error;
use crate::network_owner::NetworkOwner;
use crate::service::launcher::Launcher;
use crate::service::networks::NetworkNamespace;
use crate::tier::Network;

/// Sockets that one look tells of, of one namespace.
const SOCKETS_MAX: usize = 256;
/// Bytes of one table of the kernel that are read; a line has about 150, and those that listen come first.
const TABLE_BYTES_MAX: u64 = 1024 * 1024;
/// The network modes whose namespaces have servers, in the order in which a port is looked for in them.
const MODES: [Network; 2] = [Network::Proxy, Network::None];

/// A protocol that a socket listens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP: the socket has a port and is connected to nothing.
    Udp,
}

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

/// Where a socket is, as the kernel's table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    port: u16,
    protocol: Protocol,
    address: IpAddr,
    inode: u64,
}

impl Launcher {
    /// What listens in the namespaces of `owner`, by port: at most 256 sockets of each network mode. The egress proxy's
    /// listener is not among them.
    ///
    /// Blocks for some hundred microseconds, and longer on hosts with many processes.
    ///
    /// # Errors
    /// * [`Error::NoPorts`]: runs live in no networks of their own here.
    /// * [`Error::Resource`]: a namespace cannot be entered.
    pub fn listening(&self, owner: &NetworkOwner) -> Result<Vec<ListeningSocket>, Error> {
        self.require_ports()?;
        let mut found = Vec::new();
        for (network, namespace) in self.namespaces_of(owner) {
            let rows = within(&namespace, tables).map_err(Error::resource("setns"))?;
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
    /// * [`Error::NoPorts`]: runs live in no networks of their own here.
    /// * [`Error::NothingListens`]: nothing does, or the port is the egress proxy's.
    /// * [`Error::Resource`]: a namespace cannot be entered, or the service has no descriptor left.
    pub async fn connect(self: &Arc<Self>, owner: &NetworkOwner, port: u16) -> Result<TcpStream, Error> {
        self.require_ports()?;
        if Some(port) == self.config.proxy_port {
            return Err(Error::NothingListens { port });
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

    /// Checks that runs live in networks of their own, in which something can listen.
    ///
    /// # Errors
    /// [`Error::NoPorts`].
    pub fn require_ports(&self) -> Result<(), Error> {
        if self.network_maker().is_some() {
            return Ok(());
        }
        let reason = self.without_namespaces().unwrap_or("the launcher makes no networks");
        Err(Error::NoPorts { reason: reason.to_owned() })
    }

    /// The namespaces of `owner` that are kept at the moment.
    fn namespaces_of(&self, owner: &NetworkOwner) -> Vec<(Network, Arc<NetworkNamespace>)> {
        MODES.into_iter().filter_map(|network| Some((network, self.networks.kept(owner, network)?))).collect()
    }
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

/// The sockets that listen in the namespace of this thread.
fn tables() -> io::Result<BTreeSet<Row>> {
    let mut rows = BTreeSet::new();
    for (name, protocol) in
        [("tcp", Protocol::Tcp), ("tcp6", Protocol::Tcp), ("udp", Protocol::Udp), ("udp6", Protocol::Udp)]
    {
        // `/proc/net` is that of the process's first thread (proc_pid_net(5)).
        let Ok(table) = std::fs::File::open(format!("/proc/thread-self/net/{name}")) else { continue };
        let mut text = Vec::new();
        table.take(TABLE_BYTES_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        rows.extend(text.lines().skip(1).filter_map(|line| row(line, protocol)));
    }
    Ok(rows)
}

/// Reads a line of a table, when its socket listens (`tcp_states.h` of Linux: 10 is `TCP_LISTEN`, 7 an unconnected socket
/// of UDP).
fn row(line: &str, protocol: Protocol) -> Option<Row> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next()?, words.next()?, words.next()?);
    let wanted = match protocol {
        Protocol::Tcp => "0A",
        Protocol::Udp => "07",
    };
    let inode = words.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let (address, port) = (address_of(address)?, u16::from_str_radix(port, 16).ok()?);
    (state == wanted && port != 0).then_some(Row { port, protocol, address, inode })
}

/// Reads an address as the tables have it: words of 32 bits in hexadecimal, each in the byte order of the machine.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (at, place) in bytes.chunks_exact_mut(4).enumerate() {
        place.copy_from_slice(&word(at)?);
    }
    (text.len() == 32).then(|| Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_kernel_are_read_as_it_writes_them() {
        let tcp = "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 x";
        let tcp6 = "   1: 00000000000000000000000001000000:1F41 00000000000000000000000000000000:0000 0A \
                    00000000:00000000 00:00000000 00000000     0        0 7 1";
        let expected = |address: &str, port, inode| {
            Some(Row { port, protocol: Protocol::Tcp, address: address.parse().unwrap(), inode })
        };
        assert_eq!(row(tcp, Protocol::Tcp), expected("127.0.0.1", 8000, 12345));
        assert_eq!(row(tcp6, Protocol::Tcp), expected("::1", 8001, 7));
        // Connected, of another protocol, cut off, and no line at all.
        assert_eq!(row(&tcp.replace(" 0A ", " 01 "), Protocol::Tcp), None);
        assert_eq!(row(tcp, Protocol::Udp), None);
        assert_eq!(row(&tcp[..60], Protocol::Tcp), None);
        assert_eq!(row("", Protocol::Tcp), None);
    }

    #[test]
    fn this_machines_own_tables_name_a_listener_of_this_test() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(tables().unwrap().iter().any(|row| row.port == port && row.protocol == Protocol::Tcp));
    }
}

//! The kernel's tables of sockets that listen in the network namespace of this thread.
//!
//! # References
//! proc_pid_net(5), sock_diag(7); `tcp_states.h` of Linux.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto, socket_with,
};
use serde::Serialize;

/// Bytes of one table that are read; a line has about 150, and those that listen come first.
const TABLE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that are read at once in the search for one socket, about one line: the kernel looks through all of its
/// connections for a line behind the last socket that listens.
const LINE_BYTES: usize = 192;
/// Bytes that are read at most in that search.
const SEARCH_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The states of a socket that waits: `TCP_LISTEN`, and `TCP_CLOSE`, which is what a socket of UDP is in.
const TCP_LISTEN: &str = "0A";
const UDP_UNCONNECTED: &str = "07";

/// The numbers of the question after one socket (linux/netlink.h, linux/sock_diag.h), and the state of one that listens.
const QUESTION_BYTES: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;
const LISTEN: u8 = 10;

/// A protocol that a socket listens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP: the socket has a port and is connected to nothing.
    Udp,
}

/// Where a socket is, as the kernel's table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) address: IpAddr,
    pub(crate) inode: u64,
}

/// The sockets that listen in the namespace of this thread.
///
/// # Errors
/// As `read(2)`.
pub(crate) fn all() -> io::Result<BTreeSet<Row>> {
    let mut rows = BTreeSet::new();
    for (name, protocol) in
        [("tcp", Protocol::Tcp), ("tcp6", Protocol::Tcp), ("udp", Protocol::Udp), ("udp6", Protocol::Udp)]
    {
        let Ok(table) = open(name) else { continue };
        let mut text = Vec::new();
        table.take(TABLE_BYTES_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        rows.extend(text.lines().skip(1).filter_map(|line| row(line, protocol)));
    }
    Ok(rows)
}

/// Calls `see` for each socket of TCP that listens at an IPv4 address of its own, until it returns `false`. With
/// `of_ipv6_sockets`, for those of IPv6 sockets, else for those of IPv4 sockets.
///
/// # Errors
/// As `open(2)` and `read(2)`.
pub(crate) fn each_tcp(
    of_ipv6_sockets: bool,
    mut see: impl FnMut(SocketAddrV4, u64) -> bool,
) -> io::Result<()> {
    let table = open(if of_ipv6_sockets { "tcp6" } else { "tcp" })?;
    let table = BufReader::with_capacity(LINE_BYTES, table.take(SEARCH_BYTES_MAX));
    for line in table.lines().skip(1) {
        // Behind the sockets that listen there are connections.
        let Some(row) = row(&line?, Protocol::Tcp) else { return Ok(()) };
        let address = match row.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) => address.to_ipv4_mapped(),
        };
        if let Some(address) = address
            && !see(SocketAddrV4::new(address, row.port), row.inode)
        {
            return Ok(());
        }
    }
    Ok(())
}

/// The number of the socket of TCP that gets a connection to `place`, as the kernel would look it up; `None` where the kernel
/// does not say, or there is none. A table takes a hundred times as long, because the kernel looks into each place of it.
pub(crate) fn listener_of(place: SocketAddrV4) -> Option<u64> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)).ok()?;
    sendto(&kernel, &question(place), SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0)).ok()?;
    let mut answer = [0; 512];
    // The kernel has answered when the question is sent.
    let (_, length) = recv(&kernel, &mut answer, RecvFlags::empty()).ok()?;
    inode_of(answer.get(..length)?)
}

/// Asks for the socket at `place` (sock_diag(7): `nlmsghdr`, `inet_diag_req_v2`).
fn question(place: SocketAddrV4) -> [u8; QUESTION_BYTES] {
    let [a, b, c, d] = place.ip().octets();
    let [high, low] = place.port().to_be_bytes();
    let mut question = [0; QUESTION_BYTES];
    let parts: [(usize, &[u8]); 7] = [
        (0, &(QUESTION_BYTES as u32).to_ne_bytes()),
        (4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes()),
        (6, &NLM_F_REQUEST.to_ne_bytes()),
        (16, &[AF_INET, IPPROTO_TCP]),
        // All states; its port, and behind that of the other side its address.
        (20, &u32::MAX.to_ne_bytes()),
        (24, &[high, low, 0, 0, a, b, c, d]),
        // No cookie.
        (64, &[0xFF; 8]),
    ];
    for (at, part) in parts {
        if let Some(place) = question.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
    }
    question
}

/// Reads an answer (`nlmsghdr`, `inet_diag_msg`), when its socket listens.
fn inode_of(answer: &[u8]) -> Option<u64> {
    let kind = answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    let inode = answer.get(84..88)?.try_into().ok().map(u32::from_ne_bytes)?;
    (kind == SOCK_DIAG_BY_FAMILY && *answer.get(17)? == LISTEN).then_some(u64::from(inode))
}

/// Opens a table; `/proc/net` is that of the process's first thread.
fn open(name: &str) -> io::Result<std::fs::File> {
    std::fs::File::open(format!("/proc/thread-self/net/{name}"))
}

/// Reads a line of a table, when its socket listens.
fn row(line: &str, protocol: Protocol) -> Option<Row> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next()?, words.next()?, words.next()?);
    let wanted = match protocol {
        Protocol::Tcp => TCP_LISTEN,
        Protocol::Udp => UDP_UNCONNECTED,
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
    use std::os::fd::AsFd;

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
        assert!(all().unwrap().iter().any(|row| row.port == port && row.protocol == Protocol::Tcp));
    }

    #[test]
    fn the_search_finds_a_listener_by_its_place_and_number() {
        for (of_ipv6_sockets, at) in [(false, "127.77.1.2:0"), (true, "[::ffff:127.77.1.2]:0")] {
            let Ok(listener) = std::net::TcpListener::bind(at) else { continue };
            let own = rustix::fs::fstat(listener.as_fd()).unwrap().st_ino;
            let mut found = Vec::new();
            each_tcp(of_ipv6_sockets, |place, inode| {
                found.extend((inode == own).then_some(place));
                inode != own
            })
            .unwrap();
            let place =
                SocketAddrV4::new(Ipv4Addr::new(127, 77, 1, 2), listener.local_addr().unwrap().port());
            assert_eq!(found, [place]);
            if let Some(asked) = listener_of(place) {
                assert_eq!(asked, own);
                assert!(listener_of(SocketAddrV4::new(Ipv4Addr::new(127, 77, 1, 2), 1)).is_none());
            }
        }
    }
}

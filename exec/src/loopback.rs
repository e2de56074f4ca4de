//! [`Loopback`]: the loopback addresses of the runs of one user, agent and network mode where they share the network of the
//! host, and what listens there.
//!
//! The host is one machine with one loopback interface, and any address of `127.0.0.0/8` is this machine. So these runs get
//! two of these addresses, which no other run gets: one stands for `127.0.0.1`, the other for `::1`. A server that listens on
//! all addresses of the host would answer at them as well. So a run is connected only to a socket that the service has let
//! listen there, and that still does.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::socket_tables;

/// Sockets that listen at the addresses at the same time.
const LISTENERS_MAX: usize = 256;

/// Two loopback addresses and what listens there.
#[derive(Debug)]
pub(crate) struct Loopback {
    /// The address that stands for `127.0.0.1`.
    v4: Ipv4Addr,
    listeners: Mutex<HashMap<SocketAddrV4, Listener>>,
}

/// A socket that the service has let listen for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its number in the kernel's file system of sockets.
    pub(crate) inode: u64,
    /// Whether it is a socket of IPv6.
    pub(crate) is_ipv6: bool,
    /// The address that its program asked for.
    pub(crate) asked: IpAddr,
    /// The group of the processes of its run.
    pub(crate) group: i32,
    /// The name of its program, as that calls itself.
    pub(crate) program: String,
}

impl Loopback {
    /// Takes random addresses, so that servers of the host are not there by chance.
    ///
    /// # Errors
    /// As `getrandom(2)`.
    pub(crate) fn random() -> io::Result<Self> {
        let mut random = [0; 3];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let [first, second, third] = random;
        // 127.0.0.0/16 has addresses that hosts use. The last number is even, neither 0 nor 254, and the next one is the other's.
        Ok(Self::at(Ipv4Addr::new(127, 2 + first % 252, second, 2 + third % 126 * 2)))
    }

    fn at(v4: Ipv4Addr) -> Self {
        Self { v4, listeners: Mutex::default() }
    }

    /// The address that tells these from others.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.v4
    }

    /// The address that stands for `::1`.
    fn v6(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.v4.to_bits() + 1)
    }

    /// The own addresses that a run means by `address`, the first one first. None for those of the network, and for those of
    /// this machine that are not the run's.
    pub(crate) fn meant_by(&self, address: IpAddr) -> Vec<Ipv4Addr> {
        let address = match address {
            IpAddr::V6(Ipv6Addr::LOCALHOST | Ipv6Addr::UNSPECIFIED) => return vec![self.v6(), self.v4],
            IpAddr::V6(address) => address.to_ipv4_mapped(),
            IpAddr::V4(address) => Some(address),
        };
        match address {
            Some(Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED) => vec![self.v4, self.v6()],
            Some(own) if own == self.v4 || own == self.v6() => vec![own],
            _ => Vec::new(),
        }
    }

    /// Makes sure that one more socket may listen.
    ///
    /// # Errors
    /// `ENOBUFS` when there are too many.
    pub(crate) fn make_room(&self) -> Result<(), Errno> {
        if self.listeners().len() >= LISTENERS_MAX {
            drop(self.listening());
        }
        if self.listeners().len() < LISTENERS_MAX { Ok(()) } else { Err(Errno::NOBUFS) }
    }

    /// Notes a socket that listens at `place`.
    pub(crate) fn note(&self, place: SocketAddrV4, listener: Listener) {
        self.listeners().insert(place, listener);
    }

    /// The socket that listens at `port` of the first of `addresses` at which one does.
    pub(crate) fn find(&self, addresses: &[Ipv4Addr], port: u16) -> Option<(SocketAddrV4, Listener)> {
        addresses.iter().find_map(|address| {
            let place = SocketAddrV4::new(*address, port);
            let noted = self.listeners().get(&place).cloned();
            noted.filter(|noted| self.listens(place, noted)).map(|noted| (place, noted))
        })
    }

    /// Tells whether the socket with this number was noted.
    pub(crate) fn knows(&self, inode: u64) -> bool {
        self.listeners().values().any(|listener| listener.inode == inode)
    }

    /// Tells whether a socket that was noted listens at the moment. As long as it does, no other socket of this machine gets
    /// the connections to its place; once it does not, it never does again.
    pub(crate) fn listens(&self, place: SocketAddrV4, listener: &Listener) -> bool {
        if socket_tables::listener_of(place) == Some(listener.inode) {
            return true;
        }
        let mut found = false;
        let looked = socket_tables::each_tcp(listener.is_ipv6, |at, inode| {
            found = at == place && inode == listener.inode;
            !found
        });
        if !found && looked.is_ok() {
            let mut listeners = self.listeners();
            if listeners.get(&place).is_some_and(|noted| noted.inode == listener.inode) {
                listeners.remove(&place);
            }
        }
        found
    }

    /// What listens at the moment.
    pub(crate) fn listening(&self) -> Vec<(SocketAddrV4, Listener)> {
        let noted = self.listeners().clone();
        // The kernel lists a socket twice when others come and go meanwhile.
        let mut found = BTreeMap::new();
        for of_ipv6_sockets in [false, true] {
            if noted.values().all(|listener| listener.is_ipv6 != of_ipv6_sockets) {
                continue;
            }
            let looked = socket_tables::each_tcp(of_ipv6_sockets, |at, inode| {
                found.extend(
                    noted.get(&at).filter(|noted| noted.inode == inode).map(|noted| (at, noted.clone())),
                );
                true
            });
            if looked.is_err() {
                return Vec::new();
            }
        }
        // Those that were noted meanwhile stay.
        self.listeners()
            .retain(|place, listener| noted.get(place) != Some(listener) || found.contains_key(place));
        found.into_iter().collect()
    }

    /// Forgets the sockets of a run that has ended.
    pub(crate) fn forget(&self, group: i32) {
        self.listeners().retain(|_, listener| listener.group != group);
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<SocketAddrV4, Listener>> {
        // Nothing in the table is half-changed at a point that can panic.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;

    fn own() -> Loopback {
        Loopback::at(Ipv4Addr::new(127, 9, 8, 4))
    }

    fn noted(own: &Loopback, group: i32) -> (TcpListener, SocketAddrV4, Listener) {
        let socket = TcpListener::bind((own.v4, 0)).unwrap();
        let place = SocketAddrV4::new(own.v4, socket.local_addr().unwrap().port());
        let inode = rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
        let asked = Ipv4Addr::LOCALHOST.into();
        let listener = Listener { inode, is_ipv6: false, asked, group, program: "x".to_owned() };
        own.note(place, listener.clone());
        (socket, place, listener)
    }

    #[test]
    fn a_run_means_its_own_addresses_by_those_of_a_machine_alone() {
        let (own, first, second) = (own(), Ipv4Addr::new(127, 9, 8, 4), Ipv4Addr::new(127, 9, 8, 5));
        let meant = |text: &str| own.meant_by(text.parse().unwrap());
        for text in ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::ffff:0.0.0.0"] {
            assert_eq!(meant(text), [first, second], "{text}");
        }
        for text in ["::1", "::"] {
            assert_eq!(meant(text), [second, first], "{text}");
        }
        assert_eq!(meant("127.9.8.4"), [first]);
        assert_eq!(meant("::ffff:127.9.8.5"), [second]);
        for text in [
            "127.9.8.6",
            "127.0.0.2",
            "::ffff:127.9.8.3",
            "10.0.0.1",
            "::127.9.8.4",
            "fe80::1",
            "64:ff9b::7f09:804",
        ] {
            assert!(meant(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn random_addresses_are_none_that_hosts_use() {
        for _ in 0..10_000 {
            let own = Loopback::random().unwrap();
            let [net, first, _, last] = own.v4.octets();
            assert!(
                net == 127 && (2..254).contains(&first) && last % 2 == 0 && (2..254).contains(&last),
                "{own:?}"
            );
            assert_eq!(own.v6().octets()[..3], own.v4.octets()[..3]);
        }
    }

    #[test]
    fn what_was_noted_is_there_until_it_no_longer_listens() {
        let own = own();
        let (socket, place, listener) = noted(&own, 7);
        assert_eq!(own.find(&[own.v6(), own.v4], place.port()), Some((place, listener.clone())));
        assert_eq!(own.find(&[own.v6()], place.port()), None);
        assert!(own.listens(place, &listener));
        // A later socket at the same place is another.
        assert!(!own.listens(place, &Listener { inode: listener.inode + 1, ..listener.clone() }));
        assert_eq!(own.listening(), [(place, listener.clone())]);
        drop(socket);
        // A process that another test is just making has a copy of it until it executes its program.
        let is_gone = (0..100).any(|_| {
            let gone = own.find(&[own.v4], place.port()).is_none();
            if !gone {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            gone
        });
        assert!(is_gone);
        assert!(!own.knows(listener.inode));
        own.note(place, listener);
        assert!(own.listening().is_empty());
    }

    #[test]
    fn the_sockets_of_a_run_that_ended_are_forgotten_and_room_is_bounded() {
        let own = own();
        let (_one, (_two, place, listener)) = (noted(&own, 7), noted(&own, 8));
        own.forget(7);
        assert_eq!(own.listening(), [(place, listener.clone())]);
        for port in 1..=LISTENERS_MAX {
            own.note(SocketAddrV4::new(own.v6(), u16::try_from(port).unwrap()), listener.clone());
        }
        // Nothing listens at these.
        assert_eq!(own.make_room(), Ok(()));
        assert_eq!(own.listeners().len(), 1);
    }
}

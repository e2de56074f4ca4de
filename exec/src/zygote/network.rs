//! The process beside the launcher that makes network namespaces ahead of need.
//!
//! Making one takes half a millisecond, and many milliseconds while the kernel takes others down (`cleanup_net` in
//! net/core/net_namespace.c of Linux holds the lock that a new loopback interface needs). The launcher must never wait
//! that long, and neither should a run: a few namespaces are made before they are asked for. They wait in the socket to
//! the service, each as one packet with its descriptors.
//!
//! ```text
//! service ── "take" ──→ this process        counts what was taken, and what it has made
//!         ←─ namespace, listener ──         SPARES more than were taken
//! ```
//!
//! A failure is told only to a request that waits for it; ahead of need it is tried again later.
//!
//! Where user namespaces are allowed, the process first moves into one of its own. There it may do all that networks
//! need, so that a container without `CAP_NET_ADMIN` has networks too, and it keeps no capability over the host.
//! The launcher's runs enter such a network with the launcher's `CAP_SYS_ADMIN`: a capability holds in all namespaces
//! below (`user_namespaces(7)`).

use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, Uid, setresuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::init::die_with;
use crate::sys;
use crate::walls::seccomp;
use crate::wire::{self, NetworkReport};

/// Namespaces that wait to be taken. Each takes some 220 KB of the kernel's memory.
const SPARES: u64 = 8;
/// How long this process leaves the processor to the run that has just taken one.
const PAUSE: Duration = Duration::from_millis(1);
/// How long it leaves the processors to the start of the service, which tries the walls meanwhile.
const BEGINNING: Duration = Duration::from_millis(100);
/// How long after a failure it tries again ahead of need.
const RETRY: Duration = Duration::from_secs(1);
/// Largest message, in bytes; there is one kind, and it is empty but for a letter.
const MESSAGE_BYTES: usize = 16;

/// Buffers of TCP connections, as `tcp(7)` has them: smallest, first and largest size in bytes. The largest is the only
/// one that is lower than usual. The kernel bounds the memory of all TCP buffers of the machine together, so that one
/// user must not need all of it with the sockets that a run may have.
const BUFFERS: [(&str, &str); 2] = [("tcp_rmem", "4096 131072 262144"), ("tcp_wmem", "4096 16384 262144")];
/// Where they are set, below `/proc`.
const SETTINGS: &str = "sys/net/ipv4";

/// The user that owns the user namespace of this process. A process of that user has every capability over what is in
/// the namespace (`user_namespaces(7)`), so it must be neither the service's user nor one of a run's, which begin at 2^30.
const NAMESPACE_OWNER: Uid = Uid::from_raw(65_534);
/// As `setresuid(2)` takes what stays as it is.
const UNCHANGED: Uid = Uid::from_raw(u32::MAX);

/// The user namespace that owns the networks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ownership {
    /// A user namespace that this process makes for itself.
    Own,
    /// The launcher's user namespace; then `CAP_NET_ADMIN` is needed there.
    Launchers,
}

/// Starts the process; its number, and the socket on which the service takes namespaces.
///
/// `launcher` is the launcher's own process, with which it dies; `proc` its `/proc`; `port` that of the proxy; `empty` an
/// empty network, where the launcher is not in one.
///
/// # Errors
/// As `socketpair(2)` and `fork(2)`.
pub(super) fn start(
    launcher: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    port: Option<u16>,
    empty: Option<BorrowedFd<'_>>,
) -> io::Result<(Pid, OwnedFd)> {
    let (pid, socket) = start_with(Ownership::Own, launcher, proc, port, empty)?;
    let (said, _) = wire::receive(socket.as_fd(), &mut [0; MESSAGE_BYTES])?;
    if said > 0 {
        return Ok((pid, socket));
    }
    waitpid(pid, None)?;
    start_with(Ownership::Launchers, launcher, proc, port, empty)
}

/// Starts the process. With [`Ownership::Own`] it says a word when it can make networks, and ends when it cannot.
fn start_with(
    ownership: Ownership,
    launcher: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    port: Option<u16>,
    empty: Option<BorrowedFd<'_>>,
) -> io::Result<(Pid, OwnedFd)> {
    let (ours, theirs) = wire::packet_sockets()?;
    if let Some(pid) = sys::fork_single_threaded()? {
        return Ok((pid, ours));
    }
    // Descriptors of the launcher in this process would keep the service from noticing the launcher's end.
    let needed = [launcher, proc, theirs.as_fd()].into_iter().chain(empty);
    sys::close_all_but(&needed.map(|fd| fd.as_raw_fd()).collect::<Vec<_>>());
    let settled = match ownership {
        Ownership::Own => enter_own_user(),
        // A process that left the network of the host would have no way back to it between two namespaces.
        Ownership::Launchers => match empty {
            Some(empty) => setns(empty, CloneFlags::CLONE_NEWNET).map_err(io::Error::from),
            None => Ok(()),
        },
    };
    // The change of user has cleared a request to die.
    let settled = settled.and_then(|()| die_with(launcher)).and_then(|()| confine());
    let lived = settled.and_then(|()| {
        if ownership == Ownership::Own {
            wire::send(theirs.as_fd(), b"settled", &[])?;
        }
        let home = open_own_network(proc)?;
        Maker { socket: theirs, proc, home, port, made: 0, taken: 0 }.serve()
    });
    sys::exit_now(i32::from(lived.is_err()))
}

/// Moves this process into a user namespace of its own with a network in it, and tries what a network needs.
///
/// # Errors
/// As `setresuid(2)`: `EPERM` without `CAP_SETUID`, `EINVAL` in a user namespace without [`NAMESPACE_OWNER`]; as
/// `unshare(2)`: `EPERM` and `ENOSPC` where user namespaces are forbidden; as `netdevice(7)`: `EPERM` where they are
/// without capabilities.
fn enter_own_user() -> io::Result<()> {
    // The real user stays, so that processes of the owner cannot signal this one.
    setresuid(UNCHANGED, NAMESPACE_OWNER, UNCHANGED)?;
    // Lost with the user; some systems make user namespaces only for those who have it.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective = sets.permitted & CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(None, sets)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    sys::raise_loopback()
}

/// Gives up what this process does not need.
fn confine() -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let kept = sets.permitted & (CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN);
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: none },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    // Where the kernel has no filters, that is said of the launcher's.
    let _ = seccomp::load_for_networks();
    Ok(())
}

struct Maker<'a> {
    socket: OwnedFd,
    proc: BorrowedFd<'a>,
    /// The network in which this process stays between two namespaces, so that it holds none of them: that of its own
    /// user namespace, or the launcher's.
    home: OwnedFd,
    port: Option<u16>,
    /// Answers sent, and requests heard.
    made: u64,
    taken: u64,
}

/// A new namespace, and the proxy's listener in it.
struct Network {
    namespace: OwnedFd,
    listener: io::Result<Option<OwnedFd>>,
}

impl Maker<'_> {
    /// Makes namespaces until the service closes its end.
    fn serve(mut self) -> io::Result<Infallible> {
        let begun = Instant::now();
        let mut has_failed = false;
        loop {
            let spares = self.made.checked_sub(self.taken);
            let patience = match spares {
                None => Some(Duration::ZERO),
                Some(SPARES..) => None,
                Some(_) if has_failed => Some(RETRY),
                Some(_) => Some(BEGINNING.saturating_sub(begun.elapsed()).max(PAUSE)),
            };
            if self.hears(patience)? {
                self.taken += 1;
                continue;
            }
            let network = self.make();
            has_failed = network.is_err();
            // A failure ahead of need is not sent: no request waits for this namespace yet.
            if network.is_ok() || spares.is_none() {
                self.send(network)?;
                self.made += 1;
            }
        }
    }

    /// Waits for a request; `false` when none came in time.
    fn hears(&self, patience: Option<Duration>) -> io::Result<bool> {
        let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience =
            patience.map(|rest| Timespec::try_from(rest).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
        match poll(&mut set, patience.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let (length, _) = wire::receive(self.socket.as_fd(), &mut [0; MESSAGE_BYTES])?;
        if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(true) }
    }

    fn make(&self) -> io::Result<Network> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = open_own_network(self.proc).map(|namespace| {
            self.bound_buffers();
            let listener = sys::raise_loopback().and_then(|()| self.port.map(listen).transpose());
            Network { namespace, listener }
        });
        setns(&self.home, CloneFlags::CLONE_NEWNET)?;
        made
    }

    /// Bounds the buffers of connections in the network of this process, where `/proc/sys` can be written to.
    fn bound_buffers(&self) {
        // The kernel compares each name of this path with those of every network that there is.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(settings) = openat(self.proc, SETTINGS, flags, Mode::empty()) else { return };
        for (name, sizes) in BUFFERS {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            if let Ok(setting) = openat(&settings, name, flags, Mode::empty()) {
                let _ = fs::File::from(setting).write_all(sizes.as_bytes());
            }
        }
    }

    fn send(&self, network: io::Result<Network>) -> io::Result<()> {
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
        let (report, network) = match network {
            Ok(network) => (NetworkReport::Made, Some(network)),
            Err(error) => (NetworkReport::Failed { errno: errno(error) }, None),
        };
        let Some(Network { namespace, listener }) = network else {
            return wire::send(self.socket.as_fd(), &wire::encode(&report)?, &[]);
        };
        let (report, listener) = match listener {
            Ok(listener) => (report, listener),
            Err(error) => (NetworkReport::WithoutLoopback { errno: errno(error) }, None),
        };
        let mut attached = vec![namespace.as_fd()];
        attached.extend(listener.as_ref().map(AsFd::as_fd));
        wire::send(self.socket.as_fd(), &wire::encode(&report)?, &attached)
    }
}

/// The network namespace of this process.
fn open_own_network(proc: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(openat(proc, "self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Listens on the loopback address of this process's network, which has no other.
fn listen(port: u16) -> io::Result<OwnedFd> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.into())
}

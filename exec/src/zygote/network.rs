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

use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::init::die_with;
use crate::seccomp;
use crate::sys;
use crate::wire::{self, NetworkReport};

/// Namespaces that wait to be taken. Each takes some 220 KB of the kernel's memory.
const SPARES: u64 = 8;
/// How long this process leaves the processor to the run that has just taken one.
const PAUSE: Duration = Duration::from_millis(1);
/// How long after a failure it tries again ahead of need.
const RETRY: Duration = Duration::from_secs(1);
/// Largest message, in bytes; there is one kind, and it is empty but for a letter.
const MESSAGE_BYTES: usize = 16;

/// Buffers of TCP connections, as `tcp(7)` has them: smallest, first and largest size in bytes. The largest is the only
/// one that is lower than usual. The kernel bounds the memory of all TCP buffers of the machine together, so that one
/// user must not need all of it with the sockets that a run may have.
const BUFFERS: [(&str, &str); 2] =
    [("sys/net/ipv4/tcp_rmem", "4096 131072 262144"), ("sys/net/ipv4/tcp_wmem", "4096 16384 262144")];

/// Starts the process; its number, and the socket on which the service takes namespaces.
///
/// `launcher` is the launcher's own process, with which it dies; `proc` its `/proc`; `port` that of the proxy.
///
/// # Errors
/// As `socketpair(2)` and `fork(2)`.
pub(super) fn start(
    launcher: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    port: Option<u16>,
) -> io::Result<(Pid, OwnedFd)> {
    let (ours, theirs) = crate::launcher::packet_sockets()?;
    if let Some(pid) = sys::fork_single_threaded()? {
        return Ok((pid, ours));
    }
    // What this process holds of the launcher's would keep the service from noticing the launcher's end.
    sys::close_all_but(&[launcher, proc, theirs.as_fd()].map(|fd| fd.as_raw_fd()));
    let lived = die_with(launcher).and_then(|()| confine()).and_then(|()| {
        let home = open_own_network(proc)?;
        Maker { socket: theirs, proc, home, port, made: 0, taken: 0 }.serve()
    });
    sys::exit_now(i32::from(lived.is_err()))
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
    /// The launcher's own network, in which this process stays between two namespaces, so that it holds none of them.
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
        let mut has_failed = false;
        loop {
            let spares = self.made.checked_sub(self.taken);
            let patience = match spares {
                None => Some(Duration::ZERO),
                Some(SPARES..) => None,
                Some(_) if has_failed => Some(RETRY),
                Some(_) => Some(PAUSE),
            };
            if self.hears(patience)? {
                self.taken += 1;
                continue;
            }
            let network = self.make();
            has_failed = network.is_err();
            // Ahead of need nobody waits for the news.
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
        for (name, sizes) in BUFFERS {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            if let Ok(setting) = openat(self.proc, name, flags, Mode::empty()) {
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

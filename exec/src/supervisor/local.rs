//! [`LocalSockets`]: UNIX sockets with a path, which reach from one process of the user's runs to another.
//!
//! Landlock does not mediate connecting to a path, and the host's directories are in sight: so the filter lets a run make
//! streams alone, and the calls that give them a name or a peer come here.
//!
//! * **Binding** is done by a thread that stands behind the run's own walls, at the path as the caller wrote it: the kernel
//!   makes the name only where the run may make files.
//! * **Connecting** is done at a socket that was opened beneath one of the run's own directories.
//! * **Listening** is done at a socket that was bound here.
//!
//! A new socket takes the place of the caller's in the first two: this process cannot get hold of the caller's own. What
//! the caller had set on its socket before, but for waiting and closing, is lost. The process and the user on the other side
//! (`SO_PEERCRED`) are those of the service.
//!
//! Programs that keep sockets in `/tmp` or `/var/tmp`, whatever `TMPDIR` says, find them in the run's temporary directory, which
//! is both at tier `namespaces`, too: where the path itself is not the run's own.
//!
//! # References
//! unix(7), seccomp_unotify(2).

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::beneath::{Grounds, path_of};
use super::slot::{Asked, DescriptorSlot, Outcome};
use super::target::Target;
use super::walled::walled;
use crate::sys;

/// Where programs keep sockets although the run has another temporary directory.
const TEMPORARY: [&[u8]; 2] = [b"/tmp/", b"/var/tmp/"];
/// Sockets of one run that are bound and do not listen yet, each of which takes a descriptor of the service. The oldest is let
/// go first.
const BOUND_MAX: usize = 64;
/// Sockets of one run that are known to listen. The oldest is forgotten first: it goes on, and cannot be told once more to listen.
const LISTENING_MAX: usize = 1024;
/// Connections of one run that wait for a listener to have room.
const WAITING_MAX: usize = 16;

/// The UNIX sockets of one run.
#[derive(Debug)]
pub(super) struct LocalSockets {
    /// The walls of the run.
    walls: Arc<OwnedFd>,
    /// What stands for `/tmp`.
    temporary: Option<OwnedFd>,
    bound: VecDeque<(u64, OwnedFd)>,
    listening: VecDeque<u64>,
    waiting: Vec<Waiting>,
}

/// A connection that waits until its listener has room.
#[derive(Debug)]
struct Waiting {
    call: u64,
    slot: DescriptorSlot,
    socket: OwnedFd,
    at: OwnedFd,
}

impl LocalSockets {
    /// The sockets of a run behind `walls`, in which `temporary` stands for `/tmp`.
    pub(super) fn new(walls: Arc<OwnedFd>, temporary: Option<OwnedFd>) -> Self {
        Self { walls, temporary, bound: VecDeque::new(), listening: VecDeque::new(), waiting: Vec::new() }
    }

    /// Gives the caller's socket a name.
    ///
    /// # Errors
    /// `EACCES` where the run may make no file. Otherwise as `bind(2)`.
    pub(super) fn bind(&mut self, asked: &Asked<'_>, path: &[u8], socket: i32) -> Result<(), Errno> {
        let &Asked { target, grounds, listener, call } = asked;
        let slot = DescriptorSlot::of(target, socket)?;
        let new = stream()?;
        if let Err(error) = self.bind_at((target, grounds), None, path, &new) {
            let (temporary, rest) = self.in_temporary(path).ok_or(error)?;
            self.bind_at((target, grounds), Some(temporary), rest, &new)
                .map_err(|other| either(error, other))?;
        }
        let inode = rustix::fs::fstat(&new)?.st_ino;
        slot.fill(&new, listener, call)?;
        remember(&mut self.bound, (inode, new), BOUND_MAX);
        Ok(())
    }

    /// Binds at `path` as the caller means it, or in what stands for `/tmp`.
    ///
    /// The links of `/proc` lead elsewhere in this process, and a path may change between two looks. So the directory is found
    /// first, through none of them, and has to be the run's own; and what the caller hears tells of that directory alone.
    ///
    /// What `getsockname(2)` tells is the path that was written, or the one from the root of a path that was relative: programs
    /// look at it and hand it to others.
    fn bind_at(
        &self,
        (target, grounds): (&Target, &Grounds),
        temporary: Option<BorrowedFd<'_>>,
        path: &[u8],
        new: &OwnedFd,
    ) -> Result<(), Errno> {
        let (directory, name) = split(path);
        let above = match temporary {
            Some(temporary) => target.find_below(temporary, directory)?,
            None => target.find(libc::AT_FDCWD, directory, true, false)?,
        };
        // A descriptor of the caller is another file here, or one that this process has open for the run.
        let is_written = temporary.is_none() && path.starts_with(b"/") && !target.names_descriptor(directory);
        let address = if is_written { SocketAddrUnix::new(path)? } else { below(&above, name)? };
        if grounds.holds(&above, name)? {
            // The program that left a socket could not remove it: for that program it was in `/tmp`.
            if temporary.is_none() || !is_left(target, grounds, &above, name) {
                return Err(Errno::ADDRINUSE);
            }
            let left = address.path().ok_or(Errno::INVAL)?;
            walled(self.walls.as_fd(), || rustix::fs::unlink(&*left))?;
        }
        walled(self.walls.as_fd(), || rustix::net::bind(new, &address)).map_err(|error| match error {
            Errno::NOSPC | Errno::DQUOT | Errno::NOMEM => error,
            _ => Errno::ACCESS,
        })
    }

    /// The part of a path behind `/tmp` or `/var/tmp`, and what stands for that.
    fn in_temporary<'a>(&self, path: &'a [u8]) -> Option<(BorrowedFd<'_>, &'a [u8])> {
        let rest = TEMPORARY.iter().find_map(|prefix| path.strip_prefix(*prefix))?;
        let rest = rest.get(rest.iter().position(|byte| *byte != b'/')?..)?;
        Some((self.temporary.as_ref()?.as_fd(), rest))
    }

    /// Has the caller's socket listen.
    ///
    /// # Errors
    /// `EACCES` for a socket that was not bound here.
    pub(super) fn listen(&mut self, target: &Target, socket: i32, backlog: i32) -> Result<(), Errno> {
        let inode = target.socket(socket)?;
        if self.listening.contains(&inode) {
            return Ok(());
        }
        let found = self.bound.iter().position(|(bound, _)| *bound == inode).ok_or(Errno::ACCESS)?;
        // From here on only the caller has it, so that it is closed when the caller closes it.
        let (_, socket) = self.bound.remove(found).ok_or(Errno::ACCESS)?;
        rustix::net::listen(&socket, backlog)?;
        remember(&mut self.listening, inode, LISTENING_MAX);
        Ok(())
    }

    /// Connects the caller's socket to the one at `path`.
    ///
    /// # Errors
    /// `EACCES` for a socket that is not beneath the run's own directories, `EAGAIN` where too many wait. Otherwise as
    /// `connect(2)`.
    pub(super) fn connect(&mut self, asked: &Asked<'_>, path: &[u8], socket: i32) -> Result<Outcome, Errno> {
        let &Asked { target, grounds, listener, call } = asked;
        let slot = DescriptorSlot::of(target, socket)?;
        let found = target.find(libc::AT_FDCWD, path, true, false).and_then(|found| grounds.socket(&found));
        let at = match (found, self.in_temporary(path)) {
            (Err(error), Some((temporary, rest))) => {
                let found = target.find_below(temporary, rest).and_then(|found| grounds.socket(&found));
                found.map_err(|other| either(error, other))?
            }
            (found, _) => found?,
        };
        let waiting = Waiting { call, slot, socket: stream()?, at };
        match waiting.attempt(listener) {
            Err(Errno::AGAIN) if slot.waits() && self.waiting.len() < WAITING_MAX => {
                self.waiting.push(waiting);
                Ok(Outcome::Later)
            }
            made => made.map(|()| Outcome::Made),
        }
    }

    /// Tells whether calls wait for [`LocalSockets::try_again`].
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tries the connections that wait once more, and tells `answer` what came of those that wait no longer.
    pub(super) fn try_again(&mut self, listener: BorrowedFd<'_>, answer: impl Fn(u64, Result<(), Errno>)) {
        self.waiting.retain(|waiting| {
            if !sys::is_waiting(listener, waiting.call) {
                return false;
            }
            match waiting.attempt(listener) {
                Err(Errno::AGAIN) => true,
                made => {
                    answer(waiting.call, made);
                    false
                }
            }
        });
    }
}

impl Waiting {
    /// Connects; `EAGAIN` where the listener has no room.
    fn attempt(&self, listener: BorrowedFd<'_>) -> Result<(), Errno> {
        connect(&self.socket, &self.at)?;
        self.slot.fill(&self.socket, listener, self.call)
    }
}

/// A new socket, on which nothing waits.
fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", path.get(1..).unwrap_or_default()),
        Some(end) => (path.get(..end).unwrap_or_default(), path.get(end + 1..).unwrap_or_default()),
        None => (b".", path),
    }
}

/// Connects to the open socket `at`; `EAGAIN` where its listener has no room.
fn connect(socket: &OwnedFd, at: &OwnedFd) -> Result<(), Errno> {
    rustix::net::connect(socket, &SocketAddrUnix::new(format!("/proc/self/fd/{}", at.as_raw_fd()))?)
}

/// Tells whether `name` in a directory is a socket at which nothing listens any more.
fn is_left(target: &Target, grounds: &Grounds, above: &OwnedFd, name: &[u8]) -> bool {
    let found = target.find_below(above.as_fd(), name).and_then(|found| grounds.socket(&found));
    found.is_ok_and(|there| stream().and_then(|socket| connect(&socket, &there)) == Err(Errno::CONNREFUSED))
}

/// The address of `name` in an open directory: by its path, or where that is too long for an address by its descriptor.
fn below(directory: &OwnedFd, name: &[u8]) -> Result<SocketAddrUnix, Errno> {
    let in_directory = |mut path: Vec<u8>| {
        path.push(b'/');
        path.extend_from_slice(name);
        SocketAddrUnix::new(path)
    };
    in_directory(path_of(directory.as_fd())?)
        .or_else(|_| in_directory(format!("/proc/self/fd/{}", directory.as_raw_fd()).into_bytes()))
}

/// The error that says more: that of a path, or that of the same path in what stands for `/tmp`.
fn either(path: Errno, temporary: Errno) -> Errno {
    if temporary == Errno::NOENT { path } else { temporary }
}

fn remember<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    while all.len() >= most {
        all.pop_front();
    }
    all.push_back(one);
}

//! How messages travel: one packet each, with descriptors attached.
//!
//! # References
//! `unix(7)`, for `SOCK_SEQPACKET` and `SCM_RIGHTS`.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Descriptors, Next, Order, Report, Request, Sockets, TreeLocation};

/// Largest body inside a packet, in bytes; larger ones travel in a memory file. Far below a socket's buffer.
const INLINE_BYTES: usize = 32 * 1024;
/// Largest body at all, in bytes: more than arguments and environment may have.
const BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most mounts of one run: its tree, home and temporary directory, and the skills it asked for.
pub(crate) const MOUNTS_MAX: usize = 72;
/// Most descriptors with one packet: five of every run, its walls, network, mounts, leases, and a memory file. The kernel's own
/// bound is 253 (unix(7), `SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 8 + 2 * MOUNTS_MAX;

/// A pair of connected sockets that keep the borders of messages.
///
/// # Errors
/// As `socketpair(2)`.
pub(crate) fn packet_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends `request` and its descriptors without waiting.
///
/// # Errors
/// As `sendmsg(2)`: `EAGAIN` when the launcher is behind, `EPIPE` or `ECONNRESET` when it is gone.
pub(crate) fn send_request(
    socket: BorrowedFd<'_>,
    request: &Request,
    descriptors: &Descriptors<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attached = vec![descriptors.run];
    attached.extend(descriptors.stdio);
    attached.push(descriptors.directory);
    attached.extend(descriptors.walls);
    attached.extend(descriptors.network);
    attached.extend(&descriptors.mounts);
    attached.extend(&descriptors.leases);
    send_order(socket, &Order::Run(request), &attached)
}

/// Sends the next command to a first process that has stayed, with its standard input, output and error, and its working
/// directory.
///
/// # Errors
/// As [`send_request`].
pub(crate) fn send_next(
    socket: BorrowedFd<'_>,
    next: &Next,
    [input, output, error]: [BorrowedFd<'_>; 3],
    directory: BorrowedFd<'_>,
) -> io::Result<()> {
    send_order(socket, &Order::Run(next), &[input, output, error, directory])
}

fn send_order<R: Serialize>(
    socket: BorrowedFd<'_>,
    order: &Order<R>,
    attached: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = encode(order)?;
    if body.len() <= INLINE_BYTES {
        return send(socket, &body, attached);
    }
    let spill = memory_file(&body)?;
    send(socket, &encode(&Order::<()>::Spilled)?, &[attached, &[spill.as_fd()]].concat())
}

/// An order as it arrives.
pub(crate) enum Arrived {
    /// Start a command, with its descriptors.
    Run(Box<Request>, Descriptors<OwnedFd>),
    /// Make a user namespace, and send it over this socket.
    SwapOwner(u32, OwnedFd),
    /// The user with this number is here.
    Here(u64),
}

/// Waits for the next order; `None` when the service closed its end.
///
/// # Errors
/// As `recvmsg(2)`, and `InvalidData` for a packet that is no order (which one binary never sends to itself).
pub(crate) fn receive_order(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Arrived>> {
    let Some((order, attached)) = receive_any::<Request>(socket, buffer)? else { return Ok(None) };
    let mut attached = attached.into_iter();
    let mut next = || attached.next().ok_or_else(malformed);
    let request = match order {
        Order::SwapOwner { owner } => return Ok(Some(Arrived::SwapOwner(owner, next()?))),
        Order::Here { user } => return Ok(Some(Arrived::Here(user))),
        Order::Run(request) => request,
        Order::Spilled => return Err(malformed()),
    };
    let (run, stdio, directory) = (next()?, [next()?, next()?, next()?], next()?);
    let walls = if request.has_walls { Some(next()?) } else { None };
    let network = if request.sockets == Sockets::OwnNetwork { Some(next()?) } else { None };
    let (mounts, leases) = match &request.place {
        TreeLocation::Host { .. } => (0, 0),
        TreeLocation::Mounted { at, leases } => (at.len(), *leases),
    };
    let mounts = (0..mounts).map(|_| next()).collect::<io::Result<Vec<_>>>()?;
    let leases = (0..leases).map(|_| next()).collect::<io::Result<Vec<_>>>()?;
    let descriptors = Descriptors { run, stdio, directory, walls, network, mounts, leases };
    Ok(Some(Arrived::Run(Box::new(request), descriptors)))
}

/// Waits for the next command; `None` when the service closed its end.
///
/// # Errors
/// As [`receive_order`].
pub(crate) fn receive_next(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(Next, [OwnedFd; 3], OwnedFd)>> {
    match receive_any::<Next>(socket, buffer)? {
        None => Ok(None),
        Some((Order::Run(next), attached)) => {
            let [input, output, error, directory] = attached.try_into().map_err(|_| malformed())?;
            Ok(Some((next, [input, output, error], directory)))
        }
        Some(_) => Err(malformed()),
    }
}

fn receive_any<R: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(Order<R>, Vec<OwnedFd>)>> {
    let (length, mut attached) = receive(socket, buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let body = buffer.get(..length).unwrap_or_default();
    let mut order: Order<R> = decode(body)?;
    if matches!(order, Order::Spilled) {
        let mut spill = std::fs::File::from(attached.pop().ok_or_else(malformed)?);
        spill.rewind()?;
        let mut whole = Vec::new();
        spill.take(BODY_BYTES_MAX).read_to_end(&mut whole)?;
        order = decode(&whole)?;
    }
    Ok(Some((order, attached)))
}

/// Size of the buffer that [`receive_order`] needs, in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = INLINE_BYTES + 1024;

/// Room for a message on the stack, in bytes: for every [`Report`].
const MESSAGE_BYTES: usize = 128;

/// Sends one message, on either socket, without waiting and without a signal when the other end is closed.
///
/// Allocates nothing for a [`Report`], which a process may send that shares its memory with its parent.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send_message<M: Serialize>(socket: BorrowedFd<'_>, message: &M) -> io::Result<()> {
    send_small(socket, message, &[])
}

fn send_small<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    attached: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut room = [0; MESSAGE_BYTES];
    match postcard::to_slice(message, &mut room) {
        Ok(body) => send(socket, body, attached),
        Err(postcard::Error::SerializeBufferFull) => send(socket, &encode(message)?, attached),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Sends one message with a descriptor, as [`send_message`] does.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send_with<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    attached: BorrowedFd<'_>,
) -> io::Result<()> {
    send_small(socket, message, &[attached])
}

/// Hands the process `pid`, a child or the caller itself, to the service.
///
/// # Errors
/// As `pidfd_open(2)` and `sendmsg(2)`.
pub(crate) fn send_handle(run: BorrowedFd<'_>, pid: rustix::process::Pid) -> io::Result<()> {
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    send_with(run, &Report::Handle, handle.as_fd())
}

/// Sends one packet with descriptors, without waiting.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send(socket: BorrowedFd<'_>, body: &[u8], attached: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !attached.is_empty() && !control.push(SendAncillaryMessage::ScmRights(attached)) {
        return Err(malformed());
    }
    sendmsg(socket, &[IoSlice::new(body)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives one packet: its length (0 at the end of the connection) and its descriptors, closed on `execve`.
///
/// # Errors
/// As `recvmsg(2)`; `InvalidData` when the packet is longer than `buffer`.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut attached = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            attached.extend(descriptors);
        }
    }
    if message.flags.contains(rustix::net::ReturnFlags::TRUNC) {
        return Err(malformed());
    }
    Ok((message.bytes, attached))
}

/// A file in memory with `body` in it.
fn memory_file(body: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC;
    let file = memfd_create("request", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("request", flags))?; // the seal is new in Linux 6.3
    let mut file = std::fs::File::from(file);
    file.write_all(body)?;
    Ok(file.into())
}

/// A message as it travels.
pub(crate) fn encode<M: Serialize>(message: &M) -> io::Result<Vec<u8>> {
    postcard::to_allocvec(message).map_err(io::Error::other)
}

/// The message in `body`.
///
/// # Errors
/// `InvalidData` when it is none, which one binary never sends to itself.
pub(crate) fn decode<'a, M: Deserialize<'a>>(body: &'a [u8]) -> io::Result<M> {
    postcard::from_bytes(body).map_err(|_| malformed())
}

fn malformed() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;
    use crate::step::Step;
    use crate::sys::Work;
    use crate::wire::Reach;

    const MOST: Work = Work { lasted: Duration::MAX, blocks: u64::MAX };

    #[test]
    fn every_report_fits_into_its_room_on_the_stack() {
        let (least, none) = (Some(i32::MIN), None);
        for report in [
            Report::Started { pid: i32::MAX },
            Report::Handle,
            Report::Listener,
            Report::Unreachable { reach: Reach::Closed },
            Report::Ended { code: least, signal: least, stays: true, worked: MOST },
            Report::Failed { step: Step::Execute, errno: i32::MIN },
            Report::Exited { code: least, signal: least, limit: Some(Limit::Memory), worked: Some(MOST) },
            Report::Exited { code: none, signal: none, limit: None, worked: None },
        ] {
            let mut room = [0; MESSAGE_BYTES];
            let body = postcard::to_slice(&report, &mut room).unwrap();
            assert_eq!(decode::<Report>(body).unwrap(), report);
        }
    }
}

//! [`tcp_pair`]: both ends of a TCP connection, made by one process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long each of connecting and accepting may take; both are done by the kernel at once.
const WITHIN: Duration = Duration::from_secs(1);
/// Connections of other programs to the listener, in the moment in which it is there, that are turned away.
const STRANGERS_MAX: usize = 16;

/// Connects this process to itself over the loopback interface.
///
/// What programs ask of a TCP socket works on both ends, as it does not on those of `socketpair(2)`. The listener takes a
/// random address of `127.0.0.0/8` and a free port there, is gone when this returns, and accepts this connection only: so
/// neither end is to be had by another program, and ports of the host do not run out where many connections have just ended.
///
/// # Errors
/// As `socket(2)`, `bind(2)`, `connect(2)` and `getrandom(2)`. [`io::ErrorKind::TimedOut`].
pub(crate) fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let mut random = [0; 3];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let [first, second, third] = random;
    // Neither the network's own number nor its broadcast address.
    let address = Ipv4Addr::new(127, first, second, 1 + third % 254);
    let listener = TcpListener::bind((address, 0))?;
    listener.set_nonblocking(true)?;
    let one = TcpStream::connect_timeout(&listener.local_addr()?, WITHIN)?;
    let own = one.local_addr()?;
    let other = accept_from(&listener, own)?;
    other.set_nonblocking(false)?;
    for end in [&one, &other] {
        end.set_nodelay(true)?;
    }
    Ok((one, other))
}

/// Accepts the connection that comes from `own`.
fn accept_from(listener: &TcpListener, own: SocketAddr) -> io::Result<TcpStream> {
    let within = Timespec { tv_sec: WITHIN.as_secs() as i64, tv_nsec: 0 };
    for _ in 0..STRANGERS_MAX {
        let mut set = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        if poll(&mut set, Some(&within))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match listener.accept() {
            Ok((stream, from)) if from == own => return Ok(stream),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_goes_into_one_end_comes_out_of_the_other() {
        let (mut one, mut other) = tcp_pair().unwrap();
        one.write_all(b"there").unwrap();
        other.write_all(b"back").unwrap();
        let (mut there, mut back) = ([0; 5], [0; 4]);
        other.read_exact(&mut there).unwrap();
        one.read_exact(&mut back).unwrap();
        assert_eq!((&there, &back), (b"there", b"back"));
        drop(other);
        assert_eq!(one.read(&mut back).unwrap(), 0);
    }

    #[test]
    fn the_connection_of_another_program_is_turned_away() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let mut stranger = TcpStream::connect(address).unwrap();
        let one = TcpStream::connect(address).unwrap();
        let other = accept_from(&listener, one.local_addr().unwrap()).unwrap();
        assert_eq!(other.peer_addr().unwrap(), one.local_addr().unwrap());
        assert_eq!(stranger.read(&mut [0]).unwrap(), 0);
    }
}

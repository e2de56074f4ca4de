//! [`Target`]: the thread that makes a call, its memory and its directories.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, getxattr, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use super::call::Times;
use crate::sys::{self, Notification};

/// Longest path, its end included, in bytes (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// The bytes of memory that are read at once: a smaller part of a page, so that the end of a mapping behind a short
/// path is not read.
const PIECE_BYTES: u64 = 256;
/// The sizes of an IPv4 address (`struct sockaddr_in`), and of an IPv6 address without its last field, the scope, in bytes.
const IPV4_BYTES: usize = 16;
const IPV6_BYTES: usize = 24;
/// The bytes of the name of a kind of socket that are read.
const KIND_BYTES: usize = 32;
/// The bytes of the name of a program; the kernel keeps 15.
const NAME_BYTES: usize = 64;
/// The size of the largest address of a UNIX socket (`struct sockaddr_un`), and of the family before its path, in bytes.
const UNIX_BYTES_MAX: usize = 110;
const FAMILY_BYTES: usize = 2;
/// How much is read of what `/proc` tells of a descriptor, in bytes; the flags are in the second line.
const FDINFO_BYTES: usize = 256;
/// How much is read of what `/proc` tells of a thread, in bytes; its process is in the fourth line.
const STATUS_BYTES: usize = 512;
/// The flags that open a place without reading it.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// An address for a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// An address of the internet; one of IPv6 without flow and scope.
    Internet(SocketAddr),
    /// A path, which is not empty.
    Path(Vec<u8>),
    /// A name of a UNIX socket that is no path: abstract, or left to the kernel.
    Abstract,
}

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// TCP, over IPv4 or over IPv6.
    Tcp {
        is_ipv6: bool,
    },
    Unix,
}

/// The thread that makes a call.
pub(super) struct Target {
    /// Its directory in `/proc`, which never comes to mean another thread.
    directory: OwnedFd,
    thread: i32,
}

impl Target {
    /// Opens the thread of a call that waits.
    ///
    /// # Errors
    /// `ESRCH` when it has ended. `EPERM` when `/proc` is not there.
    pub(super) fn open(listener: BorrowedFd<'_>, notification: &Notification) -> Result<Self, Errno> {
        let thread = notification.thread;
        let flags = PLACE | OFlags::DIRECTORY;
        let directory =
            openat(CWD, format!("/proc/{thread}"), flags, Mode::empty()).map_err(|_| Errno::PERM)?;
        // Only now it is certain that the number was still this thread's when its directory was opened.
        if !sys::is_waiting(listener, notification.id) {
            return Err(Errno::SRCH);
        }
        Ok(Self { directory, thread })
    }

    /// The file that the thread has open as `number`.
    ///
    /// # Errors
    /// `EBADF` when it has nothing. `EPERM` when the process hides itself (PR_SET_DUMPABLE(2const)).
    pub(super) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        openat(&self.directory, format!("fd/{number}"), PLACE, Mode::empty()).map_err(|error| match error {
            Errno::NOENT => Errno::BADF,
            Errno::ACCESS => Errno::PERM,
            other => other,
        })
    }

    /// The number of the process that the thread is of (proc_pid_status(5)).
    ///
    /// # Errors
    /// `EPERM` when that cannot be read.
    pub(super) fn process(&self) -> Result<i32, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.directory, "status", flags, Mode::empty()).map_err(|_| Errno::PERM)?;
        let mut text = [0; STATUS_BYTES];
        let length = rustix::io::read(&file, &mut text)?;
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        // The name of a program, which it chooses, stands in the first line, its line ends spelled.
        let number = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
        number.and_then(|number| number.trim().parse().ok()).ok_or(Errno::PERM)
    }

    /// Opens what the thread means by `path`, as a place.
    ///
    /// The links of `/proc` are not followed, because here they lead elsewhere than there; only the names of the
    /// thread's own descriptors, which C libraries use, are understood.
    ///
    /// # Errors
    /// As `openat2(2)`.
    pub(super) fn find(
        &self,
        from: i32,
        path: &[u8],
        follow: bool,
        may_be_empty: bool,
    ) -> Result<OwnedFd, Errno> {
        if path.is_empty() {
            return if may_be_empty { self.directory_of(from) } else { Err(Errno::NOENT) };
        }
        if let Some(number) = self.descriptor_in(path) {
            return if follow { self.descriptor(number) } else { Err(Errno::PERM) };
        }
        let flags = if follow { PLACE } else { PLACE | OFlags::NOFOLLOW };
        let start;
        let start = if path.starts_with(b"/") {
            CWD
        } else {
            start = self.directory_of(from)?;
            start.as_fd()
        };
        open_place(start, path, flags)
    }

    /// Opens `path` in `directory`, as a place.
    ///
    /// # Errors
    /// As `openat2(2)`.
    pub(super) fn find_below(&self, directory: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_place(directory, path, PLACE)
    }

    /// The directory that the thread has open as `from`, or the one that it works in (`AT_FDCWD`).
    ///
    /// # Errors
    /// As [`Target::descriptor`].
    fn directory_of(&self, from: i32) -> Result<OwnedFd, Errno> {
        if from != libc::AT_FDCWD {
            return self.descriptor(from);
        }
        openat(&self.directory, "cwd", PLACE, Mode::empty()).map_err(|error| match error {
            Errno::ACCESS => Errno::PERM,
            other => other,
        })
    }

    /// Tells whether a path names one of the thread's own descriptors.
    pub(super) fn names_descriptor(&self, path: &[u8]) -> bool {
        self.descriptor_in(path).is_some()
    }

    /// The number in a path that names one of the thread's own descriptors.
    fn descriptor_in(&self, path: &[u8]) -> Option<i32> {
        let path = std::str::from_utf8(path).ok()?;
        let own = format!("/proc/{}/fd/", self.thread);
        let number = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/", &own]
            .iter()
            .find_map(|directory| path.strip_prefix(directory))?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
    }

    /// The path at `address`, without its end.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`. `EPERM` when the process hides its memory.
    pub(super) fn path(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let memory = self.memory()?;
        let mut path = Vec::new();
        while path.len() < PATH_BYTES_MAX {
            let at = address.checked_add(path.len() as u64).ok_or(Errno::FAULT)?;
            let mut piece = [0; PIECE_BYTES as usize];
            let piece = piece.get_mut(..(PIECE_BYTES - at % PIECE_BYTES) as usize).unwrap_or_default();
            read_at(&memory, piece, at)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    path.extend_from_slice(piece.get(..end).unwrap_or_default());
                    // The last piece may go beyond what a path may have.
                    return if path.len() < PATH_BYTES_MAX { Ok(path) } else { Err(Errno::NAMETOOLONG) };
                }
                None => path.extend_from_slice(piece),
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    /// The times of access and change that the caller asks for.
    ///
    /// # Errors
    /// As [`Target::path`], and `EINVAL` for microseconds out of range.
    pub(super) fn times(&self, times: Times) -> Result<Timestamps, Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let [accessed, changed] = match times {
            Times::Nanoseconds(0) | Times::Microseconds(0) | Times::Seconds(0) => [now, now],
            Times::Nanoseconds(address) => {
                let [a, b, c, d] = self.numbers(address)?;
                [Timespec { tv_sec: a, tv_nsec: b as _ }, Timespec { tv_sec: c, tv_nsec: d as _ }]
            }
            Times::Microseconds(address) => {
                let [a, b, c, d] = self.numbers(address)?;
                if ![b, d].iter().all(|rest| (0..1_000_000).contains(rest)) {
                    return Err(Errno::INVAL);
                }
                [
                    Timespec { tv_sec: a, tv_nsec: (b * 1000) as _ },
                    Timespec { tv_sec: c, tv_nsec: (d * 1000) as _ },
                ]
            }
            Times::Seconds(address) => {
                self.numbers(address)?.map(|seconds| Timespec { tv_sec: seconds, tv_nsec: 0 })
            }
        };
        Ok(Timestamps { last_access: accessed, last_modification: changed })
    }

    /// The numbers of 64 bits at `address`.
    fn numbers<const N: usize>(&self, address: u64) -> Result<[i64; N], Errno> {
        let memory = self.memory()?;
        let mut numbers = [0; N];
        for (number, at) in numbers.iter_mut().zip((0..).step_by(size_of::<i64>())) {
            let mut bytes = [0; size_of::<i64>()];
            read_at(&memory, &mut bytes, address.checked_add(at).ok_or(Errno::FAULT)?)?;
            *number = i64::from_ne_bytes(bytes);
        }
        Ok(numbers)
    }

    /// Has the handler at `address` of the caller's memory restart what it interrupts (rt_sigaction(2): the flags are the
    /// second word).
    ///
    /// # Errors
    /// As [`Target::path`].
    pub(super) fn restart(&self, address: u64) -> Result<(), Errno> {
        let at = address.checked_add(size_of::<u64>() as u64).ok_or(Errno::FAULT)?;
        let memory = openat(&self.directory, "mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let memory = memory.map(std::fs::File::from).map_err(|_| Errno::PERM)?;
        let mut flags = [0; size_of::<u64>()];
        read_at(&memory, &mut flags, at)?;
        let flags = u64::from_ne_bytes(flags) | u64::from(libc::SA_RESTART.cast_unsigned());
        memory.write_all_at(&flags.to_ne_bytes(), at).map_err(|_| Errno::FAULT)
    }

    /// The address of a socket at `address` in the caller's memory, which says that it has `length` bytes (ip(7), unix(7)).
    ///
    /// # Errors
    /// As [`Target::path`]; `EINVAL` for fewer or more bytes than one has, `EAFNOSUPPORT` for another family.
    pub(super) fn address(&self, address: u64, length: i32) -> Result<Address, Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        let mut bytes = [0; UNIX_BYTES_MAX];
        // An address may be longer than it has to be, but the kernel takes none that is longer than all.
        let bytes = bytes.get_mut(..length.min(UNIX_BYTES_MAX)).filter(|bytes| bytes.len() >= FAMILY_BYTES);
        let bytes = bytes.ok_or(Errno::INVAL)?;
        read_at(&self.memory()?, bytes, address)?;
        parse_address(bytes, length)
    }

    /// The number of the socket that the thread has open as `number`, in the kernel's file system of sockets
    /// (proc_pid_fd(5)).
    ///
    /// # Errors
    /// `EBADF` when it has nothing open there, `ENOTSOCK` for another file.
    pub(super) fn socket(&self, number: i32) -> Result<u64, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let link =
            readlinkat(&self.directory, format!("fd/{number}"), Vec::new()).map_err(|error| match error {
                Errno::NOENT => Errno::BADF,
                Errno::ACCESS => Errno::PERM,
                other => other,
            })?;
        let inode = link.to_str().ok().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.and_then(|inode| inode.parse().ok()).ok_or(Errno::NOTSOCK)
    }

    /// The kind of the socket that the thread has open as `number`, by the name that the kernel's file system of sockets gives it
    /// (net/socket.c of Linux, `sockfs_xattr_get`).
    ///
    /// # Errors
    /// As [`Target::descriptor`]. `ENOTSOCK` for another file and another kind.
    pub(super) fn kind(&self, number: i32) -> Result<Kind, Errno> {
        let socket = self.descriptor(number)?;
        let mut name = [0; KIND_BYTES];
        let place = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let length = getxattr(place, "system.sockprotoname", &mut name).map_err(|_| Errno::NOTSOCK)?;
        let name = name.get(..length).unwrap_or_default();
        match name.split(|byte| *byte == 0).next().unwrap_or_default() {
            b"TCP" => Ok(Kind::Tcp { is_ipv6: false }),
            b"TCPv6" => Ok(Kind::Tcp { is_ipv6: true }),
            name if name.starts_with(b"UNIX") => Ok(Kind::Unix),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// The name of the thread's program, as that calls itself; empty when it has ended.
    pub(super) fn program(&self) -> String {
        let mut name = [0; NAME_BYTES];
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let read = openat(&self.directory, "comm", flags, Mode::empty())
            .and_then(|file| rustix::io::read(&file, &mut name));
        let name = String::from_utf8_lossy(name.get(..read.unwrap_or(0)).unwrap_or_default());
        name.chars().filter(|character| !character.is_control()).collect()
    }

    /// Tells how the thread has `number` open, by the flags of open(2): of the file, and whether the descriptor closes on
    /// `execve` (proc_pid_fdinfo(5)).
    ///
    /// # Errors
    /// As [`Target::descriptor`].
    pub(super) fn open_flags(&self, number: i32) -> Result<OFlags, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file =
            openat(&self.directory, format!("fdinfo/{number}"), flags, Mode::empty()).map_err(|error| {
                match error {
                    Errno::NOENT => Errno::BADF,
                    Errno::ACCESS => Errno::PERM,
                    other => other,
                }
            })?;
        let mut text = [0; FDINFO_BYTES];
        let length = rustix::io::read(&file, &mut text)?;
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        let value = text.lines().find_map(|line| line.strip_prefix("flags:")).ok_or(Errno::BADF)?;
        let value = u32::from_str_radix(value.trim(), 8).map_err(|_| Errno::BADF)?;
        Ok(OFlags::from_bits_retain(value))
    }

    fn memory(&self) -> Result<std::fs::File, Errno> {
        let memory = openat(&self.directory, "mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        memory.map(std::fs::File::from).map_err(|_| Errno::PERM)
    }
}

/// Opens a place through no link of `/proc`. That there is such a link says something of this process, so it is not told from
/// none.
fn open_place(start: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(start, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
        .map_err(|error| if error == Errno::LOOP { Errno::NOENT } else { error })
}

/// Reads an address of which the caller says that it has `length` bytes, and of which these are the first.
fn parse_address(bytes: &[u8], length: usize) -> Result<Address, Errno> {
    let (family, rest) = bytes.split_first_chunk().ok_or(Errno::INVAL)?;
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let [port_high, port_low, a, b, c, d, ..] = *rest else { return Err(Errno::INVAL) };
            if length < IPV4_BYTES {
                return Err(Errno::INVAL);
            }
            let port = u16::from_be_bytes([port_high, port_low]);
            Ok(Address::Internet(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).into()))
        }
        libc::AF_INET6 => {
            let (port, rest) = rest.split_first_chunk().ok_or(Errno::INVAL)?;
            // Between them is what tells flows apart.
            let address: &[u8; 16] = rest.get(4..).and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
            if length < IPV6_BYTES {
                return Err(Errno::INVAL);
            }
            let (address, port) = (Ipv6Addr::from(*address), u16::from_be_bytes(*port));
            Ok(Address::Internet(SocketAddrV6::new(address, port, 0, 0).into()))
        }
        libc::AF_UNIX if length > UNIX_BYTES_MAX => Err(Errno::INVAL),
        libc::AF_UNIX => match rest.split(|byte| *byte == 0).next() {
            Some(path) if !path.is_empty() => Ok(Address::Path(path.to_vec())),
            _ => Ok(Address::Abstract),
        },
        _ => Err(Errno::AFNOSUPPORT),
    }
}

fn read_at(memory: &std::fs::File, bytes: &mut [u8], address: u64) -> Result<(), Errno> {
    memory.read_exact_at(bytes, address).map_err(|_| Errno::FAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &[u8], length: usize) -> Result<Address, Errno> {
        let mut bytes = 1_u16.to_ne_bytes().to_vec();
        bytes.extend_from_slice(path);
        parse_address(&bytes, length)
    }

    #[test]
    fn a_path_ends_at_its_end_or_at_the_end_of_the_address() {
        assert_eq!(unix(b"/a/b\0rest", 11), Ok(Address::Path(b"/a/b".to_vec())));
        assert_eq!(unix(b"s", 3), Ok(Address::Path(b"s".to_vec())));
        assert_eq!(unix(&[b'x'; 108], 110), Ok(Address::Path(vec![b'x'; 108])));
        assert_eq!(unix(&[b'x'; 108], 111), Err(Errno::INVAL));
    }

    #[test]
    fn a_name_that_is_no_path_is_told_from_paths() {
        assert_eq!(unix(b"", 2), Ok(Address::Abstract));
        assert_eq!(unix(b"\0/a/b", 7), Ok(Address::Abstract));
    }

    #[test]
    fn an_address_of_the_internet_is_whole_or_none() {
        let address = [2_u16.to_ne_bytes().as_slice(), &[0x0C, 0x38, 127, 0, 0, 1], &[0; 8]].concat();
        assert_eq!(parse_address(&address, 16), Ok(Address::Internet("127.0.0.1:3128".parse().unwrap())));
        assert_eq!(parse_address(&address, 128), parse_address(&address, 16));
        assert_eq!(parse_address(&address[..8], 8), Err(Errno::INVAL));
        let address =
            [&10_u16.to_ne_bytes(), &[0x1F, 0x40, 9, 9, 9, 9][..], &[0; 15], &[1], &[0; 4]].concat();
        assert_eq!(parse_address(&address, 28), Ok(Address::Internet("[::1]:8000".parse().unwrap())));
        assert_eq!(parse_address(&address[..24], 24), parse_address(&address, 28));
        assert_eq!(parse_address(&address[..23], 23), Err(Errno::INVAL));
        assert_eq!(parse_address(&address[..24], 16), Err(Errno::INVAL));
        assert_eq!(parse_address(&[16, 0, 0, 0], 4), Err(Errno::AFNOSUPPORT));
        assert_eq!(parse_address(&[1], 1), Err(Errno::INVAL));
    }
}

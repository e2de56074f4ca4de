//! The request of a system call, read from its number and its arguments alone.

use libc::c_long;
use rustix::fs::OFlags;
use rustix::io::Errno;

const FCHMODAT2: c_long = 452;
const F_SETOWN: u32 = 8;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EMPTY_PATH: u64 = 0x1000;
/// The working directory, as an argument whose upper half is empty (`AT_FDCWD`).
#[cfg(target_arch = "x86_64")]
const CWD: u64 = 0xFFFF_FF9C;

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Make a process or a thread.
    Fork,
    /// Change attributes of a file.
    Change(Change),
    /// Send a signal, or have those of a descriptor sent.
    Signal(Receiver),
    /// Connect a socket to an address.
    Connect(Peer),
    /// Give a socket an address.
    Bind(Peer),
    /// Have a socket, the caller's descriptor, listen with this backlog.
    Listen(i32, i32),
    /// Say what is to happen at the end of a child, as the structure at this address has it; 0 only asks.
    Handler(u64),
    /// Open a file.
    Open(Opening),
    /// Give the file at the first address another name, at the second.
    Link(u64, u64),
    /// Remove the name at this address.
    Unlink(u64),
}

/// How the caller opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// The directory that a relative path begins at: a descriptor, or `AT_FDCWD`.
    pub(super) from: i32,
    /// Where the path lies in the caller's memory.
    pub(super) address: u64,
    pub(super) flags: OFlags,
    /// The permission bits of a new file.
    pub(super) mode: u32,
}

/// A socket of the caller, and where the address for it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// The caller's descriptor.
    pub(super) socket: i32,
    /// Where the address lies in the caller's memory.
    pub(super) address: u64,
    /// How many bytes it has there, as the caller says.
    pub(super) length: i32,
}

/// The processes that are to get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// The process, or the thread, of this number.
    Process(i32),
    /// The group of this number.
    Group(i32),
    /// The caller's own group.
    OwnGroup,
    /// Every process that the caller may signal.
    Everyone,
}

impl Receiver {
    /// Reads a number as `kill(2)` and `F_SETOWN` do.
    fn of(number: i32) -> Self {
        match number {
            0 => Self::OwnGroup,
            -1 => Self::Everyone,
            1.. => Self::Process(number),
            // No group has the number that is left over.
            _ => Self::Group(number.checked_neg().unwrap_or(i32::MAX)),
        }
    }
}

/// A change of the attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) object: Object,
    pub(super) attribute: Attribute,
}

/// How the caller names the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// By an open descriptor.
    Descriptor(i32),
    /// By a path.
    Path {
        /// The directory that a relative path begins at: a descriptor, or `AT_FDCWD`.
        from: i32,
        /// Where the path lies in the caller's memory.
        address: u64,
        /// Whether a symbolic link at its end is followed.
        follow: bool,
        /// Whether an empty path names `from` itself.
        may_be_empty: bool,
    },
}

/// The changed attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    Mode(u32),
    /// `u32::MAX` leaves an id as it is (chown(2)).
    Owner {
        uid: u32,
        gid: u32,
    },
    Times(Times),
}

/// Where the caller's times lie, and in which form; the address 0 stands for the present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only the calls of older architectures have the other forms")
)]
pub(super) enum Times {
    /// `struct timespec[2]`
    Nanoseconds(u64),
    /// `struct timeval[2]`
    Microseconds(u64),
    /// `struct utimbuf`
    Seconds(u64),
}

impl Call {
    /// Reads a call.
    ///
    /// # Errors
    /// `ENOSYS` for a call that no filter sends here, `EINVAL` for flags that the call does not have.
    pub(super) fn read(number: i32, arguments: &[u64; 6]) -> Result<Self, Errno> {
        let [first, second, third, fourth, fifth, _] = *arguments;
        let number = c_long::from(number);
        let here =
            |address, follow| Object::Path { from: libc::AT_FDCWD, address, follow, may_be_empty: false };
        let at = |from, address| path(from, address, 0);
        let mode = |mode| Attribute::Mode(low(mode));
        let owner = |uid, gid| Attribute::Owner { uid: low(uid), gid: low(gid) };
        let (object, attribute) = match number {
            libc::SYS_clone => return Ok(Self::Fork),
            libc::SYS_rt_sigaction => return Ok(Self::Handler(second)),
            libc::SYS_connect => {
                return Ok(Self::Connect(Peer { socket: int(first), address: second, length: int(third) }));
            }
            libc::SYS_bind => {
                return Ok(Self::Bind(Peer { socket: int(first), address: second, length: int(third) }));
            }
            libc::SYS_listen => return Ok(Self::Listen(int(first), int(second))),
            libc::SYS_openat => return Ok(Self::Open(opening(first, second, third, fourth))),
            // The filter sends only those that begin at the working directory, and that remove no directory.
            libc::SYS_linkat => return Ok(Self::Link(second, fourth)),
            libc::SYS_unlinkat => return Ok(Self::Unlink(second)),
            libc::SYS_kill => return Ok(Self::Signal(Receiver::of(int(first)))),
            libc::SYS_fcntl if low(second) == F_SETOWN => return Ok(Self::Signal(Receiver::of(int(third)))),
            // `F_SETOWN_EX` has the receiver behind a pointer, which the caller can change after a look.
            libc::SYS_fcntl => return Err(Errno::PERM),
            // Numbers that are none fail in the kernel.
            libc::SYS_tkill | libc::SYS_tgkill | libc::SYS_rt_sigqueueinfo | libc::SYS_rt_tgsigqueueinfo => {
                return Ok(Self::Signal(Receiver::Process(int(first))));
            }
            libc::SYS_fchmod => (Object::Descriptor(int(first)), mode(second)),
            libc::SYS_fchmodat => (at(first, second)?, mode(third)),
            FCHMODAT2 => (path(first, second, fourth)?, mode(third)),
            libc::SYS_fchown => (Object::Descriptor(int(first)), owner(second, third)),
            libc::SYS_fchownat => (path(first, second, fifth)?, owner(third, fourth)),
            libc::SYS_utimensat => {
                (timed(first, second, fourth)?, Attribute::Times(Times::Nanoseconds(third)))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => return Ok(Self::Fork),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => return Ok(Self::Open(opening(CWD, first, second, third))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => return Ok(Self::Link(first, second)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => return Ok(Self::Unlink(first)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (here(first, true), mode(second)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => (here(first, true), owner(second, third)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => (here(first, false), owner(second, third)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => (here(first, true), Attribute::Times(Times::Seconds(second))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => (here(first, true), Attribute::Times(Times::Microseconds(second))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => (timed(first, second, 0)?, Attribute::Times(Times::Microseconds(third))),
            _ => return Err(Errno::NOSYS),
        };
        let _ = here;
        Ok(Self::Change(Change { object, attribute }))
    }
}

fn path(from: u64, address: u64, flags: u64) -> Result<Object, Errno> {
    let flags = u64::from(low(flags));
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Object::Path {
        from: int(from),
        address,
        follow: flags & AT_SYMLINK_NOFOLLOW == 0,
        may_be_empty: flags & AT_EMPTY_PATH != 0,
    })
}

fn opening(from: u64, address: u64, flags: u64, mode: u64) -> Opening {
    Opening { from: int(from), address, flags: OFlags::from_bits_retain(low(flags)), mode: low(mode) }
}

/// The object of a call that takes no path for the descriptor itself (utimensat(2)).
fn timed(from: u64, address: u64, flags: u64) -> Result<Object, Errno> {
    match path(from, address, flags)? {
        Object::Path { from, address: 0, .. } if from != libc::AT_FDCWD => Ok(Object::Descriptor(from)),
        path => Ok(path),
    }
}

/// An argument that the kernel takes as an `unsigned int`.
#[expect(clippy::cast_possible_truncation, reason = "the kernel ignores the upper half as well")]
const fn low(argument: u64) -> u32 {
    argument as u32
}

/// An argument that the kernel takes as an `int`.
const fn int(argument: u64) -> i32 {
    low(argument).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CWD: u64 = 0xFFFF_FF9C; // -100 as an `int`, its upper half empty

    fn read(number: c_long, arguments: [u64; 6]) -> Result<Call, Errno> {
        Call::read(i32::try_from(number).unwrap(), &arguments)
    }

    fn change(object: Object, attribute: Attribute) -> Result<Call, Errno> {
        Ok(Call::Change(Change { object, attribute }))
    }

    #[test]
    fn the_upper_half_of_an_int_means_nothing() {
        let named = Object::Path { from: libc::AT_FDCWD, address: 7, follow: true, may_be_empty: false };
        for from in [CWD, u64::MAX - 99, 0xDEAD_BEEF_FFFF_FF9C] {
            let mode = Attribute::Mode(0o755);
            assert_eq!(read(libc::SYS_fchmodat, [from, 7, 0o755 | 1 << 40, 0, 0, 0]), change(named, mode));
        }
    }

    #[test]
    fn a_flag_that_the_call_does_not_have_is_refused() {
        for flags in [1, 0x200, 0x400, 0x1_0000_1101, AT_SYMLINK_NOFOLLOW | 2] {
            assert_eq!(read(FCHMODAT2, [CWD, 7, 0o755, flags, 0, 0]), Err(Errno::INVAL), "{flags:#x}");
            assert_eq!(read(libc::SYS_fchownat, [CWD, 7, 1, 1, flags, 0]), Err(Errno::INVAL), "{flags:#x}");
            assert_eq!(read(libc::SYS_utimensat, [CWD, 7, 0, flags, 0, 0]), Err(Errno::INVAL), "{flags:#x}");
        }
    }

    #[test]
    fn times_of_a_descriptor_are_those_without_a_path() {
        let times = Attribute::Times(Times::Nanoseconds(9));
        assert_eq!(read(libc::SYS_utimensat, [5, 0, 9, 0, 0, 0]), change(Object::Descriptor(5), times));
        let nowhere = Object::Path { from: libc::AT_FDCWD, address: 0, follow: true, may_be_empty: false };
        assert_eq!(read(libc::SYS_utimensat, [CWD, 0, 9, 0, 0, 0]), change(nowhere, times));
        // A pointer whose lower half is zero is a pointer.
        let high = Object::Path { from: 5, address: 1 << 32, follow: true, may_be_empty: false };
        assert_eq!(read(libc::SYS_utimensat, [5, 1 << 32, 9, 0, 0, 0]), change(high, times));
    }

    #[test]
    fn a_signal_goes_to_what_its_number_means() {
        let to = |number: i64| match read(libc::SYS_kill, [number.cast_unsigned(), 9, 0, 0, 0, 0]) {
            Ok(Call::Signal(receiver)) => receiver,
            other => panic!("{other:?}"),
        };
        assert_eq!(to(7), Receiver::Process(7));
        assert_eq!(to(0), Receiver::OwnGroup);
        assert_eq!(to(0x1_0000_0000), Receiver::OwnGroup);
        assert_eq!(to(-1), Receiver::Everyone);
        assert_eq!(to(0xFFFF_FFFF), Receiver::Everyone);
        assert_eq!(to(-7), Receiver::Group(7));
        assert_eq!(to(i64::from(i32::MIN)), Receiver::Group(i32::MAX));
        let thread = Ok(Call::Signal(Receiver::Process(7)));
        assert_eq!(read(libc::SYS_tgkill, [7, 8, 9, 0, 0, 0]), thread);
        assert_eq!(read(libc::SYS_fcntl, [3, 8, 7, 0, 0, 0]), thread);
        assert_eq!(read(libc::SYS_fcntl, [3, 15, 7, 0, 0, 0]), Err(Errno::PERM));
    }

    #[test]
    fn a_socket_is_named_with_its_address() {
        let peer = Peer { socket: 5, address: 1 << 40, length: 16 };
        assert_eq!(
            read(libc::SYS_connect, [5 | 7 << 32, 1 << 40, 16 | 9 << 32, 0, 0, 0]),
            Ok(Call::Connect(peer))
        );
        assert_eq!(read(libc::SYS_bind, [5 | 7 << 32, 1 << 40, 16 | 9 << 32, 0, 0, 0]), Ok(Call::Bind(peer)));
        assert_eq!(read(libc::SYS_listen, [5 | 7 << 32, 128, 0, 0, 0, 0]), Ok(Call::Listen(5, 128)));
    }

    #[test]
    fn a_handler_is_what_its_address_says() {
        assert_eq!(read(libc::SYS_rt_sigaction, [17, 1 << 40, 0, 8, 0, 0]), Ok(Call::Handler(1 << 40)));
    }

    #[test]
    fn a_file_is_opened_from_a_directory_with_flags_and_a_mode() {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let bits = u64::from(flags.bits());
        let opening = Opening { from: libc::AT_FDCWD, address: 7, flags, mode: 0o600 };
        assert_eq!(read(libc::SYS_openat, [CWD, 7, bits | 5 << 32, 0o600, 0, 0]), Ok(Call::Open(opening)));
        assert_eq!(read(libc::SYS_linkat, [CWD, 7, CWD, 9, 0, 0]), Ok(Call::Link(7, 9)));
        assert_eq!(read(libc::SYS_unlinkat, [CWD, 7, 0, 0, 0, 0]), Ok(Call::Unlink(7)));
    }

    #[test]
    fn a_call_that_no_filter_sends_does_not_exist() {
        assert_eq!(read(libc::SYS_renameat, [0; 6]), Err(Errno::NOSYS));
        assert_eq!(read(-1, [0; 6]), Err(Errno::NOSYS));
    }
}

//! Mount attributes and processes in namespaces of their own, which no safe crate offers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sched::CloneFlags;
use nix::unistd::Pid;

use super::check;

/// Start the new process in a control group (clone(2), Linux 5.7); not in every C library.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The operations that a mount forbids on files reached through it (`mount_setattr(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountAttributes(u64);

impl MountAttributes {
    /// Nothing is written through it.
    pub(crate) const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// Set-id bits have no effect.
    pub(crate) const NO_SETUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Devices cannot be opened.
    pub(crate) const NO_DEVICES: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// No program is executed from it, nor mapped as code.
    pub(crate) const NO_PROGRAMS: Self = Self(libc::MOUNT_ATTR_NOEXEC);

    /// Both together.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which mounts a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The mount alone.
    One,
    /// The mount and all that are below it.
    All,
}

/// Adds `attributes` to the mount `mount`, and cuts it off from mounts made elsewhere.
///
/// # Errors
/// As `mount_setattr(2)`: `EPERM` without `CAP_SYS_ADMIN`, `ENOSYS` before Linux 5.12.
pub(crate) fn restrict_mount(
    mount: BorrowedFd<'_>,
    extent: Extent,
    attributes: MountAttributes,
) -> io::Result<()> {
    let attr =
        libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    set_attributes(mount, extent, &attr)
}

/// Shows the files of the mount `mount` with the owners that `user_namespace` maps theirs to.
///
/// The mount must be detached and must not show other owners already.
///
/// # Errors
/// As `mount_setattr(2)`: `EINVAL` where the file system cannot do it.
pub(crate) fn map_owners(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?;
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd,
    };
    set_attributes(mount, Extent::One, &attr)
}

fn set_attributes(mount: BorrowedFd<'_>, extent: Extent, attr: &libc::mount_attr) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH
        | match extent {
            Extent::One => 0,
            Extent::All => libc::AT_RECURSIVE,
        };
    // SAFETY: the path is an empty string that ends with a NUL, `attr` lives through the call and its size is the
    // one passed; the kernel only reads.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Makes a second process like this one that lives in new `namespaces`, and in the control group `group` (of version 2)
/// if one is given; `None` in the new process.
///
/// # Errors
/// As `clone(2)`: `EPERM` without the privilege, `ENOSPC` at a limit on namespaces, `EAGAIN` at one on processes.
pub(crate) fn fork_into(namespaces: CloneFlags, group: Option<BorrowedFd<'_>>) -> io::Result<Option<Pid>> {
    if let Some(group) = group {
        return fork_into_group(namespaces, group);
    }
    let flags = namespaces.bits() | libc::SIGCHLD;
    // SAFETY: without `CLONE_VM` and without a stack the call is `fork(2)` (clone(2), "The raw system call"); the
    // launcher has one thread, so the child may allocate; the remaining arguments are unused with these flags, in any
    // order that an architecture gives them.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match i32::try_from(check(result)?).map_err(io::Error::other)? {
        0 => Ok(None),
        child => Ok(Some(Pid::from_raw(child))),
    }
}

/// As [`fork_into`], by the newer call, which alone takes a control group.
fn fork_into_group(namespaces: CloneFlags, group: BorrowedFd<'_>) -> io::Result<Option<Pid>> {
    let number = |value: i64| u64::try_from(value).map_err(io::Error::other);
    let arguments = libc::clone_args {
        flags: number(namespaces.bits().into())? | CLONE_INTO_CGROUP,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: number(libc::SIGCHLD.into())?,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: number(group.as_raw_fd().into())?,
    };
    // SAFETY: `arguments` is whole, lives through the call and its size is the one passed; without `CLONE_VM` and
    // without a stack the call is `fork(2)` (clone(2)), and the launcher has one thread, so the child may allocate.
    let result = unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&arguments), size_of::<libc::clone_args>())
    };
    match i32::try_from(check(result)?).map_err(io::Error::other)? {
        0 => Ok(None),
        child => Ok(Some(Pid::from_raw(child))),
    }
}

/// Brings up the loopback interface of the network namespace of this process.
///
/// # Errors
/// As `netdevice(7)`: `EPERM` without `CAP_NET_ADMIN`.
pub(crate) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).unwrap_or(0);
    }
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up } };
    // SAFETY: `request` is a whole `struct ifreq` that outlives the call; SIOCSIFFLAGS reads its name and flags.
    check(i64::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, std::ptr::from_ref(&request))
    }))
    .map(drop)
}

//! The numbers of system calls, flags and commands that the [policy](super::policy) is about, by what is done with them.

use libc::c_long;

/// The newest call known to this policy: `removexattrat`, Linux 6.13. Later ones do not exist for a run.
pub(super) const NEWEST: u32 = 466;

// The new mount API and its relatives share numbers on all architectures and are partly younger than the C library.
const OPEN_TREE: c_long = 428;
const MOVE_MOUNT: c_long = 429;
const FSOPEN: c_long = 430;
const FSCONFIG: c_long = 431;
const FSMOUNT: c_long = 432;
const FSPICK: c_long = 433;
const MOUNT_SETATTR: c_long = 442;
const QUOTACTL_FD: c_long = 443;
const MEMFD_SECRET: c_long = 447;
const PROCESS_MRELEASE: c_long = 448;
const SET_MEMPOLICY_HOME_NODE: c_long = 450;
pub(super) const FCHMODAT2: c_long = 452;
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const OPENAT2: c_long = 437;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;

/// Calls refused with `EPERM`, with any arguments.
#[rustfmt::skip]
pub(super) const REFUSED: &[c_long] = &[
    // Mounts, roots and namespaces.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_unshare,
    FSPICK, STATMOUNT, LISTMOUNT,
    // Other processes and their memory.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd, libc::SYS_kcmp,
    libc::SYS_process_madvise, PROCESS_MRELEASE, libc::SYS_migrate_pages, libc::SYS_move_pages, libc::SYS_mbind,
    SET_MEMPOLICY_HOME_NODE,
    // Wide kernel interfaces with a history.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_add_key, libc::SYS_request_key,
    libc::SYS_keyctl, libc::SYS_personality, MEMFD_SECRET,
    // Files by other means than a path under Landlock's eye.
    libc::SYS_open_by_handle_at, libc::SYS_fanotify_init, libc::SYS_fanotify_mark, libc::SYS_mknodat,
    // The machine.
    libc::SYS_quotactl, QUOTACTL_FD, libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module,
    libc::SYS_kexec_load, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_reboot, libc::SYS_acct, libc::SYS_syslog,
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_clock_adjtime, libc::SYS_adjtimex,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_vhangup,
    // Names shared with every process of the machine, which no directory confines.
    libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop,
    libc::SYS_semctl, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_msgctl,
    libc::SYS_mq_open, libc::SYS_mq_unlink,
];

/// Calls refused with `EPERM` too, but only by the closing stage where runs are mounted: their set-up needs them.
pub(super) const MOUNTING: &[c_long] =
    &[libc::SYS_setns, OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, MOUNT_SETATTR];

/// Calls of one architecture, refused with `EPERM`.
#[cfg(target_arch = "x86_64")]
pub(super) const REFUSED_HERE: &[c_long] = &[
    libc::SYS_mknod,
    libc::SYS_modify_ldt,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_kexec_file_load,
    libc::SYS_uselib,
];
#[cfg(target_arch = "aarch64")]
pub(super) const REFUSED_HERE: &[c_long] = &[294]; // kexec_file_load, which not every C library names

/// Calls that are said not to exist, so that programs take the older way, which the filter can read.
pub(super) const ABSENT: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register, // makes other calls past the filter
    OPENAT2,                     // its mode lies behind a pointer
];

/// Calls that are said not to exist where a run sees the host's directories: they tell of names that come and go in
/// any directory that permissions let be read, which Landlock does not mediate. Programs that wait for changes look
/// from time to time instead.
#[cfg(target_arch = "x86_64")]
pub(super) const WATCHING: &[c_long] = &[libc::SYS_inotify_init, libc::SYS_inotify_init1];
#[cfg(target_arch = "aarch64")]
pub(super) const WATCHING: &[c_long] = &[libc::SYS_inotify_init1];

/// Calls that are answered as a file system without extended attributes answers them. Landlock does not mediate them:
/// a run of the service's own uid could mark stored directories as opaque, which hides what lies below.
pub(super) const UNSUPPORTED: &[c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// `CLONE_NEW*` flags that `clone(2)` takes: cgroup, ipc, net, mount, pid, user, uts.
pub(super) const NEW_NAMESPACES: u32 = 0x0200_0000 // CLONE_NEWCGROUP
    | 0x0800_0000 // CLONE_NEWIPC
    | 0x4000_0000 // CLONE_NEWNET
    | 0x0002_0000 // CLONE_NEWNS
    | 0x2000_0000 // CLONE_NEWPID
    | 0x1000_0000 // CLONE_NEWUSER
    | 0x0400_0000; // CLONE_NEWUTS
pub(super) const SET_ID_BITS: u32 = 0o6000;
/// Flags of open(2) with which it takes a mode: `O_CREAT`, and `O_TMPFILE` without `O_DIRECTORY`.
pub(super) const CREATING_FLAGS: u32 = 0o100 | 0o20_000_000;
/// `O_ACCMODE` and `O_TRUNC` of open(2).
pub(super) const ACCESS_MODE: u32 = 0o3;
pub(super) const TRUNCATING: u32 = 0o1000;
pub(super) const MFD_NOEXEC_SEAL: u32 = 8;
pub(super) const RENAME_WHITEOUT: u32 = 4;
pub(super) const PRIO_USER: u32 = 2;
pub(super) const IOPRIO_WHO_USER: u32 = 3;
/// Terminal commands that type into or rewire someone else's terminal: TIOCSTI, TIOCLINUX, TIOCSETD.
pub(super) const TERMINAL_COMMANDS: [u32; 3] = [0x5412, 0x541C, 0x5423];
/// `TIOCSPGRP`, as tcsetpgrp(3) asks: another group gets the keys of the terminal.
pub(super) const FOREGROUND_COMMAND: u32 = 0x5410;
/// The kind and the number of a command of ioctl(2), without its direction and the size of its argument: commands of
/// 32-bit programs differ in the size alone (asm-generic/ioctl.h).
pub(super) const COMMAND_NUMBER: u32 = 0xFFFF;
/// Commands that change what a file or a directory is to the file system. By these a run could move its files to
/// another project, whose quota counts them, or leave behind a file that the service can neither fill nor remove.
pub(super) const FILE_COMMANDS: [u32; 9] = [
    0x6602, // FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS: flags, inheriting a project among them
    0x5820, // FS_IOC_FSSETXATTR: project and flags
    0x6613, // FS_IOC_SET_ENCRYPTION_POLICY
    0x6685, // FS_IOC_ENABLE_VERITY
    0x9401, // BTRFS_IOC_SNAP_CREATE
    0x940E, // BTRFS_IOC_SUBVOL_CREATE
    0x9417, // BTRFS_IOC_SNAP_CREATE_V2
    0x9418, // BTRFS_IOC_SUBVOL_CREATE_V2
    0x941A, // BTRFS_IOC_SUBVOL_SETFLAGS: a tree that cannot be removed
];

/// Calls that change the mode, the owner or the times of a file, which Landlock does not mediate.
#[rustfmt::skip]
pub(super) const ATTRIBUTES: &[c_long] = &[
    libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat,
];
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const ATTRIBUTES_HERE: &[c_long] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
];
#[cfg(target_arch = "aarch64")]
pub(super) const ATTRIBUTES_HERE: &[c_long] = &[];

/// Calls that make processes and threads, which the kernel counts for all runs together where they share a uid.
/// `clone3` is said not to exist.
#[cfg(target_arch = "x86_64")]
pub(super) const FORKS: &[c_long] = &[libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork];
#[cfg(target_arch = "aarch64")]
pub(super) const FORKS: &[c_long] = &[libc::SYS_clone];

/// The signal of a child's end, on all architectures of this program (signal(7)).
pub(super) const SIGCHLD: u32 = 17;

/// Calls that open a file, and which argument holds their flags.
#[cfg(target_arch = "x86_64")]
pub(super) const OPENING: &[(c_long, u32)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(target_arch = "aarch64")]
pub(super) const OPENING: &[(c_long, u32)] = &[(libc::SYS_openat, 2)];

/// Flags of open(2), and where a relative path of it begins when that is the working directory (`AT_FDCWD`).
pub(super) const O_RDWR: u32 = libc::O_RDWR as u32;
pub(super) const O_EXCL: u32 = libc::O_EXCL as u32;
pub(super) const O_CLOEXEC: u32 = libc::O_CLOEXEC as u32;
pub(super) const O_DIRECTORY: u32 = libc::O_DIRECTORY as u32;
/// What C libraries set of themselves, and the kernel too (linux/fcntl.h).
#[cfg(target_arch = "x86_64")]
pub(super) const O_LARGEFILE: u32 = 0o100_000;
#[cfg(target_arch = "aarch64")]
pub(super) const O_LARGEFILE: u32 = 0o400_000;
pub(super) const O_NONBLOCK: u32 = libc::O_NONBLOCK as u32;
pub(super) const O_NOFOLLOW: u32 = libc::O_NOFOLLOW as u32;
pub(super) const WORKING_DIRECTORY: u32 = libc::AT_FDCWD as u32;

/// Calls by which C libraries give a file a second name and take one away.
#[cfg(target_arch = "x86_64")]
pub(super) const NAMING: &[c_long] = &[libc::SYS_link, libc::SYS_unlink];
#[cfg(target_arch = "aarch64")]
pub(super) const NAMING: &[c_long] = &[];

/// Calls that send a signal to a process, a thread or a group by its number.
#[rustfmt::skip]
pub(super) const SIGNALS: &[c_long] = &[
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo,
];
/// Commands that set which process gets the signals of a descriptor: of fcntl(2), with a number and with a pointer to
/// one; of ioctl(2), with a pointer (FIOSETOWN, SIOCSPGRP).
pub(super) const F_SETOWN: u32 = 8;
pub(super) const F_SETOWN_EX: u32 = 15;
pub(super) const OWNER_COMMANDS: [u32; 2] = [0x8901, 0x8902];

pub(super) const AF_UNIX: u32 = 1;
pub(super) const AF_INET: u32 = 2;
pub(super) const AF_INET6: u32 = 10;
pub(super) const SOCK_STREAM: u32 = 1;
pub(super) const SOCK_DGRAM: u32 = 2;
pub(super) const SOCK_SEQPACKET: u32 = 5;
/// The kind within the second argument of `socket(2)`; the rest are flags (linux/net.h, SOCK_TYPE_MASK).
pub(super) const SOCK_KIND: u32 = 0xF;
pub(super) const IPPROTO_TCP: u32 = 6;
pub(super) const IPPROTO_UDP: u32 = 17;
/// Levels of options of sockets (setsockopt(2)).
pub(super) const SOL_SOCKET: u32 = 1;
pub(super) const IPPROTO_IP: u32 = 0;
pub(super) const IPPROTO_IPV6: u32 = 41;
/// The interface that a socket is held to: SO_BINDTODEVICE, SO_BINDTOIFINDEX (socket(7)).
pub(super) const DEVICE_OPTIONS: [u32; 2] = [25, 62];
/// The way that packets take (ip(7)).
pub(super) const IP_OPTIONS: u32 = 4;
/// The options from 32 to 63, of IPv4 and of IPv6: those of multicast groups and their sources among them (linux/in.h), and the
/// extension headers of IPv6 (linux/in6.h).
pub(super) const GROUP_OPTIONS: u32 = 32;
pub(super) const IPV6_ADD_MEMBERSHIP: u32 = 20;
/// Connect and send in one step (tcp(7), linux/socket.h).
pub(super) const MSG_FASTOPEN: u32 = 0x2000_0000;
/// The kind of a command of ioctl(2), and that of sockets: they tell of the host's interfaces and addresses
/// (netdevice(7)).
pub(super) const COMMAND_KIND: u32 = 0xFF00;
pub(super) const SOCKET_COMMANDS: u32 = 0x8900;

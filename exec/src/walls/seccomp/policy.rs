//! Which system calls a run is refused.
//!
//! Everything is allowed unless listed: the walls are Landlock, the uid and the limits, and this list closes what
//! they do not see. `ENOSYS` is answered where programs have a fallback for old kernels, `EPERM` elsewhere.

use libc::{EACCES, EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM, c_long};

use super::compile::{Action, Condition, Policy, Rule, Verdict};
use crate::wire::Sockets;

/// The newest call known to this policy: `removexattrat`, Linux 6.13. Later ones do not exist for a run.
const NEWEST: u32 = 466;

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
const FCHMODAT2: c_long = 452;
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const OPENAT2: c_long = 437;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;

/// Calls refused with `EPERM`, with any arguments.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
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
const MOUNTING: &[c_long] =
    &[libc::SYS_setns, OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, MOUNT_SETATTR];

/// Calls of one architecture, refused with `EPERM`.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_mknod,
    libc::SYS_modify_ldt,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_kexec_file_load,
    libc::SYS_uselib,
];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[c_long] = &[294]; // kexec_file_load, which not every C library names

/// Calls that are said not to exist, so that programs take the older way, which the filter can read.
const ABSENT: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register, // makes other calls past the filter
    OPENAT2,                     // its mode lies behind a pointer
];

/// Calls that are said not to exist where a run sees the host's directories: they tell of names that come and go in
/// any directory that permissions let be read, which Landlock does not mediate. Programs that wait for changes look
/// from time to time instead.
#[cfg(target_arch = "x86_64")]
const WATCHING: &[c_long] = &[libc::SYS_inotify_init, libc::SYS_inotify_init1];
#[cfg(target_arch = "aarch64")]
const WATCHING: &[c_long] = &[libc::SYS_inotify_init1];

/// Calls that are answered as a file system without extended attributes answers them. Landlock does not mediate them:
/// a run of the service's own uid could mark stored directories as opaque, which hides what lies below.
const UNSUPPORTED: &[c_long] = &[
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
const NEW_NAMESPACES: u32 = 0x0200_0000 // CLONE_NEWCGROUP
    | 0x0800_0000 // CLONE_NEWIPC
    | 0x4000_0000 // CLONE_NEWNET
    | 0x0002_0000 // CLONE_NEWNS
    | 0x2000_0000 // CLONE_NEWPID
    | 0x1000_0000 // CLONE_NEWUSER
    | 0x0400_0000; // CLONE_NEWUTS
const SET_ID_BITS: u32 = 0o6000;
/// Flags of open(2) with which it takes a mode: `O_CREAT`, and `O_TMPFILE` without `O_DIRECTORY`.
const CREATING_FLAGS: u32 = 0o100 | 0o20_000_000;
/// `O_ACCMODE` and `O_TRUNC` of open(2).
const ACCESS_MODE: u32 = 0o3;
const TRUNCATING: u32 = 0o1000;
const MFD_NOEXEC_SEAL: u32 = 8;
const RENAME_WHITEOUT: u32 = 4;
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;
/// Terminal commands that type into or rewire someone else's terminal: TIOCSTI, TIOCLINUX, TIOCSETD.
const TERMINAL_COMMANDS: [u32; 3] = [0x5412, 0x541C, 0x5423];
/// The kind and the number of a command of ioctl(2), without its direction and the size of its argument: commands of
/// 32-bit programs differ in the size alone (asm-generic/ioctl.h).
const COMMAND_NUMBER: u32 = 0xFFFF;
/// Commands that change what a file or a directory is to the file system. By these a run could move its files to
/// another project, whose quota counts them, or leave behind a file that the service can neither fill nor remove.
const FILE_COMMANDS: [u32; 9] = [
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
const ATTRIBUTES: &[c_long] = &[
    libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat,
];
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ATTRIBUTES_HERE: &[c_long] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
];
#[cfg(target_arch = "aarch64")]
const ATTRIBUTES_HERE: &[c_long] = &[];

/// Calls that make processes and threads, which the kernel counts for all runs together where they share a uid.
/// `clone3` is said not to exist.
#[cfg(target_arch = "x86_64")]
const FORKS: &[c_long] = &[libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork];
#[cfg(target_arch = "aarch64")]
const FORKS: &[c_long] = &[libc::SYS_clone];

/// The signal of a child's end, on all architectures of this program (signal(7)).
const SIGCHLD: u32 = 17;

/// Calls that open a file, and which argument holds their flags.
#[cfg(target_arch = "x86_64")]
const OPENING: &[(c_long, u32)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(target_arch = "aarch64")]
const OPENING: &[(c_long, u32)] = &[(libc::SYS_openat, 2)];

/// Calls that send a signal to a process, a thread or a group by its number.
#[rustfmt::skip]
const SIGNALS: &[c_long] = &[
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo,
];
/// Commands that set which process gets the signals of a descriptor: of fcntl(2), with a number and with a pointer to
/// one; of ioctl(2), with a pointer (FIOSETOWN, SIOCSPGRP).
const F_SETOWN: u32 = 8;
const F_SETOWN_EX: u32 = 15;
const OWNER_COMMANDS: [u32; 2] = [0x8901, 0x8902];

/// The filter's answer to calls that only a uid of the run's own would confine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedUid {
    /// The run has a uid of its own, or sees nothing of others.
    No,
    /// The [supervisor](crate::supervisor) answers them.
    Supervised {
        /// Whether the calls that send signals are among them, because Landlock does not stop signals here.
        signals: bool,
    },
    /// The calls that change attributes of files are refused, because there is no supervisor.
    Refused,
}

/// The view of the host that runs get, which decides what their filter must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surroundings {
    /// The host's own directories and processes, behind Landlock.
    Host,
    /// Namespaces of their own, in which everything they see was mounted for them.
    Namespaces,
}

/// The first stage: all that neither the launcher nor the set-up of a run needs.
pub(crate) fn opening(surroundings: Surroundings) -> Policy {
    let mut rules: Vec<Rule> = Vec::new();
    let mut refuse = |number: c_long, verdict: Verdict| {
        if let Ok(number) = u32::try_from(number) {
            rules.push(Rule { number, verdict });
        }
    };
    for number in REFUSED.iter().chain(REFUSED_HERE) {
        refuse(*number, Verdict::Always(Action::Errno(EPERM)));
    }
    for number in ABSENT {
        refuse(*number, Verdict::Always(Action::Errno(ENOSYS)));
    }
    if surroundings == Surroundings::Host {
        refuse(libc::SYS_clone3, Verdict::Always(Action::Errno(ENOSYS)));
        for number in MOUNTING {
            refuse(*number, Verdict::Always(Action::Errno(EPERM)));
        }
        for number in WATCHING {
            refuse(*number, Verdict::Always(Action::Errno(ENOSYS)));
        }
        refuse(libc::SYS_clone, new_namespaces());
    }
    for number in UNSUPPORTED {
        refuse(*number, Verdict::Always(Action::Errno(EOPNOTSUPP)));
    }
    // A set-id file in a shared directory outlives the run. open(2) makes one as well as chmod(2).
    refuse(libc::SYS_openat, creating_set_id(2));
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_open, creating_set_id(1));
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_creat, any_of([bits(1, SET_ID_BITS)]));
    refuse(libc::SYS_fchmod, any_of([bits(1, SET_ID_BITS)]));
    refuse(libc::SYS_fchmodat, any_of([bits(2, SET_ID_BITS)]));
    refuse(FCHMODAT2, any_of([bits(2, SET_ID_BITS)]));
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_chmod, any_of([bits(1, SET_ID_BITS)]));
    let terminal = TERMINAL_COMMANDS.map(|command| vec![is(1, command)]);
    let file = FILE_COMMANDS
        .map(|command| vec![Condition { argument: 1, mask: COMMAND_NUMBER, equal: true, value: command }]);
    let refused = terminal.into_iter().chain(file).collect();
    refuse(libc::SYS_ioctl, Verdict::When(refused, Action::Errno(EPERM)));
    // Landlock does not mediate these; a run of the service's own uid could starve the service with them.
    refuse(libc::SYS_prlimit64, any_of([is_not(0, 0)]));
    refuse(libc::SYS_setpriority, any_of([is_not(1, 0), is(0, PRIO_USER)]));
    refuse(libc::SYS_ioprio_set, any_of([is_not(1, 0), is(0, IOPRIO_WHO_USER)]));
    for number in [
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
    ] {
        refuse(number, any_of([is_not(0, 0)]));
    }
    // Memory files are outside Landlock: executable ones would be programs that no list names.
    refuse(libc::SYS_memfd_create, any_of([no_bits(1, MFD_NOEXEC_SEAL)]));
    // Forges the marker by which a layer says "deleted below".
    refuse(libc::SYS_renameat2, any_of([bits(4, RENAME_WHITEOUT)]));
    Policy { rules, newest: NEWEST, unknown: Action::Errno(ENOSYS) }
}

/// Refuses all files in memory, where code is to come from nothing that a run can write to.
pub(crate) fn refuse_memory_files(policy: &mut Policy) {
    let number = u32::try_from(libc::SYS_memfd_create);
    for rule in policy.rules.iter_mut().filter(|rule| Ok(rule.number) == number) {
        rule.verdict = Verdict::Always(Action::Errno(EPERM));
    }
}

/// Refuses to shorten files by their names, for kernels whose Landlock does not mediate it (before Linux 6.2): a run could
/// empty what it may not write to. A file that is open for writing is shortened as ever.
pub(crate) fn refuse_truncating(policy: &mut Policy) {
    policy.rules.extend(rule(libc::SYS_truncate, Verdict::Always(Action::Errno(EPERM))));
    // To read and to truncate is no contradiction for open(2), which Landlock takes for reading.
    for (number, flags) in OPENING {
        let number = u32::try_from(*number);
        for rule in policy.rules.iter_mut().filter(|rule| Ok(rule.number) == number) {
            if let Verdict::When(refused, _) = &mut rule.verdict {
                refused.push(vec![no_bits(*flags, ACCESS_MODE), bits(*flags, TRUNCATING)]);
            }
        }
    }
}

/// Allows `unshare(2)`.
pub(crate) fn allow_unshare(policy: &mut Policy) {
    let number = u32::try_from(libc::SYS_unshare);
    policy.rules.retain(|rule| Ok(rule.number) != number);
}

/// The closing stage: what the set-up of a run itself still calls, and what differs between runs.
pub(crate) fn closing(sockets: Sockets, surroundings: Surroundings, shared: SharedUid) -> Policy {
    let mut pairs = vec![vec![is_not(0, AF_UNIX)]];
    if surroundings == Surroundings::Host {
        // An end of a pair of datagram sockets sends to any socket that has a path (unix(7)), which Landlock does not mediate.
        // SOCK_RAW, which has this bit too, is another word for them; streams and sequenced packets have not.
        pairs.push(vec![bits(1, SOCK_DGRAM)]);
    }
    let mut rules = vec![rule(libc::SYS_socketpair, Verdict::When(pairs, Action::Errno(EAFNOSUPPORT)))];
    match surroundings {
        // Pretended, so that daemons believe they left while the group that is killed still holds them.
        Surroundings::Host => {
            let pretend = Verdict::Always(Action::Errno(0));
            rules.extend([rule(libc::SYS_setsid, pretend.clone()), rule(libc::SYS_setpgid, pretend)]);
        }
        Surroundings::Namespaces => {
            let refused = Verdict::Always(Action::Errno(EPERM));
            rules.extend(MOUNTING.iter().map(|number| rule(*number, refused.clone())));
            rules.push(rule(libc::SYS_clone, new_namespaces()));
            // The launcher starts runs with it; its flags lie behind a pointer.
            rules.push(rule(libc::SYS_clone3, Verdict::Always(Action::Errno(ENOSYS))));
        }
    }
    let attributes = match shared {
        SharedUid::No => None,
        SharedUid::Supervised { .. } => Some(Action::Notify),
        SharedUid::Refused => Some(Action::Errno(EPERM)),
    };
    if let Some(action) = attributes {
        let calls = ATTRIBUTES.iter().chain(ATTRIBUTES_HERE);
        rules.extend(calls.map(|number| rule(*number, Verdict::Always(action))));
    }
    // Commands of ioctl(2); a call has one rule.
    let mut device_commands: Vec<Vec<Condition>> = Vec::new();
    if let SharedUid::Supervised { signals } = shared {
        // The first stage has refused those that make namespaces, which weighs more (seccomp(2)).
        rules.extend(FORKS.iter().map(|number| rule(*number, Verdict::Always(Action::Notify))));
        // A handler without SA_RESTART would have a waiting `fork` fail.
        let of_children = Verdict::When(vec![vec![is(0, SIGCHLD)]], Action::Notify);
        rules.push(rule(libc::SYS_rt_sigaction, of_children));
        if signals {
            rules.extend(signalling());
            device_commands.extend(OWNER_COMMANDS.map(|command| vec![is(1, command)]));
        }
    }
    rules.push(rule(
        libc::SYS_socket,
        match sockets {
            Sockets::Refused => Verdict::Always(Action::Errno(EAFNOSUPPORT)),
            Sockets::OwnNetwork => of_families(&[AF_INET, AF_INET6, AF_UNIX]),
            Sockets::ProxyOnly => tcp_over_ipv4(),
            // Abstract names of UNIX sockets belong to a network: a run could take one that programs of the host trust.
            Sockets::HostNetwork => of_families(&[AF_INET, AF_INET6]),
        },
    ));
    if sockets == Sockets::ProxyOnly {
        rules.extend(connecting());
        let of_sockets = Condition { argument: 1, mask: COMMAND_KIND, equal: true, value: SOCKET_COMMANDS };
        device_commands.push(vec![of_sockets]);
    }
    if !device_commands.is_empty() {
        rules.push(rule(libc::SYS_ioctl, Verdict::When(device_commands, Action::Errno(EPERM))));
    }
    Policy { rules: rules.into_iter().flatten().collect(), newest: u32::MAX - 1, unknown: Action::Allow }
}

/// Lets every call that sends a signal to a number wait for its answer, and refuses those that name the receiver
/// otherwise: behind a pointer, or by a descriptor, in whose place programs use the number.
fn signalling() -> impl Iterator<Item = Option<Rule>> {
    let asked = SIGNALS.iter().map(|number| rule(*number, Verdict::Always(Action::Notify)));
    asked.chain([
        rule(libc::SYS_pidfd_send_signal, Verdict::Always(Action::Errno(ENOSYS))),
        rule(
            libc::SYS_fcntl,
            Verdict::When(vec![vec![is(1, F_SETOWN)], vec![is(1, F_SETOWN_EX)]], Action::Notify),
        ),
    ])
}

/// Lets connecting wait for its answer, and refuses every other way by which a TCP socket gets a peer: to listen, which
/// takes a port of the host by itself, and to send data with the first packet (`MSG_FASTOPEN`).
fn connecting() -> impl Iterator<Item = Option<Rule>> {
    let refused = || Verdict::Always(Action::Errno(EACCES));
    let at_once = |flags| Verdict::When(vec![vec![bits(flags, MSG_FASTOPEN)]], Action::Errno(EOPNOTSUPP));
    [
        rule(libc::SYS_connect, Verdict::Always(Action::Notify)),
        rule(libc::SYS_bind, refused()),
        rule(libc::SYS_listen, refused()),
        rule(libc::SYS_sendto, at_once(3)),
        rule(libc::SYS_sendmsg, at_once(2)),
        rule(libc::SYS_sendmmsg, at_once(3)),
    ]
    .into_iter()
}

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_SEQPACKET: u32 = 5;
/// The kind within the second argument of `socket(2)`; the rest are flags (linux/net.h, SOCK_TYPE_MASK).
const SOCK_KIND: u32 = 0xF;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
/// Connect and send in one step (tcp(7), linux/socket.h).
const MSG_FASTOPEN: u32 = 0x2000_0000;
/// The kind of a command of ioctl(2), and that of sockets: they tell of the host's interfaces and addresses
/// (netdevice(7)).
const COMMAND_KIND: u32 = 0xFF00;
const SOCKET_COMMANDS: u32 = 0x8900;

/// Refuses every socket but those of TCP over IPv4.
fn tcp_over_ipv4() -> Verdict {
    let refused = vec![
        vec![is_not(0, AF_INET)],
        vec![kind_is_not(SOCK_STREAM)],
        vec![is_not(2, 0), is_not(2, IPPROTO_TCP)],
    ];
    Verdict::When(refused, Action::Errno(EAFNOSUPPORT))
}

/// Refuses every socket but streams, datagrams and sequenced packets of UNIX where that is among `families`, and TCP and
/// UDP over the others.
fn of_families(families: &[u32]) -> Verdict {
    let others = families.iter().map(|family| is_not(0, *family)).collect();
    let kinds = vec![kind_is_not(SOCK_STREAM), kind_is_not(SOCK_DGRAM), kind_is_not(SOCK_SEQPACKET)];
    let internet_kinds = vec![is_not(0, AF_UNIX), kind_is_not(SOCK_STREAM), kind_is_not(SOCK_DGRAM)];
    let protocols = vec![is_not(0, AF_UNIX), is_not(2, 0), is_not(2, IPPROTO_TCP), is_not(2, IPPROTO_UDP)];
    Verdict::When(vec![others, kinds, internet_kinds, protocols], Action::Errno(EAFNOSUPPORT))
}

fn rule(number: c_long, verdict: Verdict) -> Option<Rule> {
    u32::try_from(number).ok().map(|number| Rule { number, verdict })
}

fn any_of<const N: usize>(conditions: [Condition; N]) -> Verdict {
    Verdict::When(conditions.into_iter().map(|condition| vec![condition]).collect(), Action::Errno(EPERM))
}

/// Refuses an opening call, whose flags are `flags` and whose mode comes next, when it would make a set-id file.
fn creating_set_id(flags: u32) -> Verdict {
    Verdict::When(vec![vec![bits(flags, CREATING_FLAGS), bits(flags + 1, SET_ID_BITS)]], Action::Errno(EPERM))
}

/// Refuses to make namespaces.
fn new_namespaces() -> Verdict {
    any_of([bits(0, NEW_NAMESPACES)])
}

fn is(argument: u32, value: u32) -> Condition {
    Condition { argument, mask: u32::MAX, equal: true, value }
}

fn is_not(argument: u32, value: u32) -> Condition {
    Condition { argument, mask: u32::MAX, equal: false, value }
}

fn kind_is_not(value: u32) -> Condition {
    Condition { argument: 1, mask: SOCK_KIND, equal: false, value }
}

fn bits(argument: u32, mask: u32) -> Condition {
    Condition { argument, mask, equal: false, value: 0 }
}

fn no_bits(argument: u32, mask: u32) -> Condition {
    Condition { argument, mask, equal: true, value: 0 }
}

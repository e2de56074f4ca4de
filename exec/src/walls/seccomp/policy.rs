//! Which system calls a run is refused.
//!
//! Everything is allowed unless listed: the walls are Landlock, the uid and the limits, and this list closes what
//! they do not see. `ENOSYS` is answered where programs have a fallback for old kernels, `EPERM` elsewhere.

use libc::{EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM, c_long};

use super::calls::{
    ABSENT, ACCESS_MODE, AF_INET, AF_INET6, AF_UNIX, ATTRIBUTES, ATTRIBUTES_HERE, COMMAND_KIND,
    COMMAND_NUMBER, CREATING_FLAGS, DEVICE_OPTIONS, F_SETOWN, F_SETOWN_EX, FCHMODAT2, FILE_COMMANDS,
    FOREGROUND_COMMAND, FORKS, GROUP_OPTIONS, IOPRIO_WHO_USER, IP_OPTIONS, IPPROTO_IP, IPPROTO_IPV6,
    IPPROTO_TCP, IPPROTO_UDP, IPV6_ADD_MEMBERSHIP, MFD_NOEXEC_SEAL, MOUNTING, MSG_FASTOPEN, NAMING,
    NEW_NAMESPACES, NEWEST, O_CLOEXEC, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOFOLLOW, O_NONBLOCK, O_RDWR,
    OPENING, OWNER_COMMANDS, PRIO_USER, REFUSED, REFUSED_HERE, RENAME_WHITEOUT, SET_ID_BITS, SIGCHLD,
    SIGNALS, SOCK_DGRAM, SOCK_KIND, SOCK_SEQPACKET, SOCK_STREAM, SOCKET_COMMANDS, SOL_SOCKET,
    TERMINAL_COMMANDS, TRUNCATING, UNSUPPORTED, WATCHING, WORKING_DIRECTORY,
};
use super::compile::{Action, Condition, Policy, Rule, Verdict};
use crate::sys;
use crate::wire::Sockets;

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
    // Not `sched_setaffinity(2)`: the launcher places commands with it, and the closing stage refuses it to them.
    for number in [libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr] {
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
    policy.rules.retain(|rule| Ok(rule.number) != number);
    policy.rules.extend(rule(libc::SYS_memfd_create, Verdict::Always(Action::Errno(EPERM))));
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

/// Allows `sched_setattr(2)` and `setpriority(2)` for every thread.
pub(crate) fn allow_scheduling(policy: &mut Policy) {
    for number in [libc::SYS_sched_setattr, libc::SYS_setpriority] {
        let number = u32::try_from(number);
        policy.rules.retain(|rule| Ok(rule.number) != number);
    }
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
    // A command stays batch work, in slices of its own (see `zygote::ceilings`), or gives way to all others; and it does not take the
    // processor that it leaves to others.
    let refused = Verdict::Always(Action::Errno(EPERM));
    rules.push(rule(libc::SYS_sched_setattr, refused.clone()));
    rules.push(rule(libc::SYS_sched_setaffinity, refused.clone()));
    let policies = match sys::can_step_aside() {
        // With `SCHED_IDLE` it would get the processes of others on its processors (see `sys::go_last`).
        true => refused.clone(),
        false => any_of([is_not(1, libc::SCHED_IDLE.unsigned_abs())]),
    };
    rules.push(rule(libc::SYS_sched_setscheduler, policies));
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
            Sockets::Connected => streams(),
            Sockets::OwnNetwork => of_families(&[AF_INET, AF_INET6, AF_UNIX]),
            // Abstract names of UNIX sockets belong to a network: a run could take one that programs of the host trust.
            Sockets::HostNetwork => of_families(&[AF_INET, AF_INET6]),
        },
    ));
    if sockets.are_connected_by_service() {
        rules.extend(connecting());
    }
    let has_supervisor = sockets.are_connected_by_service() || matches!(shared, SharedUid::Supervised { .. });
    if surroundings == Surroundings::Host && has_supervisor {
        rules.extend(standing_for());
    }
    if surroundings == Surroundings::Host && sockets != Sockets::HostNetwork {
        // They tell of the host's interfaces, through a socket of any family.
        let of_sockets = Condition { argument: 1, mask: COMMAND_KIND, equal: true, value: SOCKET_COMMANDS };
        device_commands.push(vec![of_sockets]);
    }
    if surroundings == Surroundings::Host {
        // There is one group, as setpgid(2) is pretended: a shell that makes no other leaves it the keys of the terminal.
        device_commands.push(vec![is(1, FOREGROUND_COMMAND)]);
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

/// Lets every call wait for its answer that gives a socket a name or a peer: also listening, by which a TCP socket takes a
/// port of the host by itself. Refused is what would connect a TCP socket on the way: to send data with the first packet
/// (`MSG_FASTOPEN`); and the options that have the packets of a socket take another way, or take those of a group.
fn connecting() -> impl Iterator<Item = Option<Rule>> {
    let at_once = |flags| Verdict::When(vec![vec![bits(flags, MSG_FASTOPEN)]], Action::Errno(EOPNOTSUPP));
    [
        rule(libc::SYS_connect, Verdict::Always(Action::Notify)),
        rule(libc::SYS_bind, Verdict::Always(Action::Notify)),
        rule(libc::SYS_listen, Verdict::Always(Action::Notify)),
        rule(libc::SYS_sendto, at_once(3)),
        rule(libc::SYS_sendmsg, at_once(2)),
        rule(libc::SYS_sendmmsg, at_once(3)),
        rule(libc::SYS_setsockopt, Verdict::When(other_ways(), Action::Errno(EPERM))),
    ]
    .into_iter()
}

/// Lets those calls wait for their answer that may mean what stands for a part of the host: `/proc` of the run's own processes and
/// the files of `/dev/shm`. A filter does not see paths, so the flags have to tell: of directories (browsers, opendir(3)), of files
/// that are only read, and of those that `sem_open(3)` and `shm_open(3)` make. Programs that walk trees (fts(3)) begin at
/// directories that they have open, and do not wait; nor does one that makes a file or writes to it.
fn standing_for() -> Vec<Option<Rule>> {
    let mut rules = Vec::new();
    for (number, flags) in OPENING {
        let from = (*flags > 1).then(|| is(0, WORKING_DIRECTORY));
        let here = |conditions: &[Condition]| from.iter().chain(conditions).copied().collect::<Vec<_>>();
        let for_both = Condition { argument: *flags, mask: ACCESS_MODE, equal: true, value: O_RDWR };
        let clauses = vec![
            here(&[no_bits(*flags, !(O_LARGEFILE | O_CLOEXEC | O_NOFOLLOW))]),
            vec![bits(*flags, O_DIRECTORY), no_bits(*flags, O_NOFOLLOW | O_NONBLOCK)],
            here(&[bits(*flags, O_DIRECTORY), no_bits(*flags, O_NOFOLLOW)]),
            here(&[for_both, bits(*flags, O_EXCL | O_NOFOLLOW)]),
        ];
        rules.push(rule(*number, Verdict::When(clauses, Action::Notify)));
    }
    if NAMING.is_empty() {
        let names = vec![vec![is(0, WORKING_DIRECTORY), is(2, WORKING_DIRECTORY)]];
        rules.push(rule(libc::SYS_linkat, Verdict::When(names, Action::Notify)));
        let files = vec![vec![is(0, WORKING_DIRECTORY), is(2, 0)]];
        rules.push(rule(libc::SYS_unlinkat, Verdict::When(files, Action::Notify)));
    }
    rules.extend(NAMING.iter().map(|number| rule(*number, Verdict::Always(Action::Notify))));
    rules
}

/// The options of a socket that are refused. No program needs them for TCP over the loopback interface.
fn other_ways() -> Vec<Vec<Condition>> {
    let groups = Condition { argument: 2, mask: !(GROUP_OPTIONS - 1), equal: true, value: GROUP_OPTIONS };
    let devices = DEVICE_OPTIONS.map(|option| vec![is(1, SOL_SOCKET), is(2, option)]);
    let others = [
        vec![is(1, IPPROTO_IP), is(2, IP_OPTIONS)],
        vec![is(1, IPPROTO_IP), groups],
        vec![is(1, IPPROTO_IPV6), groups],
        vec![is(1, IPPROTO_IPV6), is(2, IPV6_ADD_MEMBERSHIP)],
    ];
    devices.into_iter().chain(others).collect()
}

/// Refuses every socket but streams of UNIX and of TCP. Datagrams and sequenced packets could be sent to any path and any
/// address, without a call that names it where a filter sees it.
fn streams() -> Verdict {
    let refused = vec![
        vec![is_not(0, AF_UNIX), is_not(0, AF_INET), is_not(0, AF_INET6)],
        vec![kind_is_not(SOCK_STREAM)],
        vec![is_not(0, AF_UNIX), is_not(2, 0), is_not(2, IPPROTO_TCP)],
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

//! System calls that lead out of the walls where Landlock has no word.
//!
//! * Sockets of files: the session bus, a container engine, an agent of keys do for a caller what they could not do themselves.
//!   Pairs of sockets are not meant: they lead to nothing but themselves.
//! * `io_uring`, which makes sockets without a system call.
//! * The keys that the kernel keeps for a user, and limits of other processes.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The second set of numbers on x86-64, where a kernel has it.
#[cfg(target_arch = "x86_64")]
const SETS: [i64; 2] = [0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const SETS: [i64; 1] = [0];

/// Refuses the calls from here on, for ever.
pub(super) fn enforce() -> Result<(), seccompiler::Error> {
    let refused = filter(libc::EPERM, &rules()?)?;
    let absent = filter(libc::ENOSYS, &[(libc::SYS_io_uring_setup, Vec::new())])?;
    seccompiler::apply_filter(&refused)?;
    seccompiler::apply_filter(&absent)
}

type Calls = Vec<(i64, Vec<SeccompRule>)>;

fn rules() -> Result<Calls, BackendError> {
    let argument = |number, length, operation, value| SeccompCondition::new(number, length, operation, value);
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let socket = SeccompRule::new(vec![argument(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, unix)?])?;
    let limits = SeccompRule::new(vec![
        argument(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?,
        argument(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?,
    ])?;
    Ok(vec![
        (libc::SYS_socket, vec![socket]),
        (libc::SYS_prlimit64, vec![limits]),
        (libc::SYS_keyctl, Vec::new()),
        (libc::SYS_add_key, Vec::new()),
        (libc::SYS_request_key, Vec::new()),
    ])
}

fn filter(errno: i32, calls: &[(i64, Vec<SeccompRule>)]) -> Result<BpfProgram, seccompiler::Error> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let numbered =
        SETS.iter().flat_map(|set| calls.iter().map(move |(number, rules)| (number | set, rules.clone())));
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(numbered.collect(), SeccompAction::Allow, action, architecture)?;
    Ok(BpfProgram::try_from(filter)?)
}

//! The compiled filter against another compiler's filter of the same rules, both run by an interpreter.

use std::collections::{BTreeMap, BTreeSet};

use libc::sock_filter;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::compile::{AUDIT_ARCH, Action, Condition, Policy, Verdict, program};
use super::policy::{SharedUid, Surroundings, closing, opening, refuse_truncating};
use crate::wire::Sockets;

/// A program: code, two jump distances and a constant for each instruction.
type Code = Vec<(u16, u8, u8, u32)>;

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

/// One system call as a filter sees it.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    arch: u32,
    arguments: [u64; 6],
}

impl Call {
    /// The word at `offset` of `struct seccomp_data` (linux/seccomp.h).
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            16.. => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            _ => unreachable!("no policy looks at the instruction pointer"),
        }
    }
}

/// Runs a classic BPF program; its result and how many instructions it took.
fn interpret(code: &[(u16, u8, u8, u32)], call: &Call) -> (u32, usize) {
    let (mut accumulator, mut at, mut steps) = (0_u32, 0_usize, 0);
    loop {
        let (operation, jt, jf, k) = code[at];
        at += 1;
        steps += 1;
        let jump = |taken: bool| usize::from(if taken { jt } else { jf });
        match operation {
            0x20 => accumulator = call.word(k),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x45 => at += jump(accumulator & k != 0),
            0x06 => return (k, steps),
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

fn ours(policy: &Policy) -> Code {
    program(policy).iter().map(|i: &sock_filter| (i.code, i.jt, i.jf, i.k)).collect()
}

/// The same policy through `seccompiler`, one filter for each action because it knows one action a filter.
fn theirs(policy: &Policy) -> Vec<(Action, Code)> {
    let mut by_action: Vec<(Action, BTreeMap<i64, Vec<SeccompRule>>)> = Vec::new();
    for rule in &policy.rules {
        let (action, rules) = match &rule.verdict {
            Verdict::Always(action) => (*action, Vec::new()),
            Verdict::When(clauses, action) => {
                (*action, clauses.iter().flat_map(|clause| spread(clause)).collect())
            }
        };
        let place = by_action.iter().position(|(known, _)| *known == action).unwrap_or_else(|| {
            by_action.push((action, BTreeMap::new()));
            by_action.len() - 1
        });
        by_action[place].1.insert(i64::from(rule.number), rules);
    }
    let arch = if cfg!(target_arch = "x86_64") { TargetArch::x86_64 } else { TargetArch::aarch64 };
    let compiled = by_action.into_iter().map(|(action, rules)| {
        let refused = match action {
            Action::Errno(errno) => SeccompAction::Errno(u32::try_from(errno).unwrap()),
            // The other compiler has no such action; which one it is, the caller knows.
            Action::Notify => SeccompAction::Trap,
            Action::Allow => panic!("a rule that allows is no rule"),
        };
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
        let code: seccompiler::BpfProgram = filter.try_into().unwrap();
        (action, code.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect())
    });
    compiled.collect()
}

/// One clause as rules of `seccompiler`, which cannot say "masked and different": each other value is a rule.
fn spread(clause: &[Condition]) -> Vec<SeccompRule> {
    let mut rules: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
    for condition in clause {
        let index = u8::try_from(condition.argument).unwrap();
        let masked = |mask: u32, value: u32| {
            let operator = SeccompCmpOp::MaskedEq(u64::from(mask));
            SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value)).unwrap()
        };
        let choices = match (condition.equal, condition.mask) {
            (true, mask) => vec![masked(mask, condition.value)],
            (false, u32::MAX) => {
                let value = u64::from(condition.value);
                vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value).unwrap()]
            }
            // Some bit of the mask differs.
            (false, mask) => (0..32)
                .map(|bit| 1_u32 << bit)
                .filter(|bit| mask & bit != 0)
                .map(|bit| masked(bit, !condition.value & bit))
                .collect(),
        };
        rules = rules
            .iter()
            .flat_map(|rule| choices.iter().map(|choice| [rule.clone(), vec![choice.clone()]].concat()))
            .collect();
    }
    rules.into_iter().map(|conditions| SeccompRule::new(conditions).unwrap()).collect()
}

/// Calls at and around everything that a policy mentions.
fn samples(policy: &Policy) -> Vec<Call> {
    let mut numbers: BTreeSet<u32> = (0..520).collect();
    numbers.extend([0x4000_0000, 0x4000_0027, u32::MAX - 1, u32::MAX]);
    let mut values: BTreeSet<u64> = (0..20).collect();
    values.extend([0x1_0000_0000, 0xFFFF_FFFF, u64::MAX, 262, 0o755, 0o4755, 0o6000, 0x10000, 0x1200011]);
    for rule in &policy.rules {
        if let Verdict::When(clauses, _) = &rule.verdict {
            for condition in clauses.iter().flatten() {
                let (mask, value) = (u64::from(condition.mask), u64::from(condition.value));
                values.extend([
                    value,
                    value + 1,
                    value.wrapping_sub(1),
                    mask,
                    !mask,
                    mask | 1 << 40,
                    value | 1 << 33,
                ]);
                values.extend((0..32).map(|bit| 1 << bit));
            }
        }
    }
    let mut calls = Vec::new();
    for number in numbers {
        for value in &values {
            for argument in 0..5 {
                let mut arguments = [0; 6];
                arguments[argument] = *value;
                calls.push(Call { number, arch: AUDIT_ARCH, arguments });
                // The family, kind and protocol of a socket are tested together.
                let mut socket = [2, 1, 6, 0, 0, 0];
                socket[argument] = *value;
                calls.push(Call { number, arch: AUDIT_ARCH, arguments: socket });
                // The flags and the mode of an opening call, which stand in either of two places, are tested together
                // too.
                for flags in [1, 2] {
                    let mut open = [0; 6];
                    (open[flags], open[flags + 1]) = (0o100, 0o4755);
                    open[argument] = *value;
                    calls.push(Call { number, arch: AUDIT_ARCH, arguments: open });
                }
            }
        }
    }
    calls
}

fn result_of(action: Action) -> u32 {
    match action {
        Action::Allow => ALLOW,
        Action::Errno(errno) => 0x0005_0000 | u32::try_from(errno).unwrap(),
        Action::Notify => 0x7FC0_0000,
    }
}

fn policies() -> Vec<Policy> {
    let both = [Surroundings::Host, Surroundings::Namespaces];
    let kinds = [
        (Surroundings::Host, SharedUid::No),
        (Surroundings::Host, SharedUid::Supervised { signals: false }),
        (Surroundings::Host, SharedUid::Supervised { signals: true }),
        (Surroundings::Host, SharedUid::Refused),
        (Surroundings::Namespaces, SharedUid::No),
    ];
    let closings = kinds.into_iter().flat_map(|(surroundings, shared)| {
        [Sockets::Refused, Sockets::Connected, Sockets::OwnNetwork, Sockets::HostNetwork]
            .map(|sockets| closing(sockets, surroundings, shared))
    });
    let mut old = opening(Surroundings::Host);
    refuse_truncating(&mut old);
    both.map(opening).into_iter().chain([old]).chain(closings).collect()
}

#[test]
fn what_the_first_stage_leaves_to_mounted_runs_the_second_refuses() {
    let stages = [
        opening(Surroundings::Namespaces),
        closing(Sockets::HostNetwork, Surroundings::Namespaces, SharedUid::No),
    ];
    let stages = stages.map(|stage| ours(&stage));
    let host = opening(Surroundings::Host);
    let host_code = ours(&host);
    for call in samples(&host) {
        let alone = interpret(&host_code, &call).0;
        let together = stages.iter().map(|stage| interpret(stage, &call).0).min();
        let watches = [253, 294].contains(&call.number);
        assert!(together == Some(alone) || alone == ALLOW || watches, "{call:?}");
    }
}

#[test]
fn where_landlock_does_not_know_truncating_the_filter_refuses_it_by_name() {
    let mut policy = opening(Surroundings::Host);
    refuse_truncating(&mut policy);
    let refuses = |number: i64, flags: i32| {
        let call = Call { number: number as u32, arch: AUDIT_ARCH, arguments: [0, 0, flags as u64, 0, 0, 0] };
        interpret(&ours(&policy), &call).0 != ALLOW
    };
    assert!(refuses(libc::SYS_truncate, 0));
    assert!(!refuses(libc::SYS_ftruncate, 0));
    assert!(refuses(libc::SYS_openat, libc::O_RDONLY | libc::O_TRUNC));
    assert!(!refuses(libc::SYS_openat, libc::O_WRONLY | libc::O_TRUNC));
    assert!(!refuses(libc::SYS_openat, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC));
    assert!(!refuses(libc::SYS_openat, libc::O_RDONLY));
}

#[test]
fn both_compilers_agree_on_every_call_that_a_policy_mentions() {
    for policy in policies() {
        let (ours, theirs) = (ours(&policy), theirs(&policy));
        for call in samples(&policy) {
            let expected = if call.number > policy.newest {
                result_of(policy.unknown)
            } else {
                let hit = theirs.iter().find(|(_, code)| interpret(code, &call).0 != ALLOW);
                result_of(hit.map_or(Action::Allow, |(action, _)| *action))
            };
            assert_eq!(interpret(&ours, &call).0, expected, "{call:?}");
        }
    }
}

#[test]
fn a_foreign_architecture_is_killed() {
    for arch in [0, 0x4000_0003, 0x4000_0028, AUDIT_ARCH + 1] {
        for policy in policies() {
            let call = Call { number: 39, arch, arguments: [0; 6] };
            assert_eq!(interpret(&ours(&policy), &call).0, KILL_PROCESS);
        }
    }
}

#[test]
fn an_ordinary_call_takes_few_instructions_and_the_closing_stage_is_short() {
    let code = ours(&opening(Surroundings::Host));
    let longest = (0..=466).map(|number| Call { number, arch: AUDIT_ARCH, arguments: [0; 6] });
    // A command of ioctl(2) is compared with each that is refused; no program makes many.
    let (controls, others): (Vec<_>, Vec<_>) =
        longest.partition(|call| i64::from(call.number) == libc::SYS_ioctl);
    let longest = |calls: Vec<Call>| calls.iter().map(|call| interpret(&code, call).1).max().unwrap();
    let (controls, others) = (longest(controls), longest(others));
    assert!(others <= 20 && controls <= 30, "{others}, {controls} of {}", code.len());
    assert!(code.len() < 360, "{}", code.len());
    for (sockets, surroundings, most) in [
        (Sockets::Refused, Surroundings::Host, 54),
        (Sockets::Refused, Surroundings::Namespaces, 55),
        (Sockets::OwnNetwork, Surroundings::Namespaces, 90),
        (Sockets::Connected, Surroundings::Host, 204),
    ] {
        let closing = ours(&closing(sockets, surroundings, SharedUid::No)).len();
        assert!(closing <= most, "{sockets:?} {surroundings:?}: {closing}");
    }
    for (sockets, most) in [(Sockets::Refused, 164), (Sockets::Connected, 248)] {
        let shared = SharedUid::Supervised { signals: false };
        let supervised = ours(&closing(sockets, Surroundings::Host, shared)).len();
        assert!(supervised <= most, "{sockets:?}: {supervised}");
    }
}

#[test]
fn of_the_calls_that_open_files_only_those_wait_that_may_mean_proc_and_dev_shm() {
    let shared = SharedUid::Supervised { signals: false };
    let waits = |policy: &Policy, number: i64, arguments: [u64; 6]| {
        let call = Call { number: number as u32, arch: AUDIT_ARCH, arguments };
        let (result, steps) = interpret(&ours(policy), &call);
        assert!(steps <= 33, "{number} {arguments:?}: {steps}");
        result == result_of(Action::Notify)
    };
    let here = u64::from(libc::AT_FDCWD.cast_unsigned());
    for (sockets, shared, asks) in [
        (Sockets::Connected, SharedUid::No, true),
        (Sockets::Refused, shared, true),
        (Sockets::HostNetwork, SharedUid::No, false),
        (Sockets::HostNetwork, SharedUid::Refused, false),
    ] {
        let policy = closing(sockets, Surroundings::Host, shared);
        for (from, flags, asked) in [
            // opendir(3), a browser, fts(3)
            (here, libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_DIRECTORY, true),
            (7, libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_DIRECTORY, false),
            (7, libc::O_DIRECTORY, true),
            (7, libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_DIRECTORY, false),
            // Python, fopen(3), also with the flag that musl sets; shm_open(3) to read
            (here, libc::O_CLOEXEC, true),
            (7, libc::O_CLOEXEC, false),
            (here, libc::O_RDONLY, true),
            (here, libc::O_NOFOLLOW | libc::O_CLOEXEC, true),
            (here, if cfg!(target_arch = "x86_64") { 0o100_000 } else { 0o400_000 }, true),
            (7, libc::O_RDONLY, false),
            (here, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, false),
            (here, libc::O_RDWR | libc::O_CREAT, false),
            // sem_open(3), shm_open(3), mkostemp(3) beside a directory
            (here, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, true),
            (here, libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC, true),
            (7, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, false),
        ] {
            let arguments = [from, 1, u64::from(flags.cast_unsigned()), 0, 0, 0];
            assert_eq!(waits(&policy, libc::SYS_openat, arguments), asked && asks, "{sockets:?} {flags:o}");
        }
        let names = if cfg!(target_arch = "x86_64") { (87, 263) } else { (35, 36) };
        assert_eq!(waits(&policy, names.0, [here, 1, 0, 0, 0, 0]), asks);
        assert!(!waits(&policy, names.1, [7, 1, 0, 0, 0, 0]));
    }
}

#[test]
fn no_number_has_two_rules() {
    for policy in policies() {
        let numbers: BTreeSet<u32> = policy.rules.iter().map(|rule| rule.number).collect();
        assert_eq!(numbers.len(), policy.rules.len());
    }
}

//! How the kernel shares the processors among threads: sched_setattr(2), which no crate wraps.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// `struct sched_attr` of `linux/sched/types.h` in its first version, which every kernel since 3.14 knows.
#[repr(C)]
struct Attributes {
    /// Bytes of this structure.
    size: u32,
    policy: u32,
    flags: u64,
    niceness: i32,
    priority: u32,
    /// For ordinary threads the slice, since Linux 6.12; earlier kernels pass over it.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Under which rules a thread gets the processors (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// As every thread by default.
    Ordinary,
    /// The same, but a thread that wakes up takes no processor from one that is at work.
    Batch,
    /// When no other thread wants the processor. A thread cannot take that back.
    Idle,
}

/// Sets how the thread `thread` (0: this one), and each that it makes from now on, shares the processors. A slice of zero is the
/// kernel's own.
///
/// # Errors
/// As `sched_setattr(2)`: `EPERM` for a smaller niceness without the right to it, for a thread of another user, and where a container's
/// filter refuses the call; `ESRCH` for a thread that has ended.
fn share_processors(thread: i32, sharing: Sharing, niceness: i32, slice: Duration) -> io::Result<()> {
    let attributes = Attributes {
        size: u32::try_from(size_of::<Attributes>()).unwrap_or(0),
        policy: match sharing {
            Sharing::Ordinary => libc::SCHED_OTHER.unsigned_abs(),
            Sharing::Batch => libc::SCHED_BATCH.unsigned_abs(),
            Sharing::Idle => libc::SCHED_IDLE.unsigned_abs(),
        },
        flags: 0,
        niceness,
        priority: 0,
        runtime_ns: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the kernel reads `size` bytes, those of `attributes`, and keeps no pointer to them.
    super::check(unsafe {
        libc::syscall(libc::SYS_sched_setattr, thread, std::ptr::from_ref(&attributes), 0)
    })
    .map(drop)
}

/// The slice of commands: no shorter than from one tick of the kernel's clock to the next (1 to 10 ms), because a thread that is at work is
/// looked at only then. With a shorter one, such as the kernel's own of 1.4 ms and more, each of many busy threads gets more than its
/// slice at a time, so that those that wait are behind, and with one that is behind the kernel goes on before it comes to a thread
/// that has just woken up, even where the former is to run when no other wants to (`pick_eevdf` in kernel/sched/fair.c). Not much
/// longer either: a thread may wait for its turn while it holds something in the kernel, such as a place in the journal of a file
/// system, for which others wait.
const COMMAND_SLICE: Duration = Duration::from_millis(10);
const GIVING_WAY_NICENESS: i32 = 19;
/// The slice of commands that have just begun: shorter than that of those which have been at work for a while, so that one which wakes
/// up gets their processor at once, and longer than a tick of most kernels (4 ms).
const FIRST_SLICE: Duration = Duration::from_millis(5);
/// How much such a command gives way to the service, and the others to it. The weight of a thread with a niceness of 5 is three times
/// that of one with 10 (sched(7)).
const FIRST_NICENESS: i32 = 5;

/// Lets this thread, and each that it makes from now on, share the processors as a command that has just begun. It cannot take that back
/// without privileges. Where the kernel refuses it, nothing changes.
///
/// Allocates nothing.
pub fn begin_as_command() {
    claim(0, Sharing::Ordinary, FIRST_NICENESS, FIRST_SLICE);
}

/// Lets the thread `thread` (0: this one), and each that it makes from now on, share the processors as a command that has been at work
/// for a while. A larger niceness stays.
///
/// Allocates nothing.
pub(crate) fn go_on_as_command(thread: i32) {
    let niceness = rustix::process::getpriority_process(rustix::process::Pid::from_raw(thread));
    claim(thread, Sharing::Batch, niceness.unwrap_or_default().max(LONG_NICENESS), COMMAND_SLICE);
}

/// The niceness alone where the kernel or a container refuses the rest.
fn claim(thread: i32, sharing: Sharing, niceness: i32, slice: Duration) {
    let _ = rustix::process::setpriority_process(rustix::process::Pid::from_raw(thread), niceness);
    let _ = share_processors(thread, sharing, niceness, slice);
}

/// Lets the thread `thread` (0: this one), and each that it makes from now on, have a processor when no other thread wants it.
///
/// # Errors
/// As [`share_processors`].
pub(crate) fn leave_processors_to_others(thread: i32) -> io::Result<()> {
    give_way_by_niceness(thread);
    share_processors(thread, Sharing::Idle, GIVING_WAY_NICENESS, Duration::ZERO)
}

/// First as batch work: with `SCHED_IDLE` the kernel takes neither a slice nor a niceness, and leaves both as they are. A thread that
/// has it already may be refused.
fn give_way_by_niceness(thread: i32) {
    let _ = share_processors(thread, Sharing::Batch, GIVING_WAY_NICENESS, COMMAND_SLICE);
}

/// The processors that the threads of commands may use.
struct Processors {
    all: CpuSet,
    /// Those of commands that step aside; `None` where there is one only, which all need.
    fewer: Option<CpuSet>,
}

static PROCESSORS: OnceLock<Processors> = OnceLock::new();

impl Processors {
    /// `all` are named for this process, of which control groups grant the time of `granted`.
    fn of(all: CpuSet, granted: usize) -> Self {
        let named: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number)).collect();
        let granted = granted.min(named.len());
        let fewer = (granted > 1).then(|| {
            let mut fewer = CpuSet::new();
            // The first one often has the host's own work to do.
            named.iter().rev().take(granted - 1).for_each(|number| fewer.set(*number));
            fewer
        });
        Self { all, fewer }
    }
}

/// Finds out which processors there are: once, before any function below is called in a process that must not allocate memory.
pub(crate) fn find_processors() {
    let _ = PROCESSORS.get_or_init(|| {
        let granted = std::thread::available_parallelism().map_or(1, usize::from);
        Processors::of(sched_getaffinity(None).unwrap_or_default(), granted)
    });
}

/// Those of commands that step aside.
fn fewer() -> Option<&'static CpuSet> {
    PROCESSORS.get()?.fewer.as_ref()
}

/// Tells whether there is more than one processor, so that commands that give way can leave one to others.
pub(crate) fn can_step_aside() -> bool {
    fewer().is_some()
}

/// Lets a thread of a command (0: this one), and each that it makes from now on, go behind all others. Where there is one processor
/// only, it has that when no other thread wants it. Elsewhere it can [step aside](step_aside) for others; and the kernel takes a
/// processor with nothing but `SCHED_IDLE` for one without work, on which it starts the processes of others, among hundreds.
pub(crate) fn go_last(thread: i32) {
    match fewer() {
        Some(_) => give_way_by_niceness(thread),
        None => drop(leave_processors_to_others(thread)),
    }
}

/// The same for all threads of the process group `group`, with the slices that they have, where [`go_last`] lowers niceness.
pub(crate) fn go_last_as_group(group: i32) {
    if fewer().is_some() {
        let _ = rustix::process::setpriority_pgrp(rustix::process::Pid::from_raw(group), GIVING_WAY_NICENESS);
    }
}

/// The same for this thread behind its closing filter, with the slices that it has: the filter cannot read what `sched_setattr(2)` is
/// to set.
///
/// A system call and not the function of the C library, which musl has without its work.
pub(crate) fn go_last_behind_filter() {
    let _ = rustix::process::setpriority_process(None, GIVING_WAY_NICENESS);
    if fewer().is_some() {
        return;
    }
    let priority = libc::c_int::default();
    // SAFETY: `struct sched_param` is this one number, which the kernel reads; it keeps no pointer to it.
    let _ = super::check(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, std::ptr::from_ref(&priority))
    });
}

/// Leaves one processor to others: a thread of a command (0: this one), and each that it makes from now on. However many there are,
/// what others begin there finds no queue, whatever of the kernel's work is done for them elsewhere, and however it shares out
/// processors (by session, for instance). Where there is one processor only, or the kernel refuses it, nothing changes.
pub(crate) fn step_aside(thread: i32) {
    if let Some(fewer) = fewer() {
        let _ = sched_setaffinity(rustix::process::Pid::from_raw(thread), fewer);
    }
}

/// Lets this thread, and each that it makes until that [steps back](step_back), use the processor only that is left to others.
pub(crate) fn take_spare_processor() {
    if let Some(Processors { all, fewer: Some(fewer) }) = PROCESSORS.get() {
        let mut spare = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|number| all.is_set(*number) && !fewer.is_set(*number))
            .for_each(|number| spare.set(number));
        let _ = sched_setaffinity(None, &spare);
    }
}

/// Lets a thread (0: this one), and each that it makes from now on, use all processors again.
pub(crate) fn step_back(thread: i32) {
    if let Some(processors) = PROCESSORS.get() {
        let _ = sched_setaffinity(rustix::process::Pid::from_raw(thread), &processors.all);
    }
}

/// Calls `make` while this thread may use the processors only that the process `pid` may: what it makes begins there, and stays.
pub(crate) fn on_processors_of<T>(pid: i32, make: impl FnOnce() -> T) -> T {
    let own = sched_getaffinity(None);
    let (Ok(own), Ok(its)) = (own, sched_getaffinity(rustix::process::Pid::from_raw(pid))) else {
        return make();
    };
    if its == own {
        return make();
    }
    let _ = sched_setaffinity(None, &its);
    let made = make();
    let _ = sched_setaffinity(None, &own);
    made
}

/// The slice of the service's threads: the shortest that the kernel gives.
const SHORT: Duration = Duration::from_micros(100);

/// How much a thread gives way that works for long: as much as a command.
const LONG_NICENESS: i32 = 10;

/// Lets this thread, and each that it makes from now on, give way to the service's other threads as commands do. It cannot take that
/// back without privileges, so it is for threads that end with their work. Where the kernel refuses it, nothing changes.
pub fn work_for_long() {
    let _ = share_processors(0, Sharing::Batch, LONG_NICENESS, Duration::ZERO);
}

/// Lets this thread, and each that it makes from now on, take a processor from threads with longer slices as soon as it has work:
/// the service does little at a time, and its callers should not wait for the slices of commands. Since Linux 6.12; before,
/// and where the kernel refuses it, nothing changes.
pub fn take_short_slices() {
    let Ok(niceness) = rustix::process::getpriority_process(None) else { return };
    let _ = share_processors(0, Sharing::Ordinary, niceness, SHORT);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy, niceness and slice of this thread; a slice of zero before Linux 6.12.
    fn own() -> (u32, i32, Duration) {
        // SAFETY: numbers only, for which zero is a value.
        let mut attributes: Attributes = unsafe { std::mem::zeroed() };
        let size = size_of::<Attributes>();
        // SAFETY: the kernel writes at most `size` bytes to `attributes`, and keeps no pointer to it.
        super::super::check(unsafe {
            libc::syscall(libc::SYS_sched_getattr, 0, std::ptr::from_mut(&mut attributes), size, 0)
        })
        .unwrap();
        (attributes.policy, attributes.niceness, Duration::from_nanos(attributes.runtime_ns))
    }

    #[test]
    fn one_processor_is_left_of_those_that_control_groups_grant() {
        let set = |numbers: &[usize]| {
            let mut set = CpuSet::new();
            numbers.iter().for_each(|number| set.set(*number));
            set
        };
        let fewer = |all: &[usize], granted| Processors::of(set(all), granted).fewer;
        assert_eq!(fewer(&[3], 1), None);
        assert_eq!(fewer(&[0, 1, 2, 3], 1), None);
        assert_eq!(fewer(&[2, 5], 2), Some(set(&[5])));
        assert_eq!(fewer(&[0, 1, 2, 3], 4), Some(set(&[1, 2, 3])));
        assert_eq!(fewer(&[0, 1, 2, 3], 2), Some(set(&[3])));
        assert_eq!(fewer(&[0, 1], 9), Some(set(&[1])));
    }

    #[test]
    fn a_thread_that_gives_way_has_the_slices_of_a_command() {
        let lowered = std::thread::spawn(|| {
            take_short_slices();
            leave_processors_to_others(0).unwrap();
            let first = own();
            // Once more, when it cannot go back.
            leave_processors_to_others(0).unwrap();
            assert_eq!(own(), first);
            first
        });
        let (policy, niceness, slice) = lowered.join().unwrap();
        assert_eq!((policy, niceness), (libc::SCHED_IDLE.unsigned_abs(), GIVING_WAY_NICENESS));
        assert!(slice == COMMAND_SLICE || slice.is_zero(), "{slice:?}");
    }
}

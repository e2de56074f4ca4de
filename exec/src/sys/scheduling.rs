//! How the kernel shares the processors among threads: sched_setattr(2), which no crate wraps.

use std::io;
use std::time::Duration;

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
pub(crate) enum Sharing {
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
pub(crate) fn share_processors(
    thread: i32,
    sharing: Sharing,
    niceness: i32,
    slice: Duration,
) -> io::Result<()> {
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
pub(crate) const COMMAND_SLICE: Duration = Duration::from_millis(10);
const GIVING_WAY_NICENESS: i32 = 19;

/// Lets the thread `thread` (0: this one), and each that it makes from now on, have a processor when no other thread wants it.
///
/// # Errors
/// As [`share_processors`].
pub(crate) fn leave_processors_to_others(thread: i32) -> io::Result<()> {
    // First as batch work: with `SCHED_IDLE` the kernel takes neither a slice nor a niceness, and leaves both as they are. A thread that
    // has it already may be refused.
    let _ = share_processors(thread, Sharing::Batch, GIVING_WAY_NICENESS, COMMAND_SLICE);
    share_processors(thread, Sharing::Idle, GIVING_WAY_NICENESS, Duration::ZERO)
}

/// The same for this thread behind its closing filter, with the slices that it has: the filter cannot read what `sched_setattr(2)` is
/// to set.
///
/// A system call and not the function of the C library, which musl has without its work.
///
/// # Errors
/// As `sched_setscheduler(2)`.
pub(crate) fn leave_processors_behind_filter() -> io::Result<()> {
    let priority = libc::c_int::default();
    // SAFETY: `struct sched_param` is this one number, which the kernel reads; it keeps no pointer to it.
    super::check(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, std::ptr::from_ref(&priority))
    })
    .map(drop)
}

/// The slice of the service's threads: the shortest that the kernel gives.
const SHORT: Duration = Duration::from_micros(100);

/// How much a thread gives way that works for long: as much as a command.
pub(crate) const LONG_NICENESS: i32 = 10;

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

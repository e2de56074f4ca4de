//! The processes of one run, found by descent, the memory they have, and how many of them want a processor.
//!
//! # References
//! `proc_pid_task(5)` (`children`), `proc_pid_statm(5)`, `proc_pid_stat(5)`; Documentation/ABI/testing/
//! procfs-smaps_rollup of Linux.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat};
use rustix::thread::CapabilitySet;

use crate::census::{field, group_in};

/// Most processes of one run that are looked at; the default limit on processes is far below.
const PROCESSES_MAX: usize = 8_192;
/// How many processes are looked at to find out whether a run has many busy ones, at the least.
const LOOKS: usize = 16;
/// Most bytes read of one file of `/proc`.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The largest niceness, in the 19th field of `stat`.
const LAST: &str = "19";
/// `SCHED_OTHER`, in the 41st field of `stat`.
const ORDINARY: &str = "0";

/// The `/proc` of the process namespace that the launcher lives in.
#[derive(Debug)]
pub(super) struct Proc {
    directory: OwnedFd,
    page_bytes: u64,
}

impl AsRawFd for Proc {
    fn as_raw_fd(&self) -> RawFd {
        self.directory.as_raw_fd()
    }
}

/// How many threads want a processor at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanting {
    pub(super) all: usize,
    /// Of these, those that do not go behind all others.
    pub(super) usual: usize,
    /// Of these, those that share the processors as a command that has just begun.
    pub(super) fresh: usize,
}

/// A process that may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) written: Written,
}

/// How much a process has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// So many bytes to a disk, it and the children that it has collected.
    Bytes(u64),
    /// That is not shown to its own uid.
    Hidden {
        /// Whether it is doing anything.
        is_at_work: bool,
        /// Whether it hides that itself (`PR_SET_DUMPABLE`), as far as can be told: not of a process with the uid 0.
        is_by_will: bool,
    },
}

/// How a run's processes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// The first process; also the leader of the group.
    pub(super) first: i32,
    /// The process that adopts orphans of the group, where the first one does not.
    pub(super) guardian: Option<i32>,
    /// The uid of orphans that may have left the group; `None` where none can.
    pub(super) runaways: Option<u32>,
}

impl Proc {
    /// Opens `/proc` and makes sure that it tells of children.
    ///
    /// # Errors
    /// As `open(2)`: `ENOENT` where the kernel was built without `CONFIG_PROC_CHILDREN`.
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open("/proc", flags, Mode::empty())?;
        let this = Self { directory, page_bytes: rustix::param::page_size() as u64 };
        let own = std::process::id();
        this.text(&format!("{own}/task/{own}/children"))?;
        Ok(this)
    }

    /// The processes of `family` at this moment, each once. One that is being forked may be missing.
    pub(super) fn members(&self, family: &Family) -> Vec<i32> {
        let mut found = vec![family.first];
        if let Some(guardian) = family.guardian {
            let orphans = self.children(guardian).into_iter().filter(|child| self.is_of(*child, family));
            found.extend(orphans);
        }
        let mut seen: HashSet<i32> = found.iter().copied().collect();
        let mut next = 0;
        while let Some(pid) = found.get(next).copied().filter(|_| found.len() < PROCESSES_MAX) {
            next += 1;
            found.extend(self.children(pid).into_iter().filter(|child| seen.insert(*child)));
        }
        found
    }

    /// The memory that the processes have between them, in bytes, each page counted for every one that has it.
    pub(super) fn resident(&self, members: &[i32]) -> u64 {
        members.iter().filter_map(|pid| self.resident_of(*pid)).sum()
    }

    /// The same, each page shared out among those that have it, read as the uid `identity`, which may look.
    ///
    /// A process that hides this from its own uid counts as in [`Proc::resident`]. The kernel visits every page.
    pub(super) fn proportional(&self, members: &[i32], identity: Option<u32>) -> u64 {
        let of = |pid: i32| self.proportional_of(pid).or_else(|| self.resident_of(pid));
        reading_as(identity, || members.iter().filter_map(|pid| of(*pid)).sum())
    }

    /// What these processes have written at this moment, without those that are gone, read as the uid `identity`, which may look.
    pub(super) fn writers(&self, members: &[i32], identity: Option<u32>) -> Vec<Writer> {
        let of = |pid: i32| {
            let (parent, _) = self.parent_and_state(pid)?;
            let written = match self.text(&format!("{pid}/io")) {
                Ok(text) => Written::Bytes(number_after("write_bytes:", &text).unwrap_or(0)),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Written::Hidden { is_at_work: self.is_at_work(pid), is_by_will: self.is_hiding(pid) }
                }
                // Gone; or the kernel keeps no such accounts.
                Err(_) => Written::Bytes(0),
            };
            Some(Writer { pid, parent, written })
        };
        reading_as(identity, || members.iter().filter_map(|pid| of(*pid)).collect())
    }

    /// The parent of a process, and its state, the third field of `stat`; `None` when it is gone.
    pub(super) fn parent_and_state(&self, pid: i32) -> Option<(i32, char)> {
        let stat = self.text(&format!("{pid}/stat")).ok()?;
        Some((field(&stat, 4)?.parse().ok()?, field(&stat, 3)?.chars().next()?))
    }

    /// Tells whether a process hides its figures by its own will: then these belong to another user than the process itself
    /// (proc(5), `/proc/pid`).
    fn is_hiding(&self, pid: i32) -> bool {
        let owner = |path: String| statat(&self.directory, path, AtFlags::empty()).map(|stat| stat.st_uid);
        matches!((owner(format!("{pid}/io")), owner(pid.to_string())), (Ok(of_figures), Ok(of_process)) if of_figures != of_process)
    }

    /// Tells whether a process has been told to stop and goes on yet, until the call ends that it is in: the stop is pending, or some of its
    /// threads have stopped and others have not.
    pub(super) fn is_stopping(&self, pid: i32) -> bool {
        let status = self.text(&format!("{pid}/status")).unwrap_or_default();
        let pending = status
            .lines()
            .find_map(|line| u64::from_str_radix(line.strip_prefix("ShdPnd:")?.trim(), 16).ok());
        if pending.is_some_and(|signals| signals & (1 << (libc::SIGSTOP - 1)) != 0) {
            return true;
        }
        let states: Vec<char> = self.states(pid).collect();
        states.contains(&'T') && states.iter().any(|state| !"TZX".contains(*state))
    }

    /// Tells whether a thread of a process wants a processor or waits for the disk.
    fn is_at_work(&self, pid: i32) -> bool {
        self.states(pid).any(|state| "RD".contains(state))
    }

    /// The states of the threads of a process, as far as they are there yet: the third field of `stat`.
    fn states(&self, pid: i32) -> impl Iterator<Item = char> {
        let state = move |thread| {
            let stat = self.text(&format!("{pid}/task/{thread}/stat")).ok()?;
            field(&stat, 3)?.chars().next()
        };
        self.threads(pid).into_iter().filter_map(state)
    }

    /// Tells whether more than `most` threads of `first` and those that descend from it want a processor, as far as a few looks tell.
    pub(super) fn want_more_than(&self, most: usize, first: i32) -> bool {
        let (mut found, mut next, mut wanting) = (vec![first], 0, 0);
        while let Some(pid) = found.get(next).copied().filter(|_| next < LOOKS.max(most)) {
            next += 1;
            wanting += self.wanting(&[pid]).all;
            if wanting > most {
                return true;
            }
            if found.len() < LOOKS.max(most) {
                found.extend(self.children(pid));
            }
        }
        false
    }

    /// How many threads of these processes want a processor.
    pub(super) fn wanting(&self, members: &[i32]) -> Wanting {
        let mut wanting = Wanting::default();
        for pid in members {
            for thread in self.threads(*pid) {
                let stat = self.text(&format!("{pid}/task/{thread}/stat")).unwrap_or_default();
                if field(&stat, 3) == Some("R") {
                    wanting.all += 1;
                    wanting.usual += usize::from(field(&stat, 19) != Some(LAST));
                    wanting.fresh += usize::from(field(&stat, 41) == Some(ORDINARY));
                }
            }
        }
        wanting
    }

    /// The threads of a process; none when it is gone.
    pub(super) fn threads(&self, pid: i32) -> Vec<i32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = openat(&self.directory, format!("{pid}/task"), flags, Mode::empty()).and_then(Dir::new);
        let names = tasks.into_iter().flatten().filter_map(Result::ok);
        names.filter_map(|thread| thread.file_name().to_str().ok()?.parse().ok()).collect()
    }

    fn resident_of(&self, pid: i32) -> Option<u64> {
        let pages: u64 = self.text(&format!("{pid}/statm")).ok()?.split_whitespace().nth(1)?.parse().ok()?;
        Some(pages * self.page_bytes)
    }

    fn proportional_of(&self, pid: i32) -> Option<u64> {
        let rollup = self.text(&format!("{pid}/smaps_rollup")).ok()?;
        number_after("Pss:", &rollup).map(|kib| kib * 1024)
    }

    /// The children of every thread of a process; none when it is gone.
    fn children(&self, pid: i32) -> Vec<i32> {
        let mut children = Vec::new();
        for thread in self.threads(pid) {
            let text = self.text(&format!("{pid}/task/{thread}/children")).unwrap_or_default();
            children.extend(text.split_whitespace().filter_map(|number| number.parse::<i32>().ok()));
        }
        children
    }

    /// Tells whether an orphan belongs to `family`.
    fn is_of(&self, orphan: i32, family: &Family) -> bool {
        if orphan == family.first {
            return false;
        }
        let group = self.text(&format!("{orphan}/stat")).ok().as_deref().and_then(group_in);
        if group == Some(family.first) {
            return true;
        }
        // A run's own first process has the uid too; it leads its group.
        family.runaways.is_some_and(|uid| group != Some(orphan) && self.uid(orphan) == Some(uid))
    }

    fn uid(&self, pid: i32) -> Option<u32> {
        let status = self.text(&format!("{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
    }

    fn text(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = Vec::with_capacity(512);
        io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), FILE_BYTES_MAX), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Reads as the uid `identity`.
fn reading_as<T>(identity: Option<u32>, read: impl FnOnce() -> T) -> T {
    if let Some(id) = identity {
        setfsgid(Gid::from_raw(id));
        setfsuid(Uid::from_raw(id));
        keep_read_search();
    }
    let found = read();
    if identity.is_some() {
        setfsuid(Uid::effective());
        setfsgid(Gid::effective());
    }
    found
}

/// Has `CAP_DAC_READ_SEARCH`, if it is permitted, after a change of uid took it: a process that has it tells of its memory only to those
/// that have it, too (`ptrace(2)`, "Ptrace access mode checking").
fn keep_read_search() {
    if let Ok(mut sets) = rustix::thread::capabilities(None) {
        sets.effective |= sets.permitted & CapabilitySet::DAC_READ_SEARCH;
        let _ = rustix::thread::set_capabilities(None, sets);
    }
}

/// The number in the line that begins with `name`.
fn number_after(name: &str, text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_share_is_read_from_its_own_line() {
        let rollup = "55d0-7ffe ---p 0 00:00 0 [rollup]\nRss:    1000 kB\nPss:     300 kB\nPss_Dirty: 5 kB\n";
        assert_eq!(number_after("Pss:", rollup), Some(300));
    }

    #[test]
    fn children_are_members_and_what_they_share_is_counted_once() {
        let proc = Proc::open().unwrap();
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let first = i32::try_from(child.id()).unwrap();
        let family = Family { first, guardian: None, runaways: None };
        while proc.members(&family).len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let members = proc.members(&family);
        assert_eq!(members.first(), Some(&first));
        let (resident, proportional) = (proc.resident(&members), proc.proportional(&members, None));
        assert!(0 < proportional && proportional < resident, "{proportional} {resident}");
        for pid in members.into_iter().rev() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        child.wait().unwrap();
        assert_eq!(proc.resident(&[first]), 0);
    }

    /// A parent that waits for its child to replace itself is in a call that no stop interrupts.
    #[test]
    fn a_process_is_stopping_until_the_call_ends_that_it_is_in() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};

        use nix::sys::signal::{Signal, kill};

        // Without another thread at work in the interpreter meanwhile, which the child would wait for.
        let script = "import ctypes, os, platform, sys, threading, time
clone, vfork, chld = 220 if platform.machine() == 'aarch64' else 56, 0x4000, 17
def call():
    if ctypes.PyDLL(None).syscall(clone, vfork | chld, 0, 0, 0, 0) == 0:
        os.write(1, f'{os.getppid()} {os.getpid()}\\n'.encode())
        time.sleep(60)
        os._exit(0)
if sys.argv[1] == 'alone': call()
else: threading.Thread(target=call).start()
time.sleep(60)";
        let proc = Proc::open().unwrap();
        let wait_until = |it_is: &dyn Fn() -> bool| {
            let begun = std::time::Instant::now();
            while !it_is() {
                assert!(begun.elapsed() < std::time::Duration::from_secs(60));
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        for thread in ["alone", "second"] {
            let mut python =
                Command::new("python3").args(["-c", script, thread]).stdout(Stdio::piped()).spawn().unwrap();
            let mut told = String::new();
            BufReader::new(python.stdout.take().unwrap()).read_line(&mut told).unwrap();
            let numbers: Vec<i32> = told.split_whitespace().map(|number| number.parse().unwrap()).collect();
            let [first, child] = numbers[..] else { panic!("{told}") };
            let is_stopped = || proc.parent_and_state(first).is_some_and(|(_, state)| state == 'T');
            assert!(!proc.is_stopping(first), "{thread}");
            let send = |pid, signal| kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
            send(first, Signal::SIGSTOP);
            if thread == "second" {
                wait_until(&is_stopped);
            }
            assert!(proc.is_stopping(first), "{thread}");
            send(child, Signal::SIGKILL);
            wait_until(&|| is_stopped() && !proc.is_stopping(first));
            send(first, Signal::SIGKILL);
            python.wait().unwrap();
        }
    }
}

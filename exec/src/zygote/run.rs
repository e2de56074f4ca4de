//! [`Run`]: what the launcher knows of a run under way.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::deadline::allowed;
use super::memory::{Charge, ROUND};
use super::shared_clock::SharedClock;
use crate::limit::Limit;
use crate::sys::{Dead, Work};
use crate::wire::{Report, Request, TreeLocation};

/// A run under way.
pub(super) struct Run {
    /// The launcher's child: the main process, also its session and its group; or the first process of a mounted run.
    pub(super) pid: Pid,
    /// Whether the kernel ends the whole run with that process.
    pub(super) has_own_processes: bool,
    pub(super) socket: OwnedFd,
    pub(super) identity: Option<u32>,
    pub(super) killed: bool,
    /// When the launcher kills the run although the service did not ask.
    pub(super) deadline: Instant,
    /// The facts of the run that the memory monitor needs.
    pub(super) charge: Charge,
    /// When it is told.
    pub(super) due: Option<Instant>,
    /// When it is told at last, where `due` is earlier for the sake of a crowd.
    at_last: Option<Instant>,
    /// Whether it was told, by a glance or at last.
    pub(super) is_known: bool,
    /// Whether it was told at last.
    pub(super) watched: bool,
    /// The limit that the memory monitor found exceeded.
    pub(super) limit: Option<Limit>,
    /// The user namespace of its command, lent for as long as the run lives.
    pub(super) users: Option<OwnedFd>,
    /// Of a first process that may stay: whether it has a run.
    busy: Option<SharedClock>,
}

/// The process of a run that was started.
pub(super) struct Spawned {
    /// The number of the run.
    pub(super) number: u64,
    pub(super) pid: Pid,
    /// The clock that is shared with a first process that may stay.
    pub(super) busy: Option<SharedClock>,
    /// The user namespace of its command.
    pub(super) users: Option<OwnedFd>,
}

impl Run {
    /// The run of `request` with its process. The memory monitor must know of it at the first time of `due` if it leaves a processor
    /// to others or there is a crowd, and in any case at the second.
    pub(super) fn new(
        request: &Request,
        socket: OwnedFd,
        Spawned { number, pid, busy, users }: Spawned,
        has_runaways: bool,
        due: Option<(Instant, Instant)>,
    ) -> Self {
        let has_own_processes = matches!(request.place, TreeLocation::Mounted { .. });
        let identity = request.identity;
        let charge = Charge {
            run: number,
            user: request.user,
            first: pid.as_raw(),
            has_own_processes,
            identity,
            has_runaways,
            whole: request.whole,
            gives_way: request.gives_way,
            is_aside: request.is_aside,
        };
        Self {
            pid,
            has_own_processes,
            socket,
            identity,
            killed: false,
            deadline: Instant::now() + allowed(request.deadline_ms),
            charge,
            due: due.map(|(early, _)| early),
            at_last: due.map(|(_, at_last)| at_last).filter(|_| !request.is_aside),
            is_known: false,
            watched: false,
            limit: None,
            users,
            busy,
        }
    }

    /// Looks whether a first process that may stay has a run by now. When to look again, where nothing else says so.
    pub(super) fn look(&mut self, now: Instant, patience: Option<Duration>) -> Option<Instant> {
        // Also while the run is watched: its first process may have decided to stay just before it was told of the
        // watch.
        let busy = self.busy.as_ref().filter(|_| !self.killed)?;
        match busy.current_run() {
            Some(current_run) => {
                let patience = patience.filter(|_| !self.watched);
                self.due = patience.map(|patience| now + patience.saturating_sub(current_run.age));
                self.deadline = now + current_run.left;
            }
            None => {
                self.due = None;
                self.deadline = now + allowed(u64::MAX);
            }
        }
        Some(now + ROUND)
    }

    /// Puts off what is due to the time when it is due at last, unless that has come; tells whether it did.
    pub(super) fn waits_on(&mut self) -> bool {
        let Some(at_last) = self.at_last.take() else { return false };
        self.due = Some(at_last);
        true
    }

    /// Notes that the memory monitor was told.
    pub(super) fn is_watched_now(&mut self) {
        self.due = None;
        self.is_known = true;
        self.watched = true;
        if let Some(busy) = &self.busy {
            busy.is_watched_now();
        }
    }

    /// The report to the service when the process has ended, after having `worked` as far as that is known; `found` is a limit for which the kernel ended it.
    ///
    /// Where some processes of a run wait for memory that their group has not, one that could not wait was seen to end by
    /// `SIGSEGV`: the kernel could not give it a page in a place where it may not wait. It was ended for want of memory,
    /// and the report says so as it does otherwise.
    pub(super) fn exited(
        &self,
        Dead { code, signal, .. }: Dead,
        found: Option<Limit>,
        worked: Option<Work>,
    ) -> Report {
        let limit = self.limit.or(found);
        let signal = match (limit, signal) {
            (Some(Limit::Memory), Some(libc::SIGSEGV | libc::SIGBUS)) => Some(libc::SIGKILL),
            (_, signal) => signal,
        };
        Report::Exited { code, signal, limit, worked: worked.filter(|_| !self.has_own_processes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ceilings, Command, Sockets, Whole};

    fn run(deadline_ms: u64, busy: SharedClock) -> Run {
        let request = Request {
            command: Command { program: "/bin/true".into(), arguments: Vec::new(), environment: Vec::new() },
            identity: None,
            deadline_ms,
            place: TreeLocation::Mounted { at: Vec::new(), leases: 0 },
            limits: Ceilings { memory_bytes: 1, processes: 1, cpu_seconds: 1, file_bytes: 1, open_files: 1 },
            whole: Whole { memory_bytes: 1, processes: 1, write_bytes_per_second: 0 },
            sockets: Sockets::Refused,
            has_walls: false,
            has_memory_files: true,
            is_live: false,
            has_terminal: false,
            may_stay: true,
            is_watched: true,
            gives_way: false,
            is_aside: false,
            user: None,
        };
        let (socket, _) = crate::wire::packet_sockets().unwrap();
        let spawned = Spawned { number: 1, pid: nix::unistd::getpid(), busy: Some(busy), users: None };
        Run::new(&request, socket, spawned, false, None)
    }

    #[test]
    fn a_fault_while_others_wait_for_memory_is_an_end_for_want_of_memory() {
        let busy = SharedClock::new().unwrap();
        let run = run(0, busy);
        let ended = |signal, found| {
            let dead = Dead { pid: run.pid, code: None, signal: Some(signal) };
            match run.exited(dead, found, Some(Work::default())) {
                Report::Exited { signal, .. } => signal,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ended(libc::SIGSEGV, Some(Limit::Memory)), Some(libc::SIGKILL));
        assert_eq!(ended(libc::SIGSEGV, None), Some(libc::SIGSEGV));
        assert_eq!(ended(libc::SIGXCPU, Some(Limit::Memory)), Some(libc::SIGXCPU));
    }

    #[test]
    fn what_is_due_early_is_put_off_once() {
        let now = Instant::now();
        let at_last = now + ROUND;
        let mut run = run(1, SharedClock::new().unwrap());
        (run.due, run.at_last) = (Some(now), Some(at_last));
        assert!(run.waits_on());
        assert_eq!(run.due, Some(at_last));
        // What is due at last is due.
        assert!(!run.waits_on());
        assert_eq!(run.due, Some(at_last));
    }

    #[test]
    fn a_run_after_one_that_was_watched_has_its_own_deadline() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let busy = SharedClock::new().unwrap();
        busy.begin(1);
        let mut run = run(1, busy);
        run.is_watched_now();
        // The process had decided before that it stays.
        let busy = run.busy.as_ref().unwrap();
        busy.end();
        assert!(run.look(now, Some(ROUND)).is_some());
        assert!(run.deadline > now + hour);
        run.busy.as_ref().unwrap().begin(2 * 3_600_000);
        assert!(run.look(now, Some(ROUND)).is_some());
        assert!(run.deadline > now + hour);
        assert_eq!(run.due, None);
    }
}

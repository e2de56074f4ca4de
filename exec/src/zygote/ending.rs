//! How runs end: by themselves, by their deadline, for their memory, or because the service is gone or asks for it.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::{Loop, kill};
use crate::limit::Limit;
use crate::{sys, wire};

impl Loop {
    /// Kills runs whose deadline has passed and that the service, which keeps the time, has not asked to be killed.
    pub(super) fn kill_overdue(&mut self) {
        let now = Instant::now();
        for index in 0..self.runs.len() {
            if self.runs.get(index).is_some_and(|run| !run.killed && run.deadline <= now) {
                self.kill_run(index);
            }
        }
    }

    /// Kills a run that has more memory than it may.
    pub(super) fn kill_for(&mut self, number: u64, limit: Limit) {
        let found = self.runs.iter().position(|run| run.charge.run == number && !run.killed);
        if let Some(index) = found {
            if let Some(run) = self.runs.get_mut(index) {
                run.limit = Some(limit);
            }
            self.kill_run(index);
        }
    }

    /// Kills a run because its socket was closed or asked for it.
    pub(super) fn kill_run(&mut self, index: usize) {
        let Some(run) = self.runs.get_mut(index) else { return };
        run.killed = true;
        if run.has_own_processes {
            kill::first(run.pid);
            return;
        }
        kill::group(run.pid);
        self.sweep(index);
    }

    /// Kills by uid what a group cannot name, unless another run shares the uid.
    fn sweep(&self, index: usize) {
        let Some(Some(uid)) = self.runs.get(index).map(|run| run.identity) else { return };
        let shared = self
            .runs
            .iter()
            .enumerate()
            .any(|(other, run)| other != index && !run.killed && run.identity == Some(uid));
        if !shared {
            kill::uid(uid);
        }
    }

    /// Collects all dead children: main processes end their run, adopted orphans only vanish.
    ///
    /// # Errors
    /// The process that makes network namespaces has ended: the service starts another launcher.
    pub(super) fn reap(&mut self) -> io::Result<()> {
        // Looked at first and collected later: until then the number of a main process cannot be given to another,
        // so the group that is killed is the run's.
        loop {
            let dead = match sys::find_dead() {
                Ok(Some(dead)) => dead,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(None) | Err(_) => return Ok(()),
            };
            let pid = dead.pid;
            let found = self.runs.iter().position(|run| run.pid == pid);
            // Before the others of its group are killed: none waits for memory after that.
            let limit = found.and_then(|index| self.runs.get(index)).and_then(|run| {
                let suddenly = dead.signal == Some(libc::SIGKILL) && !run.killed;
                self.memory.verdict(run.charge.run, run.is_known, suddenly)
            });
            let is_alone =
                found.and_then(|index| self.runs.get(index)).is_none_or(|run| run.has_own_processes);
            if let (Some(index), false) = (found, is_alone) {
                // Nothing leaves the group where the filter holds, so the group is enough if it can be killed.
                if !kill::group(pid) || !self.filtered {
                    self.sweep(index);
                }
            }
            let before = sys::work_of_children();
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
            if self.networks == Some(pid) {
                return Err(io::Error::other("the process that makes network namespaces ended"));
            }
            if let Some(index) = self.parked.iter().position(|parked| parked.pid == pid)
                && let Some(parked) = self.parked.remove(index)
            {
                self.memory.ended(parked.number, false);
            }
            if let Some(index) = found {
                // While the service answers for it.
                self.free = Instant::now();
                let mut run = self.runs.swap_remove(index);
                // The kernel has ended all that was in the process namespace of this first process.
                if let (Some(users), Some(namespace)) = (&mut self.users, run.users.take()) {
                    users.take_back(namespace);
                }
                // Of what the process left behind, which was killed, nobody knows how much it worked.
                let worked =
                    (is_alone || !kill::has_left(pid)).then(|| sys::work_of_children().since(before));
                let _ = wire::send_message(run.socket.as_fd(), &run.exited(dead, limit, worked));
                self.memory.ended(run.charge.run, run.is_known);
            }
        }
    }
}

//! [`Effort`]: how much a supervisor works for its run.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys;
use crate::workloads::ServiceWork;

/// Rounds of the thread from one look at its work to the next.
const ROUNDS: u32 = 16;

/// The work of this thread.
pub(super) struct Effort {
    /// The account of the run's user.
    account: Option<ServiceWork>,
    /// Rounds since the last look.
    rounds: u32,
    /// What this thread had worked then.
    worked: Duration,
    /// Whether it gives way to all other threads, which cannot be taken back.
    gives_way: bool,
}

impl Effort {
    pub(super) fn new(account: Option<ServiceWork>) -> Self {
        Self { account, rounds: 0, worked: Duration::ZERO, gives_way: false }
    }

    /// Counts a round, whatever was answered in it. This thread gives way when the user of the run has used too much.
    pub(super) fn count(&mut self) {
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return;
        }
        self.rounds = 0;
        let Some(account) = &self.account else { return };
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now = Duration::try_from(now).unwrap_or_default();
        let since = now.saturating_sub(std::mem::replace(&mut self.worked, now));
        if account.add(since) && !self.gives_way {
            // Where the kernel refuses it, the thread keeps the priority that it has.
            let _ = sys::leave_processors_to_others(0);
            self.gives_way = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::UserId;

    use super::*;
    use crate::workloads::Workloads;

    /// Lets a thread of its own work for `user` in so many rounds; whether it gives way to all others afterwards.
    fn gives_way(workloads: &Workloads, user: &str, work: Duration, rounds: u32) -> bool {
        let account = workloads.begin(Some(&UserId::parse(user).unwrap()), 0).of_service();
        let thread = std::thread::spawn(move || {
            let mut effort = Effort::new(account);
            let worked = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
            while worked() < work {}
            (0..rounds).for_each(|_| effort.count());
            // The forty-first field is the policy (proc_pid_stat(5), sched(7)).
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit(") ").next().unwrap().split(' ').nth(38) == Some("5")
        });
        thread.join().unwrap()
    }

    #[test]
    fn who_works_much_for_a_user_gives_way_and_so_does_who_works_for_them_next() {
        let workloads = Workloads::default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // Counted twice, a little more than the account allows at once.
        let much = Duration::from_millis(135) * u32::try_from(processors).unwrap();
        assert!(!gives_way(&workloads, "alice", much, ROUNDS - 1));
        assert!(gives_way(&workloads, "alice", much, ROUNDS));
        assert!(!gives_way(&workloads, "bob", Duration::ZERO, 10 * ROUNDS));
    }
}

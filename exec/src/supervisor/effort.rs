//! [`Effort`]: how much a supervisor works for its run.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys;
use crate::workloads::ServiceWork;

/// Calls from one look at the work to the next; many thousands are answered in a second.
const CALLS: u32 = 64;

/// The work of this thread.
pub(super) struct Effort {
    /// The account of the run's user.
    account: Option<ServiceWork>,
    /// Calls that were answered since the last look.
    calls: u32,
    /// What this thread had worked then.
    worked: Duration,
    /// Whether it gives way to all other threads, which cannot be taken back.
    gives_way: bool,
}

impl Effort {
    pub(super) fn new(account: Option<ServiceWork>) -> Self {
        Self { account, calls: 0, worked: Duration::ZERO, gives_way: false }
    }

    /// Counts a call that was answered. A user who has others work too much gives way with all that is done for them: so does this
    /// thread, as far as this run is concerned.
    pub(super) fn count(&mut self) {
        self.calls += 1;
        if self.calls < CALLS {
            return;
        }
        self.calls = 0;
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

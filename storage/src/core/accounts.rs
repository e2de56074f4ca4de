//! [`Accounts`]: the known use of each tree.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use policy::TreeId;

use crate::core::count::Counted;
use crate::core::growth::Growth;
use crate::stat::Use;

/// Trees of which something is known. Beyond it the half that was unused for longest is forgotten and counted again
/// when it is needed.
const ACCOUNTS_MAX: usize = 8192;
/// How long what was killed at the limit may go on growing: longer than it takes to kill a run.
const SETTLING: Duration = Duration::from_secs(1);

/// The known use of trees, of a bounded number of them.
pub(crate) struct Accounts {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    accounts: HashMap<TreeId, Account>,
    clock: u64,
}

struct Account {
    known: Known,
    /// Since when it was above its limit, as far as is known.
    above_since: Option<Instant>,
    used: u64,
}

/// The known use of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) counted: Counted,
    /// Whether nothing has happened since it was counted that is not in the number.
    pub(crate) is_exact: bool,
    /// The least that it was found to take since it went above its limit and what went on then was over.
    pub(crate) least_above: Option<Use>,
}

impl Accounts {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default() }
    }

    /// The known use of `id`.
    pub(crate) fn known(&self, id: &TreeId) -> Option<Known> {
        let mut table = self.table.lock();
        table.clock += 1;
        let clock = table.clock;
        let account = table.accounts.get_mut(id)?;
        account.used = clock;
        Some(account.known)
    }

    /// Keeps what a count found.
    pub(crate) fn counted(&self, id: &TreeId, counted: Counted, limits: Use) {
        self.counted_at(id, counted, limits, Instant::now());
    }

    fn counted_at(&self, id: &TreeId, counted: Counted, limits: Use, now: Instant) {
        let mut table = self.table.lock();
        table.clock += 1;
        let used = table.clock;
        let known = Known { counted, is_exact: true, least_above: None };
        let is_above = !counted.is_whole || counted.taken.exceeds(limits);
        if let Some(account) = table.accounts.get_mut(id) {
            let least = account.known.least_above.filter(|_| is_above);
            account.above_since = account.above_since.filter(|_| is_above).or(is_above.then_some(now));
            let has_settled = account.above_since.is_some_and(|since| now.duration_since(since) >= SETTLING);
            let taken = counted.taken;
            let least = least.map(|least| Use {
                bytes: least.bytes.min(taken.bytes),
                files: least.files.min(taken.files),
            });
            account.known = Known { least_above: least.or(has_settled.then_some(taken)), ..known };
            account.used = used;
            return;
        }
        if table.accounts.len() >= ACCOUNTS_MAX {
            table.forget_half();
        }
        let above_since = is_above.then_some(now);
        table.accounts.insert(id.clone(), Account { known, above_since, used });
    }

    /// Adds a change that was made.
    pub(crate) fn change(&self, id: &TreeId, growth: &Growth) {
        if let Some(account) = self.table.lock().accounts.get_mut(id) {
            let known = &mut account.known;
            known.counted.taken = growth.after(known.counted.taken);
            known.is_exact &= growth.is_exact;
        }
    }

    /// Forgets a tree that was replaced whole.
    pub(crate) fn forget(&self, id: &TreeId) {
        self.table.lock().accounts.remove(id);
    }

    /// Notes that something has happened to a tree that is not in the number.
    pub(crate) fn doubt(&self, id: &TreeId) {
        if let Some(account) = self.table.lock().accounts.get_mut(id) {
            account.known.is_exact = false;
        }
    }
}

impl Table {
    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.accounts.values().map(|account| account.used).collect();
        let middle = uses.len() / 2;
        let (_, median, _) = uses.select_nth_unstable(middle);
        let median = *median;
        self.accounts.retain(|_, account| account.used > median);
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;

    const LIMITS: Use = Use { bytes: 1000, files: 10 };

    fn tree(user: &str) -> TreeId {
        TreeId::Workspace(UserId::parse(user).unwrap(), AgentId::parse("a").unwrap())
    }

    fn of_bytes(bytes: u64) -> Counted {
        Counted { taken: Use { bytes, files: 1 }, is_whole: true }
    }

    #[test]
    fn the_table_of_trees_is_bounded_and_keeps_those_used_last() {
        let accounts = Accounts::new();
        for number in 0..ACCOUNTS_MAX * 3 {
            accounts.counted(&tree(&format!("u{number}")), of_bytes(1), LIMITS);
            assert!(accounts.known(&tree("u0")).is_some(), "used all the time, forgotten at {number}");
        }
        assert!(accounts.table.lock().accounts.len() <= ACCOUNTS_MAX);
    }

    #[test]
    fn a_change_that_is_not_exact_makes_the_number_doubtful_until_the_next_count() {
        let (accounts, id) = (Accounts::new(), tree("u"));
        accounts.counted(&id, of_bytes(100), LIMITS);
        let growth =
            Growth { adds: Use { bytes: 50, files: 1 }, takes: Use { bytes: 20, files: 0 }, is_exact: true };
        accounts.change(&id, &growth);
        let known = accounts.known(&id).unwrap();
        assert_eq!((known.counted.taken, known.is_exact), (Use { bytes: 130, files: 2 }, true));
        accounts.change(&id, &Growth { is_exact: false, ..growth });
        assert!(!accounts.known(&id).unwrap().is_exact);
        accounts.counted(&id, of_bytes(160), LIMITS);
        assert!(accounts.known(&id).unwrap().is_exact);
    }

    #[test]
    fn the_least_above_a_limit_is_known_once_what_went_on_then_is_over() {
        let (accounts, id) = (Accounts::new(), tree("u"));
        let begun = Instant::now();
        let least_at = |bytes: u64, ms: u64| {
            accounts.counted_at(&id, of_bytes(bytes), LIMITS, begun + Duration::from_millis(ms));
            accounts.known(&id).unwrap().least_above.map(|least| least.bytes)
        };
        assert_eq!(least_at(900, 0), None);
        assert_eq!(least_at(1100, 250), None);
        assert_eq!(least_at(1500, 500), None, "still being killed");
        assert_eq!(least_at(1500, 1250), Some(1500));
        assert_eq!(least_at(1800, 2000), Some(1500));
        assert_eq!(least_at(1200, 3000), Some(1200));
        assert_eq!(least_at(1000, 4000), None, "back within the limit");
    }
}

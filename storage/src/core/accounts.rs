//! [`Accounts`]: the known use of each tree, and of each user.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use policy::{TreeId, UserId, WorkspaceId};

use crate::core::count::Counted;
use crate::core::growth::Growth;
use crate::core::totals::{KnownTotal, Marks, Reservation, Totals};
use crate::stat::Use;

/// Trees of which something is known. Beyond it the half that was unused for longest is forgotten and counted again
/// when it is needed.
const ACCOUNTS_MAX: usize = 8192;
/// How long what was killed at the limit may go on growing: longer than it takes to kill a run.
const SETTLING: Duration = Duration::from_secs(1);

/// The known use of trees, of a bounded number of them, and the sums of users.
pub(crate) struct Accounts {
    table: Mutex<Table>,
}

struct Table {
    accounts: HashMap<TreeId, Account>,
    clock: u64,
    /// Under the same lock, so that each tree is in the sum of its user once.
    totals: Totals,
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
    /// Of users who may have `limits` each.
    pub(crate) fn new(limits: Use) -> Self {
        let table = Table { accounts: HashMap::new(), clock: 0, totals: Totals::new(limits) };
        Self { table: Mutex::new(table) }
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
        let before = table.accounts.get(id).map(|account| account.known.counted.taken);
        table.totals.moved(id.user(), before, counted.taken, now);
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
        let table = &mut *self.table.lock();
        let Some(account) = table.accounts.get_mut(id) else {
            // How much it is now is found by the next count.
            match growth.adds == Use::default() {
                true => table.totals.doubt(id.user()),
                false => table.totals.forget(id.user()),
            }
            return;
        };
        let known = &mut account.known;
        let before = known.counted.taken;
        known.counted.taken = growth.after(before);
        known.is_exact &= growth.is_exact;
        table.totals.moved(id.user(), Some(before), known.counted.taken, Instant::now());
        if !growth.is_exact {
            table.totals.doubt(id.user());
        }
    }

    /// Forgets a tree that was replaced whole.
    pub(crate) fn forget(&self, id: &TreeId) {
        let mut table = self.table.lock();
        table.accounts.remove(id);
        table.totals.forget(id.user());
    }

    /// Notes that something has happened to a tree that is not in the number.
    pub(crate) fn doubt(&self, id: &TreeId) {
        let mut table = self.table.lock();
        if let Some(account) = table.accounts.get_mut(id) {
            account.known.is_exact = false;
        }
        table.totals.doubt(id.user());
    }

    /// What is known of all that a user has.
    pub(crate) fn total(&self, user: &UserId) -> Option<KnownTotal> {
        self.table.lock().totals.known(user)
    }

    /// Begins a count of all that a user has.
    pub(crate) fn begin_sum(&self, user: &UserId) -> Marks {
        self.table.lock().totals.begin(user)
    }

    /// Keeps the sum of a user, whose count had begun at `marks`: of `trees`, each with its use as it was found, which gives way to what is known of it by
    /// now, and of `others`. A tree that was made
    /// meanwhile is known. Returns it.
    pub(crate) fn sum_up(&self, user: &UserId, marks: Marks, trees: &[(TreeId, Use)], others: Use) -> Use {
        let mut table = self.table.lock();
        let known = table.accounts.iter().filter(|(id, _)| id.user() == user);
        let (known, is_exact) = known.fold((others, true), |(sum, is_exact), (_, account)| {
            (sum.plus(account.known.counted.taken), is_exact && account.known.is_exact)
        });
        let unknown = trees.iter().filter(|(id, _)| !table.accounts.contains_key(id));
        let sum = unknown.fold(known, |sum, (_, found)| sum.plus(*found));
        table.totals.counted(user, marks, (sum, is_exact), Instant::now());
        sum
    }

    /// What the snapshots of a sandbox take, when that is known.
    pub(crate) fn snapshots(&self, id: &WorkspaceId) -> Option<Use> {
        self.table.lock().totals.snapshots(id)
    }

    /// Keeps what the snapshots of a sandbox were found to take.
    pub(crate) fn snapshots_counted(&self, id: &WorkspaceId, taken: Use) {
        self.table.lock().totals.snapshots_counted(id, taken);
    }

    /// Notes that snapshots of a sandbox were taken or removed.
    pub(crate) fn snapshots_changed(&self, id: &WorkspaceId) {
        self.table.lock().totals.snapshots_changed(id);
    }

    /// Keeps the room for a change among all that its user may have.
    pub(crate) fn reserve(&self, user: &UserId, growth: &Growth) -> Reservation {
        self.table.lock().totals.reserve(user, growth)
    }

    /// Gives back what was reserved.
    pub(crate) fn release(&self, user: &UserId, reserved: Use) {
        self.table.lock().totals.release(user, reserved);
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
        let accounts = Accounts::new(LIMITS);
        for number in 0..ACCOUNTS_MAX * 3 {
            accounts.counted(&tree(&format!("u{number}")), of_bytes(1), LIMITS);
            assert!(accounts.known(&tree("u0")).is_some(), "used all the time, forgotten at {number}");
        }
        assert!(accounts.table.lock().accounts.len() <= ACCOUNTS_MAX);
    }

    #[test]
    fn a_change_that_is_not_exact_makes_the_number_doubtful_until_the_next_count() {
        let (accounts, id) = (Accounts::new(LIMITS), tree("u"));
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
        let (accounts, id) = (Accounts::new(LIMITS), tree("u"));
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

//! [`Totals`]: what users have in all, as sums of what is known of their trees and snapshots.
//!
//! A sum is made by a count of what is not known, and moves with each later count and change of a tree. What a change that
//! was admitted will add is *reserved* until the change is made, so that changes of several trees at once cannot together
//! be too much.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use policy::{UserId, WorkspaceId};

use crate::core::growth::Growth;
use crate::stat::Use;

/// Users of whom something is known. Beyond it the half that was unused for longest is forgotten.
const USERS_MAX: usize = 4096;
/// Sandboxes whose snapshots were counted. Beyond it all are forgotten, and counted again when it matters.
const SNAPSHOTS_MAX: usize = 8192;
/// How long what was ended at the limit may go on growing: longer than it takes to end a run.
const SETTLING: Duration = Duration::from_secs(1);

/// What users have in all.
pub(crate) struct Totals {
    limits: Use,
    users: HashMap<UserId, Total>,
    reserved: HashMap<UserId, Use>,
    snapshots: HashMap<WorkspaceId, Use>,
    clock: u64,
}

#[derive(Default)]
struct Total {
    /// Nothing when something of the user was replaced whole since it was counted.
    sum: Option<Use>,
    is_exact: bool,
    above_since: Option<Instant>,
    least_above: Option<Use>,
    /// How often its sum was forgotten, and came into doubt, for counts that were under way meanwhile.
    marks: Marks,
    used: u64,
}

/// How often the sum of a user was forgotten, and came into doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    forgotten: u64,
    doubted: u64,
}

/// What is known of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownTotal {
    pub(crate) taken: Use,
    /// Whether nothing has happened since it was counted that is not in the number.
    pub(crate) is_exact: bool,
    /// The least that the user was found to have since it was above the limit and what went on then was over.
    pub(crate) least_above: Option<Use>,
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// There is room, and it is kept.
    Made(Use),
    /// There is none, by what is known and what is reserved.
    Refused(KnownTotal),
    /// What the user has is to be counted first.
    Unknown,
}

impl Totals {
    pub(crate) fn new(limits: Use) -> Self {
        Self { limits, users: HashMap::new(), reserved: HashMap::new(), snapshots: HashMap::new(), clock: 0 }
    }

    pub(crate) fn known(&mut self, user: &UserId) -> Option<KnownTotal> {
        let total = self.used(user)?;
        let taken = total.sum?;
        Some(KnownTotal { taken, is_exact: total.is_exact, least_above: total.least_above })
    }

    /// Begins a count.
    pub(crate) fn begin(&mut self, user: &UserId) -> Marks {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(user) {
            self.forget_half();
        }
        self.clock += 1;
        let total = self.users.entry(user.clone()).or_default();
        total.used = self.clock;
        total.marks
    }

    /// Keeps the sum that a count found which had begun at `marks`, unless something was replaced whole meanwhile. It is exact
    /// if `is_exact` and nothing has happened since.
    pub(crate) fn counted(
        &mut self,
        user: &UserId,
        marks: Marks,
        (sum, is_exact): (Use, bool),
        now: Instant,
    ) {
        let limits = self.limits;
        let Some(total) = self.users.get_mut(user) else { return };
        if total.marks.forgotten == marks.forgotten {
            (total.sum, total.is_exact) = (Some(sum), is_exact && total.marks == marks);
            total.weigh(limits, now);
        }
    }

    /// Notes that one tree of the user takes `after` instead of `before`, which is nothing when it was not known.
    pub(crate) fn moved(&mut self, user: &UserId, before: Option<Use>, after: Use, now: Instant) {
        let limits = self.limits;
        let Some(total) = self.users.get_mut(user) else { return };
        let Some(sum) = total.sum else { return };
        // What was not known may be in the sum already: it is counted again before anything is refused for it.
        total.is_exact &= before.is_some();
        total.sum = Some(sum.plus(after).minus(before.unwrap_or_default()));
        total.weigh(limits, now);
    }

    pub(crate) fn doubt(&mut self, user: &UserId) {
        if let Some(total) = self.users.get_mut(user) {
            total.is_exact = false;
            total.marks.doubted += 1;
        }
    }

    /// Forgets the sum: something of the user was replaced whole.
    pub(crate) fn forget(&mut self, user: &UserId) {
        if let Some(total) = self.users.get_mut(user) {
            total.sum = None;
            total.marks.forgotten += 1;
        }
    }

    /// What the snapshots of a sandbox take, when that is known.
    pub(crate) fn snapshots(&self, id: &WorkspaceId) -> Option<Use> {
        self.snapshots.get(id).copied()
    }

    pub(crate) fn snapshots_counted(&mut self, id: &WorkspaceId, taken: Use) {
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            self.snapshots.clear();
        }
        self.snapshots.insert(id.clone(), taken);
    }

    pub(crate) fn snapshots_changed(&mut self, id: &WorkspaceId) {
        self.snapshots.remove(id);
        self.forget(&id.user);
    }

    /// Keeps the room for a change, if the user has it.
    pub(crate) fn reserve(&mut self, user: &UserId, growth: &Growth) -> Reservation {
        let reserved = self.reserved.get(user).copied().unwrap_or_default();
        let Some(known) = self.known(user) else { return Reservation::Unknown };
        let after = growth.after(known.taken.plus(reserved));
        let is_too_much = growth.adds_bytes() && after.bytes > self.limits.bytes
            || growth.adds_files() && after.files > self.limits.files;
        if is_too_much {
            return Reservation::Refused(KnownTotal { taken: known.taken.plus(reserved), ..known });
        }
        let more = growth.adds.minus(growth.takes);
        self.reserved.insert(user.clone(), reserved.plus(more));
        Reservation::Made(more)
    }

    /// Gives back what was reserved: the change is made, and is in the sum, or is not made.
    pub(crate) fn release(&mut self, user: &UserId, reserved: Use) {
        let Some(all) = self.reserved.get_mut(user) else { return };
        *all = all.minus(reserved);
        if *all == Use::default() {
            self.reserved.remove(user);
        }
    }

    fn used(&mut self, user: &UserId) -> Option<&Total> {
        self.clock += 1;
        let total = self.users.get_mut(user)?;
        total.used = self.clock;
        Some(total)
    }

    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.users.values().map(|total| total.used).collect();
        let middle = uses.len() / 2;
        let (_, median, _) = uses.select_nth_unstable(middle);
        let median = *median;
        self.users.retain(|_, total| total.used > median);
    }
}

impl Total {
    /// Notes since when, and how far, the sum is above the limit.
    fn weigh(&mut self, limits: Use, now: Instant) {
        let Some(sum) = self.sum.filter(|sum| sum.exceeds(limits)) else {
            (self.above_since, self.least_above) = (None, None);
            return;
        };
        let since = *self.above_since.get_or_insert(now);
        if let Some(least) = self.least_above {
            self.least_above =
                Some(Use { bytes: least.bytes.min(sum.bytes), files: least.files.min(sum.files) });
        } else if now.duration_since(since) >= SETTLING {
            self.least_above = Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Use = Use { bytes: 1000, files: 100 };

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    /// Keeps a sum that was counted while nothing happened.
    fn count(totals: &mut Totals, user: &UserId, sum: Use, now: Instant) {
        let marks = totals.begin(user);
        totals.counted(user, marks, (sum, true), now);
    }

    fn bytes(bytes: u64) -> Use {
        Use { bytes, files: 1 }
    }

    fn growth(adds: u64) -> Growth {
        Growth { adds: bytes(adds), takes: Use::default(), is_exact: true }
    }

    #[test]
    fn what_is_reserved_counts_until_it_is_given_back() {
        let (mut totals, user) = (Totals::new(LIMITS), user("u"));
        assert_eq!(totals.reserve(&user, &growth(1)), Reservation::Unknown);
        count(&mut totals, &user, bytes(500), Instant::now());
        let Reservation::Made(first) = totals.reserve(&user, &growth(400)) else { panic!("no room") };
        assert!(matches!(totals.reserve(&user, &growth(200)), Reservation::Refused(_)));
        totals.release(&user, first);
        assert!(matches!(totals.reserve(&user, &growth(200)), Reservation::Made(_)));
        assert_eq!(totals.known(&user).unwrap().taken, bytes(500));
    }

    #[test]
    fn a_tree_that_was_not_known_is_added_and_makes_the_sum_doubtful() {
        let (mut totals, user, now) = (Totals::new(LIMITS), user("u"), Instant::now());
        count(&mut totals, &user, bytes(500), now);
        totals.moved(&user, Some(bytes(100)), bytes(150), now);
        assert_eq!(totals.known(&user).map(|known| (known.taken.bytes, known.is_exact)), Some((550, true)));
        totals.moved(&user, None, bytes(50), now);
        assert_eq!(totals.known(&user).map(|known| (known.taken.bytes, known.is_exact)), Some((600, false)));
        totals.forget(&user);
        assert_eq!(totals.known(&user), None);
        assert_eq!(totals.reserve(&user, &growth(1)), Reservation::Unknown);
    }

    #[test]
    fn the_least_above_the_limit_outlives_a_replaced_tree() {
        let (mut totals, user, begun) = (Totals::new(LIMITS), user("u"), Instant::now());
        let later = |seconds| begun + Duration::from_secs(seconds);
        count(&mut totals, &user, bytes(1100), begun);
        assert_eq!(totals.known(&user).unwrap().least_above, None, "what went on may not be over");
        count(&mut totals, &user, bytes(1200), later(2));
        totals.forget(&user);
        count(&mut totals, &user, bytes(1500), later(3));
        assert_eq!(totals.known(&user).unwrap().least_above, Some(bytes(1200)));
        count(&mut totals, &user, bytes(900), later(4));
        assert_eq!(totals.known(&user).unwrap().least_above, None);
    }

    #[test]
    fn the_table_of_users_is_bounded() {
        let mut totals = Totals::new(LIMITS);
        for number in 0..USERS_MAX * 2 {
            count(&mut totals, &user(&format!("u{number}")), bytes(1), Instant::now());
            assert!(totals.known(&user("u0")).is_some(), "used all the time, forgotten at {number}");
        }
        assert!(totals.users.len() <= USERS_MAX);
    }

    #[test]
    fn a_sum_is_not_kept_when_a_tree_was_replaced_while_it_was_counted() {
        let (mut totals, user) = (Totals::new(LIMITS), user("u"));
        let marks = totals.begin(&user);
        totals.forget(&user);
        totals.counted(&user, marks, (bytes(1), true), Instant::now());
        assert_eq!(totals.known(&user), None);
        let marks = totals.begin(&user);
        totals.doubt(&user);
        totals.counted(&user, marks, (bytes(1), true), Instant::now());
        assert_eq!(totals.known(&user).map(|known| known.is_exact), Some(false));
    }
}

//! [`Accounts`]: what each caller may add to the log, so that none pushes out what others did.
//!
//! Every record is charged to an account: that of the user whose token asks, or of the token and the user it acts for.
//! An account has two budgets, which fill up again over a day:
//!
//! * one for changes. When it is spent, further changes are refused before they are made, so no record is ever missing;
//! * a small one for requests that were refused or failed. When that is spent, one of them in [`FOLD`] has a record,
//!   and that record counts all that have none, by their codes. So the log says less of them, and says how many.
//!
//! Callers without a valid token share one account, and have [`STRANGERS_PER_SECOND`] records in a second at most.
//! Accounts are kept in memory and are full again after a start.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::record::Entry;

/// Over a spent budget, a record of a failed request comes at most this often.
pub const FOLD: Duration = Duration::from_secs(600);
/// The part of an account that failed requests may take.
const FAILED_PART: u64 = 32;
/// In which a spent budget is full again.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Requests of strangers that are recorded in a second; of more, the number is.
const STRANGERS_PER_SECOND: u64 = 20;
/// How often accounts of which nothing is spent are looked for, when there is no room.
const CLEARING: Duration = Duration::from_secs(60);
/// Accounts that are kept; beyond them all others share one.
const ACCOUNTS_MAX: usize = 65_536;

/// Whom a record is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// A user, by whichever token of theirs.
    User(String),
    /// A token that acts for a user, or for none in particular.
    Token(String, Option<String>),
    /// Callers without a valid token.
    Strangers,
    /// All callers for whom there was no room.
    Others,
}

/// The effect that a request may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It may have changed something: its record is never folded.
    Change,
    /// It was refused, or failed before anything was changed.
    Nothing,
}

/// The budgets of all accounts.
pub(super) struct Accounts {
    /// The bytes that an account may add in a day; 0 for any number.
    bytes: u64,
    all: HashMap<Account, Left>,
    /// The second in which strangers were recorded, and how many.
    strangers: (Instant, u64),
    /// When those of which nothing was spent were looked for last.
    cleared: Instant,
}

/// The budget of one account.
struct Left {
    changes: Budget,
    failed: Budget,
    folded: Folded,
}

/// Bytes that may be spent, and when that was counted.
struct Budget {
    left: u64,
    most: u64,
    counted: Instant,
}

/// Failed requests that have no record.
#[derive(Default)]
struct Folded {
    outcomes: BTreeMap<String, u64>,
    /// When a record over the budget was written last.
    told: Option<Instant>,
}

impl Accounts {
    pub(super) fn new(bytes: u64, now: Instant) -> Self {
        Self { bytes, all: HashMap::new(), strangers: (now, 0), cleared: now }
    }

    /// Tells whether an account may make a change now; else in how many seconds.
    pub(super) fn admits(&mut self, account: &Account, now: Instant) -> Result<(), u64> {
        if self.bytes == 0 {
            return Ok(());
        }
        let changes = &mut self.of(account, now).changes;
        changes.fill(now);
        // One record is bounded, and so is what all changes under way spend beyond the budget.
        if changes.left > 0 { Ok(()) } else { Err(changes.seconds_to_a_record()) }
    }

    /// Charges a record. Returns it, perhaps with the number of those that had none; `None` when it is folded itself.
    pub(super) fn charge(
        &mut self,
        account: &Account,
        effect: Effect,
        mut entry: Entry,
        now: Instant,
    ) -> Option<Entry> {
        let is_stranger = *account == Account::Strangers;
        let is_burst = is_stranger && self.is_burst(now);
        if self.bytes == 0 && !is_stranger {
            return Some(entry);
        }
        let (unbounded, weight) = (self.bytes == 0, entry.weight());
        let left = self.of(account, now);
        if effect == Effect::Change {
            left.changes.fill(now);
            left.changes.left = left.changes.left.saturating_sub(weight);
            return Some(entry);
        }
        left.failed.fill(now);
        let is_told = left.folded.told.is_some_and(|told| now.saturating_duration_since(told) < FOLD);
        if is_burst || (left.failed.left < weight && is_told && !unbounded) {
            *left.folded.outcomes.entry(entry.outcome).or_default() += 1;
            left.folded.told.get_or_insert(now);
            return None;
        }
        if left.failed.left < weight {
            left.folded.told = Some(now);
        }
        left.failed.left = left.failed.left.saturating_sub(weight);
        left.folded.tell_in(&mut entry);
        Some(entry)
    }

    /// Records that count what was folded and is due to be told, or all of it with `everything`; and when the next is.
    pub(super) fn folded(&mut self, everything: bool, now: Instant) -> (Vec<Entry>, Option<Duration>) {
        let (mut entries, mut next) = (Vec::new(), None);
        for (account, left) in self.all.iter_mut().filter(|(_, left)| !left.folded.outcomes.is_empty()) {
            let told = left.folded.told.unwrap_or(now);
            let due = FOLD.saturating_sub(now.saturating_duration_since(told));
            if everything || due.is_zero() {
                let mut entry = account.summary();
                left.folded.tell_in(&mut entry);
                left.folded.told = Some(now);
                entries.push(entry);
            } else {
                next = Some(next.map_or(due, |next: Duration| next.min(due)));
            }
        }
        (entries, next)
    }

    fn is_burst(&mut self, now: Instant) -> bool {
        let (since, recorded) = &mut self.strangers;
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *recorded) = (now, 0);
        }
        *recorded += 1;
        *recorded > STRANGERS_PER_SECOND
    }

    fn of(&mut self, account: &Account, now: Instant) -> &mut Left {
        let mut account = account;
        if self.all.len() >= ACCOUNTS_MAX && !self.all.contains_key(account) {
            if now.saturating_duration_since(self.cleared) >= CLEARING {
                self.cleared = now;
                self.all.retain(|_, left| !left.is_full(now));
            }
            if self.all.len() >= ACCOUNTS_MAX {
                account = &Account::Others;
            }
        }
        let bytes = self.bytes;
        self.all.entry(account.clone()).or_insert_with(|| Left {
            changes: Budget { left: bytes, most: bytes, counted: now },
            failed: Budget { left: bytes / FAILED_PART, most: bytes / FAILED_PART, counted: now },
            folded: Folded::default(),
        })
    }
}

impl Account {
    /// A record about requests of this account that have none of their own.
    fn summary(&self) -> Entry {
        let (token, user) = match self {
            Self::User(user) => (None, Some(user.clone())),
            Self::Token(token, user) => (Some(token.clone()), user.clone()),
            Self::Strangers | Self::Others => (None, None),
        };
        Entry { token, user, ..Entry::of_service("folded") }
    }
}

impl Left {
    /// Tells whether nothing would be lost if this were forgotten.
    fn is_full(&mut self, now: Instant) -> bool {
        self.changes.fill(now);
        self.failed.fill(now);
        self.folded.outcomes.is_empty()
            && self.changes.left == self.changes.most
            && self.failed.left == self.failed.most
    }
}

impl Budget {
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted).as_millis();
        let fresh = u128::from(self.most) * passed / DAY.as_millis();
        // Parts of a byte are counted the next time.
        if fresh > 0 {
            self.left = self.left.saturating_add(u64::try_from(fresh).unwrap_or(u64::MAX)).min(self.most);
            self.counted = now;
        }
    }

    /// Seconds until a usual record fits in.
    fn seconds_to_a_record(&self) -> u64 {
        const USUAL_BYTES: u64 = 512;
        (USUAL_BYTES * DAY.as_secs()).div_ceil(self.most.max(1)).clamp(1, 3600)
    }
}

impl Folded {
    /// Moves the numbers into a record.
    fn tell_in(&mut self, entry: &mut Entry) {
        entry.suppressed = self.outcomes.values().sum();
        entry.suppressed_outcomes = std::mem::take(&mut self.outcomes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(outcome: &str) -> Entry {
        Entry { outcome: outcome.to_owned(), ..Entry::of_service("PUT /v1/x") }
    }

    fn alice() -> Account {
        Account::User("alice".to_owned())
    }

    #[test]
    fn changes_are_always_recorded_and_refused_when_the_budget_is_spent_until_it_fills() {
        let begin = Instant::now();
        let mut accounts = Accounts::new(10_000, begin);
        let mut made = 0;
        while accounts.admits(&alice(), begin).is_ok() {
            assert!(accounts.charge(&alice(), Effect::Change, entry("ok"), begin).is_some());
            made += 1;
        }
        let weight = entry("ok").weight();
        assert_eq!(made, 10_000_u64.div_ceil(weight));
        // A request that was under way is recorded all the same, and others have budgets of their own.
        assert!(accounts.charge(&alice(), Effect::Change, entry("ok"), begin).is_some());
        assert!(accounts.admits(&Account::User("bob".to_owned()), begin).is_ok());
        let wait = accounts.admits(&alice(), begin).unwrap_err();
        assert!(wait > 1);
        assert!(accounts.admits(&alice(), begin + Duration::from_secs(wait)).is_ok());
    }

    #[test]
    fn failed_requests_over_the_budget_are_counted_and_never_lost() {
        let begin = Instant::now();
        let mut accounts = Accounts::new(100_000, begin);
        let (mut told, mut counted) = (0, 0);
        for number in 0..1000_u64 {
            // A second apart: for more than one fold.
            let now = begin + Duration::from_secs(number);
            let outcome = if number % 2 == 0 { "not_found" } else { "denied" };
            if let Some(entry) = accounts.charge(&alice(), Effect::Nothing, entry(outcome), now) {
                (told, counted) = (told + 1, counted + entry.suppressed);
            }
            assert!(accounts.admits(&alice(), now).is_ok(), "failures take nothing from changes");
        }
        assert!(told < 20, "{told}");
        let (rest, next) = accounts.folded(true, begin + Duration::from_secs(1000));
        assert_eq!(next, None);
        let [rest] = &rest[..] else { panic!("{rest:?}") };
        assert_eq!((rest.action.as_str(), rest.user.as_deref()), ("folded", Some("alice")));
        assert_eq!(rest.suppressed, rest.suppressed_outcomes.values().sum::<u64>());
        assert_eq!(told + counted + rest.suppressed, 1000);
        assert!(accounts.folded(true, begin + Duration::from_secs(1000)).0.is_empty());
    }

    #[test]
    fn what_was_folded_is_told_by_itself_after_a_while() {
        let begin = Instant::now();
        let mut accounts = Accounts::new(32, begin);
        assert!(
            accounts.charge(&alice(), Effect::Nothing, entry("denied"), begin).is_some(),
            "the first is always told"
        );
        assert!(accounts.charge(&alice(), Effect::Nothing, entry("denied"), begin).is_none());
        assert_eq!(accounts.folded(false, begin), (Vec::new(), Some(FOLD)));
        let (told, next) = accounts.folded(false, begin + FOLD);
        assert_eq!((told.len(), told[0].suppressed, next), (1, 1, None));
    }

    #[test]
    fn accounts_are_bounded() {
        let begin = Instant::now();
        let mut accounts = Accounts::new(1_000_000, begin);
        for number in 0..ACCOUNTS_MAX + 1000 {
            let account = Account::Token("t".to_owned(), Some(number.to_string()));
            assert!(accounts.charge(&account, Effect::Change, entry("ok"), begin).is_some());
        }
        assert_eq!(accounts.all.len(), ACCOUNTS_MAX + 1);
        accounts.charge(&alice(), Effect::Change, entry("ok"), begin + DAY);
        assert!(accounts.all.len() < 5, "full ones are forgotten");
    }
}

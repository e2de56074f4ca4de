//! [`Forks`]: how many processes and threads a run may still make.

use std::time::{Duration, Instant};

use crate::census;

/// How long a run that was found to have all of its share is refused more without another look.
const FULL: Duration = Duration::from_millis(10);

/// The share of a run, and how much of it may be left.
///
/// Processes are counted only when as many were made as there was room for at the last count, so that a run which
/// makes few costs no count at all. What is being made during a count may be missed by it: for a moment a run can have
/// less than twice its share.
#[derive(Debug)]
pub(super) struct Forks {
    group: i32,
    most: u64,
    left: u64,
    full_until: Option<Instant>,
}

impl Forks {
    /// The share `most` of the run in the process group `group`, which has one process.
    pub(super) fn new(group: i32, most: u64) -> Self {
        Self { group, most, left: most.saturating_sub(1), full_until: None }
    }

    /// Tells whether the run may make one more, and counts it.
    pub(super) fn admit(&mut self) -> bool {
        self.admit_at(Instant::now(), census::of_group)
    }

    fn admit_at(&mut self, now: Instant, count: impl FnOnce(i32) -> Option<u64>) -> bool {
        if self.left == 0 {
            if self.full_until.is_some_and(|until| now < until) {
                return false;
            }
            // Where nothing can be counted, nothing more is made.
            let there = count(self.group).unwrap_or(u64::MAX);
            self.left = self.most.saturating_sub(there);
            self.full_until = (self.left == 0).then(|| now + FULL);
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted_only_when_its_share_may_be_used_up() {
        let now = Instant::now();
        let never = |_| -> Option<u64> { panic!("counted") };
        let mut forks = Forks::new(7, 4);
        for _ in 0..3 {
            assert!(forks.admit_at(now, never));
        }
        // Three of the four have ended.
        assert!(forks.admit_at(now, |group| (group == 7).then_some(1)));
        assert!(forks.admit_at(now, never) && forks.admit_at(now, never));
        // All live.
        assert!(!forks.admit_at(now, |_| Some(4)));
        assert!(!forks.admit_at(now + FULL / 2, never));
        assert!(forks.admit_at(now + FULL, |_| Some(3)));
        assert!(!forks.admit_at(now + FULL, |_| None));
    }
}

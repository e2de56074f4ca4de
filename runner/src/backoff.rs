//! [`Backoff`]: how long to wait before connecting again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
/// The longest pause unless told otherwise.
pub(crate) const LONGEST_SECONDS: u64 = 60;
/// A connection that lasted as long was a good one.
const GOOD: Duration = Duration::from_secs(60);

/// Pauses of 1, 2, 4 … seconds, each with up to a quarter more, so that runners do not all come at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// No pause is longer than `longest` and a quarter.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { next: FIRST.min(longest), longest }
    }

    /// The pause after a connection that `lasted`; `random` decides how much more it is.
    pub(crate) fn pause(&mut self, lasted: Duration, random: u64) -> Duration {
        if lasted >= GOOD {
            self.next = FIRST.min(self.longest);
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        let more_ms = u64::try_from(pause.as_millis() / 4).unwrap_or(0);
        pause + Duration::from_millis(random % (more_ms + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_minute_and_begin_anew_after_a_good_connection() {
        let mut backoff = Backoff::new(Duration::from_secs(LONGEST_SECONDS));
        let mut pauses = |count: usize, lasted: u64, random: u64| -> Vec<f32> {
            let mut pause = || backoff.pause(Duration::from_secs(lasted), random).as_secs_f32();
            std::iter::repeat_with(&mut pause).take(count).collect()
        };
        assert_eq!(pauses(8, 0, 0), [1., 2., 4., 8., 16., 32., 60., 60.]);
        assert_eq!(pauses(1, 60, 250), [1.25]);
        assert_eq!(pauses(2, 59, 251), [2.251, 4.251]);
        assert!(pauses(9, 0, u64::MAX).iter().all(|pause| *pause <= 75.));
    }
}

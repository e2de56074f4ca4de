//! [`Pace`]: how fast a run makes connections of TCP over the loopback interface.

use std::time::{Duration, Instant};

/// The connections that a run makes at once without a pause, and the pause before each further one: an ended connection
/// takes a port of the loopback interface for a minute more.
const BURST: u32 = 128;
const PAUSE: Duration = Duration::from_millis(40);

/// How fast a run makes connections.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many it may make at once.
    left: u32,
    /// Since when one more is granted with each [`PAUSE`].
    since: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Counts one more; how long to wait before it.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        let pauses = now.saturating_duration_since(self.since).as_millis() / PAUSE.as_millis();
        let granted = u32::try_from(pauses).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(granted).min(BURST);
        self.since = if self.left == BURST { now } else { self.since + PAUSE * granted };
        if self.left > 0 {
            self.left -= 1;
            return Duration::ZERO;
        }
        // The one that the pause grants.
        self.since += PAUSE;
        self.since.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_each_waits_for_its_turn() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.pause(start), Duration::ZERO);
        }
        assert_eq!(pace.pause(start), PAUSE);
        assert_eq!(pace.pause(start + PAUSE), PAUSE);
        assert_eq!(pace.pause(start + 2 * PAUSE + PAUSE / 2), PAUSE / 2);
        // A run that made none for a while may make as many at once again, and no more.
        let later = start + PAUSE * (3 * BURST);
        for _ in 0..BURST {
            assert_eq!(pace.pause(later), Duration::ZERO);
        }
        assert_eq!(pace.pause(later), PAUSE);
    }
}

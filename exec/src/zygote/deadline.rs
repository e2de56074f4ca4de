//! How long the launcher lets a run live that the service should have ended.

use std::time::Duration;

/// How much longer than its deadline a run lives when the service does not end it.
const GRACE: Duration = Duration::from_secs(1);
/// Longest deadline that is counted, in milliseconds: a year.
const DEADLINE_MAX_MS: u64 = 366 * 24 * 3600 * 1000;

/// How long the launcher lets a run live that may take `deadline_ms`.
pub(super) fn allowed(deadline_ms: u64) -> Duration {
    Duration::from_millis(deadline_ms.min(DEADLINE_MAX_MS)) + GRACE
}

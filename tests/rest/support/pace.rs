//! How slow this machine is: `FILESECBOX_TEST_SLOWNESS`, a whole number, 1 without it; an emulated processor has 10 or more.
//!
//! Deadlines of runs, and the times that a judgement allows, are as many times as long. Otherwise a deadline is over before the
//! program has begun, and nothing is known of what it would have done.

use std::time::Duration;

/// How many times as long everything takes here.
pub(crate) fn slowness() -> u32 {
    let text = std::env::var("FILESECBOX_TEST_SLOWNESS").unwrap_or_default();
    text.parse().ok().filter(|times| *times > 0).unwrap_or(1)
}

/// A time that is enough on a real processor, as it is enough here.
pub(crate) fn paced(time: Duration) -> Duration {
    time * slowness()
}

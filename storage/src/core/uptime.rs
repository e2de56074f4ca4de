//! [`Uptime`]: the clock by which sandboxes grow idle: for how long services have run on this store, all in all.
//!
//! No clock of the host decides what is removed. This one stands still while no service runs, is not moved when the
//! time is set, and after a crash goes on from where it was last kept, which is never ahead of the truth. So every
//! error makes a sandbox look younger than it is.

use std::time::Instant;

use crate::dir::Dir;
use crate::error::Result;

/// The attribute of the directory of all sandboxes that keeps it: milliseconds in decimal digits.
const KEPT: &str = "user.filesecbox.uptime";

/// For how long services have run on a store.
pub(crate) struct Uptime {
    before_ms: u64,
    since: Instant,
}

impl Uptime {
    /// Goes on from what is kept at `sandboxes`; from 0 when there is nothing, or nothing that can be read.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn resume(sandboxes: &Dir) -> Result<Self> {
        let kept = sandboxes.attribute(KEPT)?.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        Ok(Self { before_ms: kept.unwrap_or(0), since: Instant::now() })
    }

    /// In milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        let since = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.before_ms.saturating_add(since)
    }

    /// Keeps it at `sandboxes` for the next start.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn keep(&self, sandboxes: &Dir) -> Result<()> {
        sandboxes.set_attribute(KEPT, self.now_ms().to_string().as_bytes())
    }
}

//! Letting publications pass: a request that is about to read a skill for long waits, without a thread, while a publication
//! waits for the readers of that skill. Short readers go on; see [`storage::Store::awaits_publication`].

use std::time::{Duration, Instant};

use crate::ops::Service;
use crate::ops::error::{Error, Result};

/// How long publications are let pass before the request is refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether one waits still.
const LOOK: Duration = Duration::from_millis(5);

impl Service {
    /// Waits as long as `awaits` tells that a publication waits.
    ///
    /// # Errors
    /// [`Error::Busy`] after ten seconds.
    pub(in crate::ops) async fn let_publications_pass(&self, awaits: impl Fn() -> bool) -> Result<()> {
        if !awaits() {
            return Ok(());
        }
        let begun = Instant::now();
        while awaits() {
            if begun.elapsed() >= PATIENCE {
                let what =
                    "a new version of the skill is about to be published, and waits for others who read it";
                return Err(Error::Busy { what, retry_after_seconds: 5 });
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

//! Stopping in order: no new runs, those under way end by themselves or are ended with what they wrote, and their callers
//! are told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exec::ExecResult;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::run::confined::Confined;

/// How long runs that were killed may take until their results are told.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The hint of a run that was killed for the stop of the service.
const HINT: &str = "the service is stopping and ended the run: the output is what it had written until then";

/// How far a stop has come.
#[derive(Debug, Default)]
pub struct Stopping {
    /// Set from the first moment of a stop on.
    has_begun: CancellationToken,
    /// Set when runs under way are killed.
    is_killing: AtomicBool,
}

impl Stopping {
    /// Tells whether the service is stopping.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun.is_cancelled()
    }

    /// Adds why a run was killed, if it was for the stop.
    pub(super) fn explain(&self, result: &mut ExecResult<Confined>) {
        let is_killed = result.signal.is_some() && !result.timed_out && result.limit.is_none();
        if is_killed && self.is_killing.load(Ordering::Relaxed) {
            result.hint = Some(HINT.to_owned());
        }
    }
}

impl Service {
    /// Refuses new runs and waits for the end of those under way. Those that take longer than `grace` are killed, and their
    /// callers get what they wrote; what cannot even tell that in time is dropped.
    pub async fn drain(&self, grace: Duration) {
        self.stopping.has_begun.cancel();
        self.runs.close();
        if tokio::time::timeout(grace, self.runs.wait()).await.is_ok() {
            return;
        }
        tracing::warn!("killing runs that did not end within `shutdown_ms`");
        self.stopping.is_killing.store(true, Ordering::Relaxed);
        let ended = async {
            loop {
                // Again and again: a run may have been admitted before the stop, and begin only now.
                self.table.kill_all();
                self.unnamed.all().iter().for_each(|run| run.kill());
                if tokio::time::timeout(Duration::from_millis(100), self.runs.wait()).await.is_ok() {
                    return;
                }
            }
        };
        if tokio::time::timeout(LAST_WORDS, ended).await.is_err() {
            tracing::warn!("dropping runs that do not end although they were killed");
            self.stop.cancel();
            self.runs.wait().await;
        }
    }
}

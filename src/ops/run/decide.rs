//! Deciding about what a run did aside: taking it in, or dropping it.

use storage::Absorbed;

use super::pending::{Decision, Pending, Verdict};
use super::record::Recorded;
use crate::ops::{Error, Result, blocking};

impl Recorded {
    /// The state of its changes; `None` for a run that asked for no decision, or has not ended.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.lock().as_ref().map(|verdict| verdict.decision)
    }

    /// Takes the changes of the run into the skill. When the skill would become too large, nothing is taken in,
    /// [`Absorbed::refused`] says why, and the decision stays open.
    ///
    /// # Errors
    /// [`Error::NotNow`] when there is nothing to decide; [`Error::Storage`] when the skill was removed meanwhile or
    /// the disk failed: what was not taken in by then is gone.
    pub async fn commit(&self) -> Result<Absorbed> {
        let pending = self.decide(Decision::Underway)?;
        let absorbed = blocking(move || match pending.prepared.absorb() {
            Ok(absorbed) => Ok((absorbed, pending)),
            Err(error) => Err(error.into()),
        });
        let (decision, absorbed) = match absorbed.await {
            Ok((absorbed, pending)) if absorbed.refused.is_some() => {
                *self.verdict.lock() = Some(Verdict { decision: Decision::Open, pending: Some(pending) });
                return Ok(absorbed);
            }
            Ok((absorbed, pending)) => {
                drop_aside(pending);
                (Decision::Committed, Ok(absorbed))
            }
            Err(error) => (Decision::Discarded, Err(error)),
        };
        *self.verdict.lock() = Some(Verdict { decision, pending: None });
        absorbed
    }

    /// Drops the changes of the run.
    ///
    /// # Errors
    /// [`Error::NotNow`] when there is nothing to decide.
    pub fn discard(&self) -> Result<()> {
        drop_aside(self.decide(Decision::Discarded)?);
        Ok(())
    }

    fn decide(&self, decision: Decision) -> Result<Pending> {
        const NOTHING: Error = Error::NotNow(
            "there is nothing to decide: the run goes on, was decided about, or was started without `commit`: `ask`",
        );
        let mut verdict = self.verdict.lock();
        let Some(verdict) = verdict.as_mut() else { return Err(NOTHING) };
        let Some(pending) = verdict.pending.take() else { return Err(NOTHING) };
        verdict.decision = decision;
        Ok(pending)
    }
}

/// Removes a copy in a thread that may wait.
fn drop_aside(mut pending: Pending) {
    pending.prepared.begin_to_leave();
    tokio::task::spawn_blocking(move || {
        let Pending { prepared, permit } = pending;
        drop(prepared);
        drop(permit);
    });
}

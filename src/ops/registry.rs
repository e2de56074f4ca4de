//! The registry: asking for rows, and having them made again.

use std::sync::Arc;

use storage::Shelf;

use super::Service;
use super::admission::Job;
use super::error::{Error, Result};
use crate::registry::{Answer, Question};

impl Service {
    /// The rows that `question` asks for.
    ///
    /// # Errors
    /// [`Error::Registry`].
    pub async fn registered(&self, question: Question) -> Result<Answer> {
        self.registry.ask(question).await.map_err(unanswered)
    }

    /// Makes all rows anew from the disk. Returns how many there are.
    ///
    /// # Errors
    /// [`Error::Registry`].
    pub async fn rebuild_registry(&self) -> Result<usize> {
        self.registry.rebuild().await.map_err(unanswered)
    }

    /// Does blocking work that names the shelves on which it may change what is published, and has their rows made again
    /// before it is answered. The rows are made also when the caller has left. What the work returns beside its result is
    /// dropped after that, in the place of the job.
    ///
    /// # Errors
    /// The error of `work`.
    pub(super) async fn publishing<T: Send + 'static, L: Send + 'static>(
        &self,
        job: Job,
        work: impl FnOnce(&mut Vec<Shelf>) -> Result<(T, L)> + Send + 'static,
    ) -> Result<T> {
        let registry = Arc::clone(&self.registry);
        let published = self.admission.work_and_clear(job, move || {
            let mut shelves = Vec::new();
            let done = work(&mut shelves);
            // Also after a failure: the shelves may have changed before it.
            let told = registry.changed(shelves);
            Ok(match done {
                Ok((done, left)) => ((Ok(done), told), Some(left)),
                Err(error) => ((Err(error), told), None),
            })
        });
        let (done, told) = published.await?;
        told.wait().await;
        done
    }
}

fn unanswered(error: crate::registry::Error) -> Error {
    tracing::warn!(error = %error, cause = ?std::error::Error::source(&error), "the registry does not answer");
    Error::Registry(error)
}

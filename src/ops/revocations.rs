//! Revoking signed tokens: written down first, so that no restart makes one count again, and in force before the answer.

use std::sync::Arc;

use storage::Store;

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use crate::access::revoked::{Revocation, Revocations, Revoked};

impl Service {
    /// Revokes tokens at `now` (seconds since the epoch), until `until`, when they have all expired. After this no request with
    /// one of them is let in.
    ///
    /// It is a task of its own: a caller who leaves must not leave a revocation on the disk that is not in force.
    ///
    /// # Errors
    /// [`Error::Full`] when there are too many; those of writing it down.
    pub async fn revoke_tokens(
        self: &Arc<Self>,
        in_force: Arc<Revocations>,
        revoked: Revoked,
        revocation: Revocation,
    ) -> Result<()> {
        let service = Arc::clone(self);
        let revoking = self.runs.spawn(async move {
            let text = serde_json::to_string(&revocation).map_err(|_| Error::Panicked)?;
            let (store, key, table) = (service.store.clone(), revoked.key(), Arc::clone(&in_force));
            let job = Job::about(None, Weight::Light).going_on();
            let keeping = service.work(job, move || {
                for expired in table.expire(revocation.at) {
                    store.keep_revocation(&expired.key(), None)?;
                }
                Ok(store.keep_revocation(&key, Some(&text))?)
            });
            match keeping.await {
                Err(Error::Storage(storage::Error::TooManyEntries(most))) => {
                    let what = format!("{most} revocations are in force");
                    let next = "revoke all tokens of a user in one, or change the key that signs tokens";
                    return Err(Error::Full { what, next, retry_after_seconds: 60 });
                }
                kept => kept?,
            }
            in_force.put(revoked.clone(), revocation);
            // A link that was made with a stolen token must not outlive it.
            service.revoke_shares_made_with(revoked).await
        });
        revoking.await.map_err(|_| Error::Panicked)?
    }
}

/// The revocations that the service has kept, of which those that mean nothing any more at `now` are forgotten.
///
/// # Errors
/// Those of [`Store::revocations`] and [`Store::keep_revocation`].
pub fn kept(store: &Store, now: u64) -> storage::Result<Revocations> {
    let revocations = Revocations::default();
    for (key, text) in store.revocations()? {
        match (Revoked::of_key(&key), serde_json::from_str::<Revocation>(&text)) {
            (Some(revoked), Ok(revocation)) if now < revocation.until => revocations.put(revoked, revocation),
            (Some(_), Ok(_)) => store.keep_revocation(&key, None)?,
            // Written by another version.
            _ => tracing::error!(
                "a revocation of tokens cannot be read: the tokens that it is about count again"
            ),
        }
    }
    Ok(revocations)
}

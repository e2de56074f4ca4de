//! [`hold`]: work under a lease, with its heartbeat. Nothing runs without the lease, and nothing counts that ran when it was lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{LeaseStore, StoreError};

/// How long the store may take to give a lease, or to take it back.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a lease lasts, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    ttl: Duration,
    heartbeat: Duration,
}

/// Why work under a lease gave no result.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Another caller holds it. The work did not begin.
    #[error("another caller holds the lease")]
    Held,
    /// The store could not be asked. The work did not begin.
    #[error("no lease could be had")]
    Unavailable(#[source] StoreError),
    /// It was lost while the work went on. The work was ended, or its result does not count.
    #[error("the lease was lost")]
    Lost,
}

impl Terms {
    /// A lease of `ttl`, renewed each `heartbeat`. `None` unless the heartbeat is longer than nothing and shorter than the lease.
    #[must_use]
    pub fn new(ttl: Duration, heartbeat: Duration) -> Option<Self> {
        (!heartbeat.is_zero() && heartbeat < ttl).then_some(Self { ttl, heartbeat })
    }

    /// A lease of three minutes, renewed six times in its time.
    #[must_use]
    pub const fn usual() -> Self {
        Self { ttl: Duration::from_secs(180), heartbeat: Duration::from_secs(30) }
    }
}

/// A lease that is held; dropping it gives it back.
struct Held {
    store: Arc<dyn LeaseStore>,
    key: String,
    token: String,
    /// Whether it was given back, or never was held.
    is_over: bool,
}

impl Held {
    async fn release(store: &dyn LeaseStore, key: &str, token: &str) {
        match timeout(PATIENCE, store.release(key, token)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, key, "failed to give a lease back: it ends by itself"),
            Err(_) => tracing::warn!(key, "a lease could not be given back in time: it ends by itself"),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (key, token) = (std::mem::take(&mut self.key), std::mem::take(&mut self.token));
        // Without a runtime the lease ends by itself.
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.is_over) else { return };
        let store = Arc::clone(&self.store);
        runtime.spawn(async move { Self::release(&*store, &key, &token).await });
    }
}

/// Does `work` under the lease of `key`. One attempt is made to get it; nothing waits for another holder.
///
/// The lease is renewed meanwhile. When another token holds it, or it could not be renewed until its time was over, `work` is
/// dropped; a result that comes when the lease is lost does not count.
///
/// # Errors
/// [`LeaseError`].
pub async fn hold<T>(
    store: &Arc<dyn LeaseStore>,
    key: &str,
    terms: Terms,
    work: impl Future<Output = T>,
) -> Result<T, LeaseError> {
    let token = fresh_token().map_err(LeaseError::Unavailable)?;
    let asked = Instant::now();
    // Before it is asked for: the store may have given it although its answer was lost.
    let mut held = Held { store: Arc::clone(store), key: key.to_owned(), token, is_over: false };
    match timeout(PATIENCE.min(terms.ttl), store.acquire(key, &held.token, terms.ttl)).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => {
            held.is_over = true;
            return Err(LeaseError::Held);
        }
        Ok(Err(error)) => return Err(LeaseError::Unavailable(error)),
        Err(_) => return Err(LeaseError::Unavailable(StoreError("it did not answer in time".to_owned()))),
    }
    // From before the request, so that it never ends later here than there.
    let until = Mutex::new(asked + terms.ttl);
    let outcome = tokio::select! {
        biased;
        () = keep(&held, terms, &until) => Err(LeaseError::Lost),
        done = work => Ok(done),
    };
    let outcome = match outcome {
        Ok(_) if !is_still_held(&held, terms, &until).await => Err(LeaseError::Lost),
        other => other,
    };
    Held::release(&*held.store, &held.key, &held.token).await;
    held.is_over = true;
    outcome
}

/// Renews the lease for as long as it can be; ends when it is lost.
async fn keep(held: &Held, terms: Terms, until: &Mutex<Instant>) {
    loop {
        let last = *until.lock();
        sleep_until((Instant::now() + terms.heartbeat).min(last)).await;
        if !renew(held, terms, until).await {
            return;
        }
    }
}

/// Renews the lease. An error of the store alone loses nothing before the time is over.
async fn renew(held: &Held, terms: Terms, until: &Mutex<Instant>) -> bool {
    let (last, asked) = (*until.lock(), Instant::now());
    let answer_by = last.min(asked + terms.heartbeat);
    match timeout_at(answer_by, held.store.renew(&held.key, &held.token, terms.ttl)).await {
        Ok(Ok(true)) => {
            *until.lock() = asked + terms.ttl;
            true
        }
        Ok(Ok(false)) => false,
        Ok(Err(error)) => {
            tracing::warn!(%error, key = held.key, "failed to renew a lease");
            Instant::now() < last
        }
        Err(_) => Instant::now() < last,
    }
}

/// Tells whether the lease is held now that the work is done.
async fn is_still_held(held: &Held, terms: Terms, until: &Mutex<Instant>) -> bool {
    Instant::now() < *until.lock() && renew(held, terms, until).await
}

/// A token that no other caller has.
fn fresh_token() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

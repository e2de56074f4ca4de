//! [`hold`]: work under a [`Lease`], with its heartbeat. Nothing runs without the lease, and nothing counts that ran when it was
//! lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Epoch, LeaseStore, StoreError};

/// How long the store may take to give a lease, or to take it back.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long work waits at most before it asks again a store that does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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

/// The lease that work is done under.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Holding>);

#[derive(Debug)]
struct Holding {
    store: Arc<dyn LeaseStore>,
    key: String,
    token: String,
    epoch: Epoch,
    terms: Terms,
    /// When it ends, were it not renewed any more.
    until: Mutex<Instant>,
    /// Has the work ended.
    lost: CancellationToken,
}

/// What became of asking the store for more time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// The lease is held for its whole time from now.
    Held,
    /// Another has it, or it has ended.
    Refused,
    /// The store could not be asked. The lease lasts as long as it was to last.
    Unanswered,
}

impl Lease {
    /// The key that it is of.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// Which acquisition of the key it is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// Returns when the store has just said that the lease is held, for its whole time from then: to be asked before each
    /// step that cannot be taken back. While the store does not answer it is asked again.
    ///
    /// Never returns when the lease is lost: the work is dropped.
    pub async fn confirm(&self) {
        let holding = &*self.0;
        loop {
            let last = *holding.until.lock();
            match holding.renew().await {
                Renewal::Held if !holding.lost.is_cancelled() => return,
                Renewal::Unanswered if Instant::now() < last => {
                    let pause = holding.terms.heartbeat.min(PAUSE_MAX);
                    sleep(pause.min(last.saturating_duration_since(Instant::now()))).await;
                }
                Renewal::Held | Renewal::Refused | Renewal::Unanswered => break,
            }
        }
        holding.lost.cancel();
        std::future::pending().await
    }
}

impl Holding {
    /// Renews the lease for as long as it can be; ends when it is lost.
    async fn keep(&self) {
        loop {
            let last = *self.until.lock();
            sleep_until((Instant::now() + self.terms.heartbeat).min(last)).await;
            if !self.is_held().await {
                return;
            }
        }
    }

    /// Renews the lease. An error of the store alone loses nothing before the time is over.
    async fn is_held(&self) -> bool {
        let last = *self.until.lock();
        match self.renew().await {
            Renewal::Held => true,
            Renewal::Refused => false,
            Renewal::Unanswered => Instant::now() < last,
        }
    }

    async fn renew(&self) -> Renewal {
        let (last, asked) = (*self.until.lock(), Instant::now());
        let answer_by = last.min(asked + self.terms.heartbeat);
        match timeout_at(answer_by, self.store.renew(&self.key, &self.token, self.terms.ttl)).await {
            Ok(Ok(true)) => {
                let mut until = self.until.lock();
                *until = (*until).max(asked + self.terms.ttl);
                Renewal::Held
            }
            Ok(Ok(false)) => Renewal::Refused,
            Ok(Err(error)) => {
                tracing::warn!(%error, key = self.key, "failed to renew a lease");
                Renewal::Unanswered
            }
            Err(_) => Renewal::Unanswered,
        }
    }
}

/// A lease that is to be given back when this is dropped.
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
pub async fn hold<T, W: Future<Output = T>>(
    store: &Arc<dyn LeaseStore>,
    key: &str,
    terms: Terms,
    work: impl FnOnce(Lease) -> W,
) -> Result<T, LeaseError> {
    let token = fresh_token().map_err(LeaseError::Unavailable)?;
    let asked = Instant::now();
    // Before it is asked for: the store may have given it although its answer was lost.
    let mut held =
        Held { store: Arc::clone(store), key: key.to_owned(), token: token.clone(), is_over: false };
    let epoch = match timeout(PATIENCE.min(terms.ttl), store.acquire(key, &token, terms.ttl)).await {
        Ok(Ok(Some(epoch))) => epoch,
        Ok(Ok(None)) => {
            held.is_over = true;
            return Err(LeaseError::Held);
        }
        Ok(Err(error)) => return Err(LeaseError::Unavailable(error)),
        Err(_) => return Err(LeaseError::Unavailable(StoreError("it did not answer in time".to_owned()))),
    };
    let holding = Arc::new(Holding {
        store: Arc::clone(store),
        key: key.to_owned(),
        token,
        epoch,
        terms,
        // From before the request, so that it never ends later here than there.
        until: Mutex::new(asked + terms.ttl),
        lost: CancellationToken::new(),
    });
    let outcome = tokio::select! {
        biased;
        () = holding.keep() => Err(LeaseError::Lost),
        () = holding.lost.cancelled() => Err(LeaseError::Lost),
        done = work(Lease(Arc::clone(&holding))) => Ok(done),
    };
    let is_over = Instant::now() >= *holding.until.lock();
    let outcome = match outcome {
        Ok(_) if is_over || !holding.is_held().await => Err(LeaseError::Lost),
        other => other,
    };
    // What is left of the work, elsewhere, acts no more.
    holding.lost.cancel();
    Held::release(&*held.store, &held.key, &held.token).await;
    held.is_over = true;
    outcome
}

/// A token that no other caller has.
fn fresh_token() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError(error.to_string()))?;
    Ok(hex::encode(bytes))
}

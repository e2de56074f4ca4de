//! Leases: work that one caller alone may do for a while, and that ends when the lease is lost.
//!
//! * [`LeaseStore`]: who holds which lease. [`LocalLeases`]: within this process; [`RedisLeases`]: in a Redis;
//!   [`PostgresLeases`]: in a PostgreSQL. [`of_url`]: the store that a setting names.
//! * [`mod@hold`]: work under a lease, with its heartbeat.

#[cfg(test)]
mod contract;
mod hold;
mod local;
mod postgres;
#[cfg(test)]
#[expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a skipped test says why, and a server is started"
)]
mod postgres_server;
mod postgres_tls;
mod redis;
mod url;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

pub use self::hold::{Lease, LeaseError, Terms, hold};
pub use self::local::LocalLeases;
pub use self::postgres::PostgresLeases;
pub use self::redis::RedisLeases;
pub use self::url::{UrlError, of_url};

/// The store of leases could not be asked.
#[derive(Debug, Error)]
#[error("the store of leases cannot be asked: {0}")]
pub struct StoreError(pub String);

/// Which acquisition of a lease this is: of two of one key, the later one has the higher number.
///
/// It is the time of the store in microseconds, raised where that would repeat or go back. So it rises further when a store has
/// forgotten a lease, and what a former holder left can be told from what the present one leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Who holds which lease.
///
/// The promises of every store, which `contract.rs` checks:
///
/// * Of any number of callers that ask for one key at once, one gets it.
/// * A lease that is not renewed within its time is free again.
/// * Only the token that a lease was given under renews or releases it, in one step with the comparison.
/// * Each acquisition of a key has a higher epoch than those before it.
/// * Time is the store's own: a caller whose clock is wrong gets a lease neither early nor for longer.
#[async_trait]
pub trait LeaseStore: fmt::Debug + Send + Sync {
    /// Takes the lease of `key` for `ttl` under `token`, which no other caller has. `None` when another holds it; nothing waits.
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<Option<Epoch>, StoreError>;

    /// Prolongs the lease to `ttl` from now. Tells whether `token` still holds it.
    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError>;

    /// Gives the lease back. Tells whether `token` still held it.
    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError>;
}

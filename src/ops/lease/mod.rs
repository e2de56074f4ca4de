//! Leases: work that one caller alone may do for a while, and that ends when the lease is lost.
//!
//! * [`LeaseStore`]: who holds which lease. [`LocalLeases`]: within this process; [`RedisLeases`]: in a Redis.
//! * [`mod@hold`]: work under a lease, with its heartbeat.

#[cfg(test)]
mod contract;
mod hold;
mod local;
mod redis;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

pub use self::hold::{LeaseError, Terms, hold};
pub use self::local::LocalLeases;
pub use self::redis::RedisLeases;

/// The store of leases could not be asked.
#[derive(Debug, Error)]
#[error("the store of leases cannot be asked: {0}")]
pub struct StoreError(pub String);

/// Who holds which lease.
///
/// The promises of every store, which `contract.rs` checks:
///
/// * Of any number of callers that ask for one key at once, one gets it.
/// * A lease that is not renewed within its time is free again.
/// * Only the token that a lease was given under renews or releases it, in one step with the comparison.
#[async_trait]
pub trait LeaseStore: fmt::Debug + Send + Sync {
    /// Takes the lease of `key` for `ttl` under `token`, which no other caller has. Tells whether it was free; nothing waits.
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError>;

    /// Prolongs the lease to `ttl` from now. Tells whether `token` still holds it.
    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError>;

    /// Gives the lease back. Tells whether `token` still held it.
    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError>;
}

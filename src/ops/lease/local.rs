//! [`LocalLeases`]: leases within this process, for a service that runs once.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Epoch, LeaseStore, StoreError};

/// Leases at once. The service bounds the work under them far below.
const LEASES_MAX: usize = 100_000;

/// Leases within this process.
#[derive(Debug, Default)]
pub struct LocalLeases {
    held: Mutex<HashMap<String, Held>>,
    /// The epoch of the last acquisition, of any key.
    epoch: Mutex<u64>,
}

#[derive(Debug)]
struct Held {
    token: String,
    until: Instant,
}

impl LocalLeases {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Held>, Instant) -> T) -> T {
        act(&mut self.held.lock(), Instant::now())
    }

    /// The clock is here for the order alone, beyond a restart: nothing ends by it.
    fn next_epoch(&self) -> Epoch {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let mut epoch = self.epoch.lock();
        *epoch = epoch.saturating_add(1).max(u64::try_from(now).unwrap_or_default());
        Epoch(*epoch)
    }
}

#[async_trait]
impl LeaseStore for LocalLeases {
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<Option<Epoch>, StoreError> {
        self.with(|held, now| {
            if held.get(key).is_some_and(|lease| lease.until > now) {
                return Ok(None);
            }
            if held.len() >= LEASES_MAX {
                held.retain(|_, lease| lease.until > now);
            }
            if held.len() >= LEASES_MAX {
                return Err(StoreError(format!("{LEASES_MAX} leases are held")));
            }
            held.insert(key.to_owned(), Held { token: token.to_owned(), until: now + ttl });
            Ok(Some(self.next_epoch()))
        })
    }

    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError> {
        self.with(|held, now| {
            let lease = held.get_mut(key).filter(|lease| lease.token == token && lease.until > now);
            let is_held = lease.is_some();
            if let Some(lease) = lease {
                lease.until = now + ttl;
            }
            Ok(is_held)
        })
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError> {
        self.with(|held, now| {
            let is_own = held.get(key).is_some_and(|lease| lease.token == token);
            let lease = if is_own { held.remove(key) } else { None };
            Ok(lease.is_some_and(|lease| lease.until > now))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::lease::contract;

    #[tokio::test(start_paused = true)]
    async fn leases_of_this_process_keep_the_contract() {
        contract::check(&LocalLeases::default(), tokio::time::sleep).await;
    }
}

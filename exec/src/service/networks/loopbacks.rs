//! [`Loopbacks`]: which user and agent has which loopback addresses, where runs share the network of the host.
//!
//! As with namespaces, the runs of one user, agent and network mode share theirs, and a run without an owner has some for
//! itself.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::loopback::Loopback;
use crate::network_owner::NetworkOwner;
use crate::tier::Network;

/// Owners whose addresses are kept while no run of theirs is under way. They cost some hundred bytes each.
const KEPT_MAX: usize = 4096;
/// How often other addresses are taken in the place of some that a run has; there are eight millions.
const TRIES_MAX: usize = 64;

/// The addresses that have an owner.
#[derive(Debug, Default)]
pub(crate) struct Loopbacks {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<(NetworkOwner, Network), Arc<Loopback>>,
    /// Those of runs without an owner.
    apart: Vec<Weak<Loopback>>,
}

impl Loopbacks {
    /// The addresses of a run of `owner`, kept or new.
    ///
    /// # Errors
    /// As `getrandom(2)`.
    pub(crate) fn of(&self, owner: Option<&NetworkOwner>, network: Network) -> io::Result<Arc<Loopback>> {
        let mut table = self.table();
        let Some(owner) = owner else {
            let new = Arc::new(table.another()?);
            table.apart.push(Arc::downgrade(&new));
            return Ok(new);
        };
        let key = (owner.clone(), network);
        if let Some(held) = table.held.get(&key) {
            return Ok(Arc::clone(held));
        }
        if table.held.len() >= KEPT_MAX {
            // Nothing listens where there is no run.
            table.held.retain(|_, held| Arc::strong_count(held) > 1);
        }
        let new = Arc::new(table.another()?);
        table.held.insert(key, Arc::clone(&new));
        Ok(new)
    }

    /// The addresses of `owner`, if it has some.
    pub(crate) fn kept(&self, owner: &NetworkOwner, network: Network) -> Option<Arc<Loopback>> {
        self.table().held.get(&(owner.clone(), network)).cloned()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in the table is half-changed at a point that can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Addresses that no run has.
    fn another(&mut self) -> io::Result<Loopback> {
        self.apart.retain(|held| held.strong_count() > 0);
        for _ in 0..TRIES_MAX {
            let new = Loopback::random()?;
            if !self.is_taken(new.address()) {
                return Ok(new);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn is_taken(&self, address: Ipv4Addr) -> bool {
        self.held.values().any(|held| held.address() == address)
            || self.apart.iter().filter_map(Weak::upgrade).any(|held| held.address() == address)
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;

    fn owner(user: &str, agent: &str) -> NetworkOwner {
        NetworkOwner { user: UserId::parse(user).unwrap(), agent: AgentId::parse(agent).unwrap() }
    }

    #[test]
    fn only_runs_of_one_user_and_agent_and_mode_share_addresses() {
        let loopbacks = Loopbacks::default();
        let of = |owner: Option<&NetworkOwner>, network| loopbacks.of(owner, network).unwrap();
        let first = of(Some(&owner("u", "a")), Network::None);
        assert!(Arc::ptr_eq(&first, &of(Some(&owner("u", "a")), Network::None)));
        assert!(loopbacks.kept(&owner("u", "a"), Network::Proxy).is_none());
        let mut seen = vec![first];
        for (owner, network) in [
            (Some(owner("u", "a")), Network::Proxy),
            (Some(owner("u", "b")), Network::None),
            (Some(owner("v", "a")), Network::None),
            (None, Network::None),
            (None, Network::None),
        ] {
            let other = of(owner.as_ref(), network);
            assert!(seen.iter().all(|own| own.address() != other.address()), "{owner:?} {network:?}");
            seen.push(other);
        }
    }

    #[test]
    fn the_addresses_of_owners_with_runs_stay_and_the_others_are_bounded() {
        let loopbacks = Loopbacks::default();
        let busy = loopbacks.of(Some(&owner("busy", "a")), Network::None).unwrap();
        for user in 0..2 * KEPT_MAX {
            drop(loopbacks.of(Some(&owner(&format!("u{user}"), "a")), Network::None).unwrap());
            assert!(loopbacks.table().held.len() <= KEPT_MAX);
        }
        let again = loopbacks.of(Some(&owner("busy", "a")), Network::None).unwrap();
        assert!(Arc::ptr_eq(&busy, &again));
    }
}

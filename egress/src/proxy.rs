//! [`Egress`]: the proxy as the service holds it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use policy::AgentId;
use tokio::sync::Semaphore;

use super::hosts::Hosts;
use super::names::{Names, Resolve, SystemResolver};
use super::pass::{Pass, Passes, Who};
use super::pending::Pending;
use super::route::Route;
use super::rules::Rules;
use super::settings::EgressConfig;

/// The only way out of a sandbox: judges targets, resolves names, connects, counts and logs.
pub struct Egress {
    pub(super) config: EgressConfig,
    pub(super) passes: Arc<Passes>,
    pub(super) route: Route,
    pub(super) connections: Semaphore,
    pub(super) pending: Arc<Pending>,
}

impl Egress {
    /// Makes a proxy that asks the system's resolver. It admits no run yet.
    #[must_use]
    pub fn new(config: EgressConfig) -> Arc<Self> {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// Makes a proxy that asks `resolver`.
    #[must_use]
    pub fn with_resolver(config: EgressConfig, resolver: Arc<dyn Resolve>) -> Arc<Self> {
        let names = Names::new(resolver, config.resolve);
        let rules = Rules::new(config.clone());
        Arc::new(Self {
            route: Route::new(rules, names, config.upstream.clone(), config.connect),
            connections: Semaphore::new(config.connections),
            passes: Arc::default(),
            pending: Arc::default(),
            config,
        })
    }

    /// Adds an address at which the service listens, known only after binding: nothing ever connects to it from
    /// here. An unspecified address stands for all of this machine's.
    pub fn protect(&self, address: SocketAddr) {
        self.route.protect(address);
    }

    /// Says from now on which hosts the runs of an agent reach, those under way included; with `None` those that all
    /// reach. Connections that are open stay.
    pub fn restrict(&self, agent: &AgentId, hosts: Option<Hosts>) {
        self.route.hosts.set(agent, hosts);
    }

    /// Lets a run use the proxy until the pass is dropped.
    ///
    /// # Errors
    /// The kernel has no random bytes (getrandom(2)).
    pub fn admit(&self, who: Who) -> io::Result<Pass> {
        self.passes.admit(who, &self.config)
    }
}

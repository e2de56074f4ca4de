//! The networks of runs: a namespace or loopback addresses of their user and agent, or of one run alone.

use std::io;
use std::sync::{Arc, PoisonError};

use tokio::sync::mpsc;

use super::Launcher;
use crate::error::Error;
use crate::network_owner::NetworkOwner;
use crate::service::networks::maker::NetworkMaker;
use crate::service::networks::{Listening, Made, RunNetwork};
use crate::supervisor::{ProxyConnection, ProxyLink};
use crate::tier::Network;

/// Connections to the egress proxy that wait for it to take them.
const CONNECTIONS_WAITING: usize = 256;

impl Launcher {
    /// Tells whether runs can use the egress proxy.
    #[must_use]
    pub fn offers_proxy(&self) -> bool {
        self.without_proxy().is_none()
    }

    /// Why runs cannot use the egress proxy; `None` when they can.
    #[must_use]
    pub fn without_proxy(&self) -> Option<String> {
        self.process().no_proxy.clone().or_else(|| self.unconnectable().map(str::to_owned))
    }

    /// The connections that commands without namespaces make to the egress proxy.
    ///
    /// For one task that serves them all; a second call ends the channel of the first. Without a task, or when it is
    /// [`CONNECTIONS_WAITING`] behind, connections are refused.
    #[must_use]
    pub fn proxy_connections(&self) -> mpsc::Receiver<ProxyConnection> {
        let (sender, receiver) = mpsc::channel(CONNECTIONS_WAITING);
        *self.proxy.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// The way of a run of `owner` to the egress proxy, where the service makes its connections.
    pub(crate) fn proxy_link(&self, owner: &NetworkOwner) -> Option<ProxyLink> {
        let proxy = self.proxy.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let port = self.config.proxy_port?;
        Some(ProxyLink { port, owner: owner.clone(), proxy })
    }

    /// The egress proxy's listener in each network namespace that has an owner, those of the moment and those to come.
    ///
    /// For one task that serves them all; a second call ends the channel of the first.
    #[must_use]
    pub fn listeners(&self) -> mpsc::UnboundedReceiver<Listening> {
        self.networks.listeners()
    }

    /// Lets go of network namespaces that no run has used for a while; to be called from time to time.
    pub fn let_idle_networks_go(&self) {
        self.networks.let_idle_go();
    }

    /// How many network namespaces are kept for users and agents.
    #[must_use]
    pub fn network_count(&self) -> usize {
        self.networks.count()
    }

    /// Where network namespaces come from; `None` where runs live in no namespaces.
    pub(crate) fn network_maker(&self) -> Option<Arc<NetworkMaker>> {
        self.process().networks.clone()
    }

    /// The network of a run with the mode `network`: that of `owner`, or one for this run alone.
    ///
    /// Waits only where no namespace is ready.
    ///
    /// # Errors
    /// [`Error::Networks`]: each namespace has a run in it.
    pub(crate) async fn network_of(
        &self,
        owner: Option<&NetworkOwner>,
        network: Network,
    ) -> Result<RunNetwork, Error> {
        let maker = match (self.network_maker(), network) {
            (_, Network::Host) => return Ok(RunNetwork::Shared),
            (None, Network::None | Network::Proxy) => {
                let loopback = self.loopbacks.of(owner, network).map_err(Error::resource("getrandom"))?;
                return Ok(RunNetwork::Loopback(loopback));
            }
            (Some(maker), Network::None | Network::Proxy) => maker,
        };
        let leave = |generations: &[u64]| self.residents.leave_network(generations);
        if let Some(owner) = owner
            && let Some(found) = self.networks.find(owner, network, &leave)?
        {
            return Ok(RunNetwork::Own(found));
        }
        match (take(maker).await, owner) {
            (Ok(made), Some(owner)) => self.networks.keep(owner, network, made, &leave).map(RunNetwork::Own),
            (Ok(made), None) => Ok(RunNetwork::Own(self.networks.apart(made, network))),
            (Err(error), _) => {
                tracing::warn!(
                    %error,
                    "failed to make a network namespace: the command runs without a network"
                );
                Ok(RunNetwork::Without(format!("no network namespace can be made: {error}").into()))
            }
        }
    }
}

/// Takes a namespace that is ready, or waits for one away from the runtime's own threads.
async fn take(maker: Arc<NetworkMaker>) -> io::Result<Made> {
    match maker.take_ready()? {
        Ok(made) => Ok(made),
        Err(asked) => {
            let waiting = tokio::task::spawn_blocking(move || maker.wait(&asked));
            waiting.await.unwrap_or_else(|error| Err(io::Error::other(error)))
        }
    }
}

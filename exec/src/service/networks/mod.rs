//! [`Networks`]: the network namespaces of users and agents, kept ready for their next command.
//!
//! All runs of one user, agent and network mode share a namespace: a server that one command started is reached by the
//! next over the loopback address. Nothing else is in it but the egress proxy's listener, with [`Network::Proxy`] only.
//! A namespace lives as long as a run or a resident is in it; after that it is kept for a while. When there are too
//! many, the one unused for longest goes, of its own user's before those of others. Where each has somebody in it, the
//! resident that has waited longest leaves.
//!
//! The table belongs to the service, and a namespace needs no process, so it outlives a launcher that ends.
//!
//! # References
//! `network_namespaces(7)`.

pub(crate) mod loopbacks;
pub(crate) mod maker;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::NetworkLimits;
use tokio::sync::{mpsc, watch};

use crate::error::Error;
use crate::loopback::Loopback;
use crate::network_owner::NetworkOwner;
use crate::tier::Network;
use crate::wire::Sockets;

/// The egress proxy's listener in a network namespace that has just got an owner.
#[derive(Debug)]
pub struct Listening {
    /// The user and agent whose runs connect to it.
    pub owner: NetworkOwner,
    /// The listening socket.
    pub listener: Arc<OwnedFd>,
    /// Ends with the namespace: then the holder of the listener must close it, or the kernel keeps both.
    pub gone: watch::Receiver<()>,
}

/// One of so many that may be held is a namespace that has had to give way and is not gone yet.
///
/// The kernel takes namespaces down in batches, and a batch of many costs hardly more than one of a single one: each looks
/// through all that the machine knows of TCP peers, and waits for all processors (`cleanup_net` in
/// net/core/net_namespace.c, `tcp_metrics_flush_all` in net/ipv4/tcp_metrics.c of Linux).
const LEAVING_PART: usize = 8;

/// A network namespace; the kernel takes it down when this is dropped and no process is in it.
#[derive(Debug)]
pub(crate) struct NetworkNamespace {
    namespace: OwnedFd,
    /// Tells it from every other, also from those that are gone.
    generation: u64,
    listener: Option<Arc<OwnedFd>>,
    gone: watch::Sender<()>,
}

impl NetworkNamespace {
    /// Where runs with [`Network::None`] live, the listener is closed: nothing listens there.
    pub(crate) fn new(made: Made, network: Network, generation: u64) -> Self {
        let listener = made.listener.filter(|_| network == Network::Proxy).map(Arc::new);
        Self { namespace: made.namespace, generation, listener, gone: watch::channel(()).0 }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

/// The network that a run lives in.
#[derive(Clone, Debug)]
pub(crate) enum RunNetwork {
    /// The network of the host, or none where runs see the host's root.
    Shared,
    /// Loopback addresses of the run's user and agent in the network of the host, where the service makes the run's
    /// connections: there, and to the egress proxy.
    Loopback(Arc<Loopback>),
    /// A namespace of the run's user and agent.
    Own(Arc<NetworkNamespace>),
    /// No namespace could be made, for this reason: the run cannot make a socket.
    Without(Arc<str>),
}

impl RunNetwork {
    /// The namespace, where it is the user's own.
    pub(crate) fn namespace(&self) -> Option<&Arc<NetworkNamespace>> {
        match self {
            Self::Own(namespace) => Some(namespace),
            Self::Shared | Self::Loopback(_) | Self::Without(_) => None,
        }
    }

    /// The loopback addresses of the run's user and agent, in the network of the host.
    pub(crate) fn loopback(&self) -> Option<&Arc<Loopback>> {
        match self {
            Self::Loopback(loopback) => Some(loopback),
            Self::Shared | Self::Own(_) | Self::Without(_) => None,
        }
    }

    /// Which sockets a run with `network` may make here; `connects` where the service can name and connect them for a run that
    /// sees those of the host.
    pub(crate) fn sockets(&self, network: Network, connects: bool) -> Sockets {
        match (self, network) {
            (Self::Own(_), _) => Sockets::OwnNetwork,
            (Self::Shared, Network::Host) => Sockets::HostNetwork,
            (Self::Loopback(_), Network::Proxy) => Sockets::Connected,
            (Self::Loopback(_), Network::None) if connects => Sockets::Connected,
            (Self::Shared | Self::Loopback(_) | Self::Without(_), _) => Sockets::Refused,
        }
    }
}

/// A network namespace, as the process that makes them hands it out.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) namespace: OwnedFd,
    /// The proxy's listener in it.
    pub(crate) listener: Option<OwnedFd>,
}

/// Has a resident leave a network namespace, one of these generations; `None` where none is in any.
pub(crate) type Leave<'a> = &'a dyn Fn(&[u64]) -> Option<()>;

/// The namespaces that have an owner.
#[derive(Debug)]
pub(crate) struct Networks {
    limits: NetworkLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<(NetworkOwner, Network), Held>,
    /// Those that gave way, until there are enough of them to go together. No run finds them any more.
    leaving: Vec<Arc<NetworkNamespace>>,
    /// The number of the last namespace.
    generation: u64,
    /// The channel to the task that serves the listeners.
    proxy: Option<mpsc::UnboundedSender<Listening>>,
}

#[derive(Debug)]
struct Held {
    namespace: Arc<NetworkNamespace>,
    used: Instant,
}

impl Held {
    /// Tells whether a run or a resident is in it. No other can come in while the table is locked.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.namespace) > 1
    }
}

impl Networks {
    pub(crate) fn new(limits: NetworkLimits) -> Self {
        Self { limits, table: Mutex::default() }
    }

    /// Sends the listeners of all namespaces, those of the moment and those to come, to the receiver that it returns.
    pub(crate) fn listeners(&self) -> mpsc::UnboundedReceiver<Listening> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut table = self.table();
        for ((owner, _), held) in &table.held {
            tell(&sender, owner, &held.namespace);
        }
        table.proxy = Some(sender);
        receiver
    }

    /// The namespace of `owner` for runs with `network`, if it is kept.
    ///
    /// # Errors
    /// [`Error::Networks`] when there is none and none may be made: each has a run in it.
    pub(crate) fn find(
        &self,
        owner: &NetworkOwner,
        network: Network,
        leave: Leave<'_>,
    ) -> Result<Option<Arc<NetworkNamespace>>, Error> {
        let mut table = self.table();
        if let Some(held) = table.held.get_mut(&(owner.clone(), network)) {
            held.used = Instant::now();
            return Ok(Some(Arc::clone(&held.namespace)));
        }
        table.make_room(owner, &self.limits, leave, false).map(|()| None)
    }

    /// The namespace of `owner` for runs with `network`, if it is kept; that is no use of it.
    pub(crate) fn kept(&self, owner: &NetworkOwner, network: Network) -> Option<Arc<NetworkNamespace>> {
        let table = self.table();
        table.held.get(&(owner.clone(), network)).map(|held| Arc::clone(&held.namespace))
    }

    /// Gives a new namespace to `owner`, unless another run was faster: then that one's counts.
    ///
    /// # Errors
    /// [`Error::Networks`]: each namespace has a run in it.
    pub(crate) fn keep(
        &self,
        owner: &NetworkOwner,
        network: Network,
        made: Made,
        leave: Leave<'_>,
    ) -> Result<Arc<NetworkNamespace>, Error> {
        let mut table = self.table();
        let key = (owner.clone(), network);
        if let Some(held) = table.held.get(&key) {
            return Ok(Arc::clone(&held.namespace));
        }
        table.make_room(owner, &self.limits, leave, true)?;
        let namespace = Arc::new(NetworkNamespace::new(made, network, table.next_generation()));
        if let Some(proxy) = &table.proxy {
            tell(proxy, owner, &namespace);
        }
        table.held.insert(key, Held { namespace: Arc::clone(&namespace), used: Instant::now() });
        Ok(namespace)
    }

    /// A namespace for one run, which no other run shares.
    pub(crate) fn apart(&self, made: Made, network: Network) -> Arc<NetworkNamespace> {
        Arc::new(NetworkNamespace::new(made, network, self.table().next_generation()))
    }

    /// Lets go of the namespaces that no run has used for [`NetworkLimits::idle_ms`].
    pub(crate) fn let_idle_go(&self) {
        let idle = Duration::from_millis(self.limits.idle_ms);
        let mut table = self.table();
        table.held.retain(|_, held| held.is_in_use() || held.used.elapsed() < idle);
        table.leaving.clear();
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.table().held.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in the table is half-changed at a point that can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Makes sure that one more namespace of `owner` is possible. With `evict`, lets go of those in its place.
    fn make_room(
        &mut self,
        owner: &NetworkOwner,
        limits: &NetworkLimits,
        leave: Leave<'_>,
        evict: bool,
    ) -> Result<(), Error> {
        let is_own = |key: &(NetworkOwner, Network)| key.0.user == owner.user;
        let own = self.held.keys().filter(|key| is_own(key)).count();
        if own >= limits.held_per_user {
            let most = limits.held_per_user;
            let room = self.let_longest_unused_go(limits, leave, evict, is_own);
            return room.ok_or(Error::Networks { most, whose: "your" });
        }
        if self.held.len() >= limits.held {
            let most = limits.held;
            let room = self.let_longest_unused_go(limits, leave, evict, |_| true);
            return room.ok_or(Error::Networks { most, whose: "all" });
        }
        Ok(())
    }

    /// Finds the namespace that no run has used for longest, and lets go of it with `evict`. Where there is none without a run or a
    /// resident, residents leave, one after the other, until there is.
    fn let_longest_unused_go(
        &mut self,
        limits: &NetworkLimits,
        leave: Leave<'_>,
        evict: bool,
        may_go: impl Fn(&(NetworkOwner, Network)) -> bool,
    ) -> Option<()> {
        let key = loop {
            let unused = self.held.iter().filter(|(key, held)| may_go(key) && !held.is_in_use());
            if let Some((key, _)) = unused.min_by_key(|(_, held)| held.used) {
                break key.clone();
            }
            let candidates = self.held.iter().filter(|(key, _)| may_go(key));
            let generations: Vec<u64> = candidates.map(|(_, held)| held.namespace.generation()).collect();
            leave(&generations)?;
        };
        if evict && let Some(held) = self.held.remove(&key) {
            self.leaving.push(held.namespace);
            if self.leaving.len() > limits.held / LEAVING_PART {
                self.leaving.clear();
            }
        }
        Some(())
    }
}

/// Tells of a namespace's listener, where it has one.
fn tell(proxy: &mpsc::UnboundedSender<Listening>, owner: &NetworkOwner, namespace: &NetworkNamespace) {
    if let Some(listener) = &namespace.listener {
        let (owner, listener) = (owner.clone(), Arc::clone(listener));
        // Without a proxy that accepts them, connections hang until the run's own timeout.
        let _ = proxy.send(Listening { owner, listener, gone: namespace.gone.subscribe() });
    }
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;

    fn owner(user: &str, agent: &str) -> NetworkOwner {
        NetworkOwner { user: UserId::parse(user).unwrap(), agent: AgentId::parse(agent).unwrap() }
    }

    /// Something with a descriptor; the table never looks into a namespace.
    fn made() -> Made {
        let (namespace, listener) = crate::wire::packet_sockets().unwrap();
        Made { namespace, listener: Some(listener) }
    }

    fn networks(held: usize, held_per_user: usize) -> Networks {
        Networks::new(NetworkLimits { held, held_per_user, ..NetworkLimits::default() })
    }

    /// The namespace of a run, kept or new.
    fn enter(
        networks: &Networks,
        owner: &NetworkOwner,
        network: Network,
    ) -> Result<Arc<NetworkNamespace>, Error> {
        match networks.find(owner, network, &|_| None)? {
            Some(found) => Ok(found),
            None => networks.keep(owner, network, made(), &|_| None),
        }
    }

    #[test]
    fn only_runs_of_one_user_and_agent_and_mode_share_a_namespace() {
        let networks = networks(16, 16);
        let generation =
            |user, agent, network| enter(&networks, &owner(user, agent), network).unwrap().generation();
        let first = generation("u", "a", Network::Proxy);
        assert_eq!(generation("u", "a", Network::Proxy), first);
        let others = [("u", "b", Network::Proxy), ("v", "a", Network::Proxy), ("u", "a", Network::None)];
        let mut seen = vec![first];
        for (user, agent, network) in others {
            let other = generation(user, agent, network);
            assert!(!seen.contains(&other), "{user} {agent} {network:?}");
            seen.push(other);
        }
        // A run without an owner shares its namespace with no other run.
        assert!(!seen.contains(&networks.apart(made(), Network::None).generation()));
    }

    #[test]
    fn the_one_unused_for_longest_goes_and_none_that_is_in_use() {
        let networks = networks(2, 2);
        let busy = enter(&networks, &owner("busy", "a"), Network::None).unwrap();
        let idle = enter(&networks, &owner("idle", "a"), Network::None).unwrap().generation();
        let third = enter(&networks, &owner("third", "a"), Network::None).unwrap();
        assert_eq!(networks.count(), 2);
        assert!(Arc::ptr_eq(&enter(&networks, &owner("busy", "a"), Network::None).unwrap(), &busy));
        let refused = enter(&networks, &owner("idle", "a"), Network::None).unwrap_err();
        assert!(matches!(refused, Error::Networks { most: 2, whose: "all" }), "{refused:?}");
        drop(third);
        assert_ne!(enter(&networks, &owner("idle", "a"), Network::None).unwrap().generation(), idle);
    }

    #[test]
    fn a_user_with_many_agents_has_only_its_own_namespaces_taken_from_it() {
        let networks = networks(100, 2);
        let other = enter(&networks, &owner("other", "a"), Network::None).unwrap().generation();
        for agent in 0..50 {
            enter(&networks, &owner("many", &format!("a{agent}")), Network::None).unwrap();
        }
        assert_eq!(networks.count(), 3);
        assert_eq!(enter(&networks, &owner("other", "a"), Network::None).unwrap().generation(), other);
        let _held: Vec<_> =
            ["x", "y"].map(|agent| enter(&networks, &owner("many", agent), Network::None).unwrap()).into();
        let refused = enter(&networks, &owner("many", "z"), Network::None).unwrap_err();
        assert!(matches!(refused, Error::Networks { most: 2, whose: "your" }), "{refused:?}");
    }

    #[test]
    fn an_idle_namespace_goes_and_one_with_a_run_stays() {
        let limits = NetworkLimits { idle_ms: 0, ..NetworkLimits::default() };
        let networks = Networks::new(limits);
        let run = enter(&networks, &owner("run", "a"), Network::None).unwrap();
        enter(&networks, &owner("idle", "a"), Network::None).unwrap();
        networks.let_idle_go();
        assert_eq!(networks.count(), 1);
        drop(run);
        networks.let_idle_go();
        assert_eq!(networks.count(), 0);
    }

    #[test]
    fn those_that_give_way_go_together() {
        let networks = networks(16, 16);
        let enter = |user: usize| {
            let namespace = enter(&networks, &owner(&format!("u{user}"), "a"), Network::None).unwrap();
            Arc::downgrade(&namespace)
        };
        let all: Vec<_> = (0..18).map(enter).collect();
        let there = |all: &[std::sync::Weak<_>]| all.iter().filter(|one| one.strong_count() > 0).count();
        // Two have given way, and no run finds them.
        assert_eq!((there(&all), networks.count()), (18, 16));
        assert!(networks.kept(&owner("u0", "a"), Network::None).is_none());
        let third = enter(18);
        assert_eq!((there(&all), networks.count()), (15, 16));
        enter(19);
        networks.let_idle_go();
        assert_eq!((there(&all), there(&[third])), (14, 1));
    }

    #[tokio::test]
    async fn the_proxy_hears_of_a_listener_when_it_has_an_owner_and_when_it_is_gone() {
        let networks = networks(16, 16);
        let before = owner("before", "a");
        enter(&networks, &before, Network::Proxy).unwrap();
        let mut listeners = networks.listeners();
        assert_eq!(listeners.recv().await.unwrap().owner, before);
        // Nothing listens where runs may not use the proxy.
        enter(&networks, &owner("none", "a"), Network::None).unwrap();
        let after = owner("after", "a");
        enter(&networks, &after, Network::Proxy).unwrap();
        let mut listening = listeners.recv().await.unwrap();
        assert_eq!(listening.owner, after);
        assert!(!listening.gone.has_changed().unwrap());
        networks.table().held.clear();
        assert!(listening.gone.changed().await.is_err());
    }
}

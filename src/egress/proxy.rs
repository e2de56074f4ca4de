//! [`Egress`]: the proxy as the service holds it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::names::{Names, Resolve, SystemResolver};
use super::pass::{Account, Pass, Passes, Who};
use super::pending::Pending;
use super::route::Route;
use super::rules::Rules;
use super::settings::EgressConfig;

/// Pause after a failed `accept`, which fails for as long as descriptors are short (accept(2)).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// After so many connections in a row, each of which has pushed out another of its user, the next waits for the pause.
const CROWD: u32 = 16;
const CROWD_PAUSE: Duration = Duration::from_millis(5);

/// The only way out of a sandbox: judges targets, resolves names, connects, counts and logs.
pub struct Egress {
    pub(super) config: EgressConfig,
    pub(super) passes: Arc<Passes>,
    pub(super) route: Route,
    pub(super) connections: Semaphore,
    pending: Arc<Pending>,
}

impl Egress {
    /// Makes a proxy that asks the system's resolver. It admits nobody yet.
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

    /// Lets a run use the proxy until the pass is dropped.
    ///
    /// # Errors
    /// The kernel has no random bytes (getrandom(2)).
    pub fn admit(&self, who: Who) -> io::Result<Pass> {
        self.passes.admit(who, &self.config)
    }

    /// Accepts connections until `stop`, then ends those that are open.
    ///
    /// `listener` listens on [`super::ADDRESS`], in the network namespace of the commands of `account`, whose tokens alone
    /// are good there; without an account, everybody's are. Several may be served at once.
    ///
    /// # Errors
    /// `listener` cannot be waited for (epoll(7)).
    pub async fn serve(
        self: &Arc<Self>,
        listener: std::net::TcpListener,
        account: Option<Account>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let open = TaskTracker::new();
        let account = account.map(Arc::new);
        let user = account.as_ref().map(|account| account.user.clone());
        let mut crowded: u32 = 0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let connection = Connection::new(Arc::clone(self), account.clone(), stream);
                    let (arrival, stop) = (self.pending.arrive(user.as_ref()), stop.clone());
                    crowded = if arrival.is_crowded() { crowded + 1 } else { 0 };
                    open.spawn(async move {
                        tokio::select! {
                            () = connection.serve(arrival) => {}
                            () = stop.cancelled() => {}
                        }
                    });
                    if crowded >= CROWD {
                        // Who floods the proxy fills the queue of its own network meanwhile, and takes no processor.
                        crowded = 0;
                        tokio::time::sleep(CROWD_PAUSE).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the egress proxy cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        open.close();
        open.wait().await;
        Ok(())
    }
}

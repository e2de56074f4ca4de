//! [`Route`]: from a target to a connection, past every rule. A name is resolved once, every address it has is
//! judged, and those very addresses are connected to, so that nothing can change in between.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::head;
use super::hosts::HostTable;
use super::names::Names;
use super::pass::Run;
use super::refusal::Refusal;
use super::rules::Rules;
use super::target::{Host, Target};

/// Addresses of one name that are tried.
const TRIES: usize = 4;

pub(super) struct Route {
    rules: Rules,
    /// The hosts of agents that have some of their own.
    pub(super) hosts: HostTable,
    names: Names,
    upstream: Option<Target>,
    within: Duration,
}

/// An open tunnel.
pub(super) struct Connected {
    pub(super) stream: TcpStream,
    /// Bytes that the target has already sent.
    pub(super) early: Vec<u8>,
}

impl Route {
    pub(super) fn new(rules: Rules, names: Names, upstream: Option<Target>, within: Duration) -> Self {
        Self { rules, hosts: HostTable::default(), names, upstream, within }
    }

    /// Adds an address at which the service listens.
    pub(super) fn protect(&self, address: SocketAddr) {
        self.rules.protect(address);
    }

    /// Tells whether plain requests go to another proxy, in the form for proxies.
    pub(super) fn has_upstream(&self) -> bool {
        self.upstream.is_some()
    }

    /// Opens a tunnel to `target`.
    ///
    /// # Errors
    /// Why not: a rule, the name, the network, the proxy behind this one.
    pub(super) async fn tunnel(&self, target: &Target, run: &Run) -> Result<Connected, Refusal> {
        let stream = self.connect(target, run).await?;
        if self.upstream.is_none() {
            return Ok(Connected { stream, early: Vec::new() });
        }
        timeout(self.within, ask_for_tunnel(stream, target, self.within))
            .await
            .map_err(|_| Refusal::ConnectTimeout(target.to_string()))?
    }

    /// Opens the connection over which a plain request to `target` goes.
    ///
    /// # Errors
    /// As [`Route::tunnel`].
    pub(super) async fn plain(&self, target: &Target, run: &Run) -> Result<TcpStream, Refusal> {
        self.connect(target, run).await
    }

    async fn connect(&self, target: &Target, run: &Run) -> Result<TcpStream, Refusal> {
        let hosts = self.hosts.of(&run.who.agent);
        self.rules.check_target(target, &hosts)?;
        let addresses = match (&target.host, &self.upstream) {
            (Host::Address(address), _) => vec![*address],
            (Host::Name(name), None) => self.names.resolve(name, run).await?,
            (Host::Name(_), Some(_)) => Vec::new(),
        };
        // One bad address refuses all: a name that is public and private at once is made to deceive.
        for address in &addresses {
            self.rules.check_address(target, *address, &hosts)?;
        }
        let stream = match &self.upstream {
            Some(upstream) => self.connect_upstream(upstream, target).await?,
            None => self.connect_first(&addresses, target).await?,
        };
        // Small pieces must not wait for the acknowledgement of the one before (tcp(7)).
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn connect_first(&self, addresses: &[IpAddr], target: &Target) -> Result<TcpStream, Refusal> {
        let deadline = Instant::now() + self.within;
        let tries = addresses.len().min(TRIES);
        let mut last = Refusal::Unreachable(target.to_string());
        for (address, left) in addresses.iter().zip((1..=tries).rev()) {
            let share = deadline.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            match timeout(share, TcpStream::connect((*address, target.port))).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(_)) => last = Refusal::Unreachable(target.to_string()),
                Err(_) => last = Refusal::ConnectTimeout(target.to_string()),
            }
        }
        Err(last)
    }

    async fn connect_upstream(&self, upstream: &Target, target: &Target) -> Result<TcpStream, Refusal> {
        let connecting = async {
            match &upstream.host {
                Host::Name(name) => TcpStream::connect((name.as_str(), upstream.port)).await,
                Host::Address(address) => TcpStream::connect((*address, upstream.port)).await,
            }
        };
        match timeout(self.within, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                tracing::warn!(
                    %upstream, %error,
                    "failed to connect to the upstream proxy: the request is refused"
                );
                Err(Refusal::Unreachable(target.to_string()))
            }
            Err(_) => Err(Refusal::ConnectTimeout(target.to_string())),
        }
    }
}

/// Asks another proxy for a tunnel.
async fn ask_for_tunnel(
    mut stream: TcpStream,
    target: &Target,
    within: Duration,
) -> Result<Connected, Refusal> {
    let request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n");
    let unreachable = || Refusal::Unreachable(target.to_string());
    stream.write_all(request.as_bytes()).await.map_err(|_| unreachable())?;
    let raw = head::read(&mut stream, within).await.map_err(|_| unreachable())?;
    let (answer, early) = raw.into_answer()?;
    match answer.status {
        200..300 => Ok(Connected { stream, early }),
        status => Err(Refusal::Upstream { host: target.to_string(), status }),
    }
}

//! [`Pass`]: the token by which a run uses the proxy, for exactly as long as the run lasts.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use policy::{AgentId, UserId};
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::ADDRESS;
use super::reached::Reached;
use super::settings::EgressConfig;
use super::share::{Share, Shares};

/// The hosts that programs connect to without the proxy: the servers that the user's own commands have started.
const LOOPBACK: &str = "localhost,127.0.0.1,::1";
/// How long connections of a run that is over may take to end.
const ENDING: Duration = Duration::from_millis(200);
/// Names that one run has resolved at once: a resolver that never answers holds up the run that asked for it.
const LOOKUPS_PER_RUN: usize = 4;

/// The user and agent whose runs connect to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
}

impl Account {
    /// Tells whether a run is one of these.
    pub(super) fn has(&self, who: &Who) -> bool {
        self.user == who.user && self.agent == who.agent
    }
}

/// The run that connections are made for, as the log names it.
#[derive(Clone, Debug)]
pub struct Who {
    /// The user.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
    /// Which run of theirs, in any words that the rest of the log uses too.
    pub run: String,
}

/// A token and its end: when dropped, the token is forgotten and every connection made with it is ended.
pub struct Pass {
    token: String,
    key: Key,
    passes: Arc<Passes>,
}

/// A run as the proxy knows it.
pub(super) struct Run {
    pub(super) who: Who,
    /// Set when the pass was dropped.
    pub(super) revoked: CancellationToken,
    pub(super) connections: Semaphore,
    /// The share that all runs of its user have together.
    pub(super) share: Arc<Share>,
    pub(super) lookups: Arc<Semaphore>,
    /// What the connections that are over have asked for.
    pub(super) reached: Mutex<Reached>,
    /// How many connections are served at the moment.
    pub(super) served: watch::Sender<usize>,
    /// Bytes sent and received.
    moved: AtomicU64,
    moved_max: Option<u64>,
}

/// All tokens that are good now, by their digests: looking one up takes a time that tells nothing about it.
#[derive(Default)]
pub(super) struct Passes {
    runs: Mutex<HashMap<Key, Arc<Run>>>,
    shares: Shares,
}

type Key = [u8; 32];

fn key_of(token: &str) -> Key {
    Sha256::digest(token.as_bytes()).into()
}

impl Passes {
    /// Makes a pass for `who`.
    ///
    /// # Errors
    /// The kernel has no random bytes (getrandom(2)).
    pub(super) fn admit(self: &Arc<Self>, who: Who, config: &EgressConfig) -> io::Result<Pass> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let token = format!("{:032x}", u128::from_ne_bytes(random));
        let key = key_of(&token);
        let run = Run {
            share: self.shares.of(&who.user, config.connections_per_user),
            who,
            revoked: CancellationToken::new(),
            connections: Semaphore::new(config.connections_per_run),
            lookups: Arc::new(Semaphore::new(LOOKUPS_PER_RUN)),
            reached: Mutex::default(),
            served: watch::channel(0).0,
            moved: AtomicU64::new(0),
            moved_max: config.bytes_per_run,
        };
        self.runs.lock().insert(key, Arc::new(run));
        Ok(Pass { token, key, passes: Arc::clone(self) })
    }

    pub(super) fn find(&self, token: &str) -> Option<Arc<Run>> {
        self.runs.lock().get(&key_of(token)).cloned()
    }
}

impl Run {
    /// Counts bytes of the run.
    ///
    /// # Errors
    /// The bound, when the run may not move them.
    pub(super) fn moves(&self, bytes: u64) -> Result<(), u64> {
        let before = self.moved.fetch_add(bytes, Ordering::Relaxed);
        match self.moved_max {
            Some(max) if before.saturating_add(bytes) > max => Err(max),
            _ => Ok(()),
        }
    }
}

/// A connection of a run that is being served, until dropped.
pub(super) struct Served(Arc<Run>);

impl Served {
    pub(super) fn new(run: &Arc<Run>) -> Self {
        run.served.send_modify(|served| *served += 1);
        Self(Arc::clone(run))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.served.send_modify(|served| *served -= 1);
    }
}

impl Pass {
    /// The proxy's address with the token, for the variables that programs read.
    ///
    /// The token is the user name. The password says nothing, but stands there because Python's `urllib` sends no
    /// credentials without one, and `requests` (pip) none without its colon.
    #[must_use]
    pub fn proxy_url(&self) -> String {
        format!("http://{}:run@{ADDRESS}", self.token)
    }

    /// The variables that make ordinary programs use the proxy, but for servers of the run's own network, in both
    /// spellings that are in use.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let proxied = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"].into_iter();
        let direct = ["NO_PROXY", "no_proxy"].into_iter();
        let proxied = proxied.map(|name| (name.to_owned(), self.proxy_url()));
        proxied.chain(direct.map(|name| (name.to_owned(), LOOPBACK.to_owned()))).collect()
    }

    /// Tells whether the run has asked for anything, or does at the moment.
    #[must_use]
    pub fn is_used(&self) -> bool {
        let run = self.passes.runs.lock().get(&self.key).cloned();
        run.is_some_and(|run| *run.served.borrow() > 0 || !run.reached.lock().is_empty())
    }

    /// Ends the pass after its run, and tells what the run has asked for.
    ///
    /// The run's processes are gone, so that its connections end by themselves. What is still open after 200 ms is ended,
    /// and waited for as long again.
    pub async fn end(self) -> Reached {
        let Some(run) = self.passes.runs.lock().get(&self.key).cloned() else { return Reached::default() };
        let mut served = run.served.subscribe();
        let _ = tokio::time::timeout(ENDING, served.wait_for(|served| *served == 0)).await;
        drop(self);
        let _ = tokio::time::timeout(ENDING, served.wait_for(|served| *served == 0)).await;
        let reached = run.reached.lock();
        reached.clone()
    }

    /// The token alone.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let run = self.passes.runs.lock().remove(&self.key);
        if let Some(run) = run {
            run.revoked.cancel();
        }
        self.passes.shares.forget_unused();
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::ProxySettings;
    use super::*;

    fn who() -> Who {
        Who { user: UserId::parse("u").unwrap(), agent: AgentId::parse("a").unwrap(), run: "1".into() }
    }

    #[test]
    fn a_dropped_pass_is_forgotten_and_tells_its_connections() {
        let config = EgressConfig::new(&ProxySettings::default(), Vec::new()).unwrap();
        let passes = Arc::new(Passes::default());
        let (pass, other) = (passes.admit(who(), &config).unwrap(), passes.admit(who(), &config).unwrap());
        assert_ne!(pass.token(), other.token());
        let run = passes.find(pass.token()).unwrap();
        let token = pass.token().to_owned();
        drop(pass);
        assert!(run.revoked.is_cancelled() && passes.find(&token).is_none());
        assert!(passes.find(other.token()).is_some() && passes.find("").is_none());
        assert_eq!(passes.shares.count(), 1);
        drop((other, run));
        assert!(passes.runs.lock().is_empty());
        // The share of a user goes when any user's next pass is made after its last connection.
        passes.shares.forget_unused();
        assert_eq!(passes.shares.count(), 0);
    }

    #[test]
    fn a_run_moves_no_more_bytes_than_it_may() {
        let settings = ProxySettings { bytes_per_run: 10, ..ProxySettings::default() };
        let config = EgressConfig::new(&settings, Vec::new()).unwrap();
        let passes = Arc::new(Passes::default());
        let pass = passes.admit(who(), &config).unwrap();
        let run = passes.find(pass.token()).unwrap();
        assert_eq!([run.moves(10), run.moves(0), run.moves(1)], [Ok(()), Ok(()), Err(10)]);
    }
}

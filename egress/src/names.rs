//! [`Names`]: resolving names once, off the runtime, with a bound on how many at a time.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::pass::Run;
use super::refusal::Refusal;

/// Names resolved at once for all runs. Each takes a thread that the service also needs for files.
const LOOKUPS: usize = 64;
/// Addresses of one name that are looked at; a name with more is refused, not cut.
const ADDRESSES_MAX: usize = 64;

/// Where names get their addresses.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `name`, in the order in which they are to be tried. May block.
    ///
    /// # Errors
    /// Any: the name has no address now.
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver, with its files and search list: getaddrinfo(3).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

pub(super) struct Names {
    source: Arc<dyn Resolve>,
    lookups: Arc<Semaphore>,
    within: Duration,
}

impl Names {
    pub(super) fn new(source: Arc<dyn Resolve>, within: Duration) -> Self {
        Self { source, lookups: Arc::new(Semaphore::new(LOOKUPS)), within }
    }

    /// Resolves `name` for `run`: at least one address, none of them IPv4 in the clothes of IPv6.
    ///
    /// A resolver that does not come back keeps its place until it does, of the run's few and of all.
    ///
    /// # Errors
    /// [`Refusal::NoSuchName`], [`Refusal::NameTimeout`].
    pub(super) async fn resolve(&self, name: &str, run: &Run) -> Result<Vec<IpAddr>, Refusal> {
        let no_such_name = || Refusal::NoSuchName(name.to_owned());
        let looking = async {
            let mine = Arc::clone(&run.lookups).acquire_owned().await;
            let all = Arc::clone(&self.lookups).acquire_owned().await;
            let (source, name) = (Arc::clone(&self.source), name.to_owned());
            tokio::task::spawn_blocking(move || {
                let _places = (mine, all);
                source.resolve(&name)
            })
            .await
        };
        let found = tokio::time::timeout(self.within, looking).await;
        let found = found.map_err(|_| Refusal::NameTimeout(name.to_owned()))?;
        let mut addresses = found.map_err(|_| no_such_name())?.map_err(|_| no_such_name())?;
        for address in &mut addresses {
            *address = address.to_canonical();
        }
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            Err(no_such_name())
        } else {
            Ok(addresses)
        }
    }
}

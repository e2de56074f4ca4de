//! [`Preparations`]: how this service prepares workspaces, its own and those that other backends answer for.
//!
//! A preparation goes on when its caller leaves: another caller that comes meanwhile is told that the workspace is
//! initialising, and the next one finds it ready. It ends with the service.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use policy::AgentId;
use sandbox::Sandbox;
use storage::WorkspaceId;
use tokio::sync::mpsc;

use super::Service;
use super::admission::permit_kind::PermitKind;
use super::admission::permits::Permits;
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::fetch::Fetches;
use super::lease::{LeaseStore, Terms, of_url};
use super::packages::Kept;
use super::prepare::{
    Bootstrap, Packages, Preparation, Prepared, Progress, Round, Site, configured, prepare,
};
use super::remote::Backend;
use crate::config::{ConfigError, PrepareConfig};

/// Preparations at once, and those of one user.
const AT_ONCE: usize = 1024;
const PER_USER: usize = 8;

/// Makes a sandbox of this service's own workspaces with an agent, whose changes the request records.
pub type Own = Box<dyn Fn(Arc<Service>, AgentId) -> Arc<dyn Sandbox> + Send + Sync>;

/// How workspaces are prepared.
pub struct Preparations {
    config: PrepareConfig,
    own: Own,
    leases: RwLock<Arc<dyn LeaseStore>>,
    hooks: RwLock<Vec<Arc<dyn Bootstrap>>>,
    permits: Permits,
    bucket: Option<Arc<Bucket>>,
    fetches: Fetches,
}

/// Whether the caller may have packages deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deploying {
    /// Any package.
    Allowed,
    /// Only versions that are there already: ids of versions can be guessed.
    Denied,
}

/// What a request asks for.
#[derive(Debug)]
pub struct Wanted {
    /// The round.
    pub preparation: Preparation,
    /// The names of what is set up first.
    pub bootstrap: Vec<String>,
    /// Whether versions may be deployed.
    pub deploying: Deploying,
    /// Is told of each step.
    pub listener: Option<mpsc::UnboundedSender<Progress>>,
}

impl fmt::Debug for Preparations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address of the store of leases, which may have a password.
        formatter.debug_struct("Preparations").finish_non_exhaustive()
    }
}

/// The store of leases that the configuration names. Nothing is sent to it yet.
///
/// # Errors
/// [`ConfigError::Value`]: its address is none. The address itself is not told, since it may have a password.
pub fn leases(config: &PrepareConfig) -> std::result::Result<Arc<dyn LeaseStore>, ConfigError> {
    of_url(&config.lease_url).map_err(|error| ConfigError::Value {
        setting: "prepare.lease_url",
        value: error.to_string(),
        advice: error.advice(),
    })
}

impl Preparations {
    /// Preparations as the configuration says.
    ///
    /// # Errors
    /// As [`leases`] and [`Bucket::open`].
    pub fn new(config: PrepareConfig, own: Own) -> std::result::Result<Self, ConfigError> {
        let hooks = configured(&config.bootstrap);
        let leases = leases(&config)?;
        let bucket = Bucket::open(&config.bucket)?.map(Arc::new);
        Ok(Self {
            config,
            own,
            leases: RwLock::new(leases),
            hooks: RwLock::new(hooks),
            permits: Permits::without_queue(PermitKind::PREPARATIONS, AT_ONCE, PER_USER),
            bucket,
            fetches: Fetches::default(),
        })
    }

    /// Has a step of code be there under its name, in place of any other of that name.
    pub fn register(&self, hook: Arc<dyn Bootstrap>) {
        let mut hooks = self.hooks.write();
        hooks.retain(|other| other.name() != hook.name());
        hooks.push(hook);
    }

    /// Takes leases from another store from the next preparation on: for services that share workspaces.
    pub fn lease_from(&self, store: Arc<dyn LeaseStore>) {
        *self.leases.write() = store;
    }

    /// The time that scripts have where a request does not say, in seconds.
    #[must_use]
    pub fn timeout_seconds(&self) -> i64 {
        i64::try_from(self.config.timeout_seconds).unwrap_or(i64::MAX)
    }

    /// The size of all packages together, in bytes.
    #[must_use]
    pub fn packages_bytes(&self) -> u64 {
        self.config.packages_bytes
    }

    /// The bucket of packages, where there is one.
    #[must_use]
    pub fn bucket(&self) -> Option<&Arc<Bucket>> {
        self.bucket.as_ref()
    }

    /// The packages that are on their way from the bucket.
    pub(super) fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    /// The steps of these names, in this order.
    fn hooks(&self, names: &[String]) -> Result<Vec<Arc<dyn Bootstrap>>> {
        let hooks = self.hooks.read();
        let find = |name: &String| hooks.iter().find(|hook| hook.name() == name).cloned();
        let named = |name: &String| {
            let shown: String = name.chars().take(64).collect();
            find(name).ok_or_else(|| {
                Error::Invalid(format!(
                    "there is no bootstrap step `{}`: see `prepare.bootstrap`",
                    shown.escape_debug()
                ))
            })
        };
        names.iter().map(named).collect()
    }
}

impl Service {
    /// Brings a workspace to the state that is wanted. It goes on when the future is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] when too many are under way; [`Error::Stopping`]; [`Error::Invalid`] for an unknown step; as
    /// [`prepare`].
    pub(super) async fn prepare(
        self: &Arc<Self>,
        id: WorkspaceId,
        backend: Option<Arc<Backend>>,
        wanted: Wanted,
    ) -> Result<Prepared> {
        let Wanted { preparation, bootstrap, deploying, listener } = wanted;
        let bootstrap = self.preparations.hooks(&bootstrap)?;
        if self.stopping.has_begun() {
            return Err(Error::Stopping);
        }
        let service = Arc::clone(self);
        let round = async move {
            let leases = Arc::clone(&service.preparations.leases.read());
            // What a user's machine answers for, it answers for with every agent.
            let key = match &backend {
                Some(_) => format!("agent-sandbox:init:{}", id.user),
                None => format!("agent-sandbox:init:{}/{}", id.user, id.agent),
            };
            let stop = service.stop.clone();
            // Until the round is over. Under the lease: who finds that taken is told so, and not that there are too many.
            let (mut permit, mut remote) = (None, None);
            let kept = || Kept {
                service: Arc::clone(&service),
                user: id.user.clone(),
                workspace: backend.is_none().then(|| id.clone()),
            };
            let packages: Option<Arc<dyn Packages>> =
                (deploying == Deploying::Allowed).then(|| Arc::new(kept()) as _);
            let open = async {
                permit = Some(service.preparations.permits.take(&id.user).await?);
                if backend.is_some() {
                    remote = Some(service.backends.permits.take(&id.user).await?);
                }
                let site = match backend {
                    Some(backend) => Site::of_backend(backend).await?,
                    None => {
                        let own = (service.preparations.own)(Arc::clone(&service), id.agent);
                        Site::of_this_process(own, id.user).await?
                    }
                };
                Ok(Round { site, packages, bootstrap, listener })
            };
            let prepared = tokio::select! {
                biased;
                () = stop.cancelled() => Err(Error::Stopping),
                prepared = prepare(&leases, &key, Terms::usual(), open, preparation) => prepared,
            };
            drop((permit, remote));
            prepared
        };
        self.runs.spawn(round).await.map_err(|_| Error::Panicked)?
    }
}

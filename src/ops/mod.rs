//! The operations of the service. They know no HTTP: the same operations stand under REST and under other interfaces.
//!
//! `storage` blocks, so each operation enters it once, through [`admission`].

pub mod admission;
pub mod agents;
pub mod archives;
pub mod backends;
pub mod bucket;
pub mod devbox;
mod difference;
pub mod disk;
pub mod error;
pub mod events;
pub mod fetch;
pub mod files;
pub mod lease;
pub mod packages;
pub mod pieces;
pub mod ports;
pub mod preparations;
pub mod prepare;
pub mod readiness;
pub mod registry;
pub mod remote;
pub mod revocations;
pub mod run;
pub mod runners;
pub(crate) mod said;
pub mod sandboxes;
pub mod search;
pub mod skills;
pub mod snapshots;
pub mod stopping;
pub mod sweep;
pub mod sync;
pub mod upload;
pub mod users;
pub mod versions;
pub mod write;

use std::sync::Arc;

use exec::{HostReport, Launcher};
use policy::environment::Configured;
use policy::{ArchiveLimits, CommandPolicy, FileLimits, PortLimits, RunLimits};
use storage::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::registry::RegistrySync;
use crate::telemetry::Spans;
use admission::permits::Permits;
use admission::{Admission, Owner};
use agents::AgentTable;
use backends::Backends;
use devbox::table::Devboxes;
pub use difference::Text;
use disk::DiskWatch;
use egress::Egress;
pub use error::{Error, Result};
use events::EventTable;
use preparations::Preparations;
use readiness::Readiness;
use run::table::RunTable;
use run::under_way::UnderWay;
use run::unnamed::UnnamedRuns;
use runners::Runners;
use stopping::Stopping;
pub use versions::FileDifference;

/// Everything an operation needs.
pub struct Service {
    /// The workspaces that another backend answers for, instead of what follows.
    pub backends: Backends,
    /// The machines that users lend.
    pub runners: Arc<Runners>,
    /// The devboxes of the facade, where it is switched on.
    pub devboxes: Option<Arc<Devboxes>>,
    /// The bytes on disk.
    pub store: Store,
    /// Starts commands.
    pub launcher: Arc<Launcher>,
    /// The confinement that this host grants, as found at start.
    pub host: HostReport,
    /// Which commands may run.
    pub commands: CommandPolicy,
    /// What holds for single agents.
    pub agents: AgentTable,
    /// Variables that every command gets.
    pub environment: Configured,
    /// The directories of programs, as commands find them, separated by `:`.
    pub search_path: String,
    /// The network that commands may reach at most, and without a word of the request.
    pub network: exec::Network,
    /// The way out for commands that may use it.
    pub egress: Arc<Egress>,
    /// The table of what was published where.
    pub registry: Arc<RegistrySync>,
    /// Bounds on archives.
    pub archive_limits: ArchiveLimits,
    /// Bounds on file operations.
    pub file_limits: FileLimits,
    /// Bounds on runs.
    pub run_limits: RunLimits,
    /// Whether the data directory can be written to.
    pub readiness: Readiness,
    /// Who does how much else.
    pub admission: Arc<Admission>,
    /// Who is running how much.
    pub permits: Permits,
    /// Who has how many runs in the background.
    pub background: Permits,
    /// The terminals of each user.
    pub terminals: Permits,
    /// The connections to ports of each user.
    pub port_permits: Permits,
    /// Bounds on connections to ports.
    pub port_limits: PortLimits,
    /// The runs of each user with undecided changes.
    pub undecided: Permits,
    /// How machines that users lend are synchronised.
    pub syncing: sync::Syncing,
    /// How workspaces are prepared.
    pub preparations: Preparations,
    /// Places for packages on their way in.
    pub package_permits: Permits<Owner>,
    /// Runs that have names.
    pub table: RunTable,
    /// Runs under way that have none.
    pub unnamed: UnnamedRuns,
    /// The trees whose events have listeners.
    pub events: EventTable,
    /// Which sandboxes have how many runs under way.
    pub under_way: UnderWay,
    /// Places for work on snapshots.
    pub snapshot_permits: Permits,
    /// The trees that runs may fill.
    pub disk: Arc<DiskWatch>,
    /// Runs under way, which outlive the request that started them.
    pub runs: TaskTracker,
    /// The record of who changed what.
    pub audit: Arc<Audit>,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
    /// The way of spans to a collector, where there is one.
    pub spans: Option<Arc<Spans>>,
    /// How far a stop of the service has come.
    pub stopping: Stopping,
    /// Set when runs are to be dropped.
    pub stop: CancellationToken,
}

/// Runs blocking work off the runtime: of runs and feeds, which have permits of their own. Requests take [`Service::work`].
///
/// # Errors
/// The result of `work`; [`Error::Panicked`] when it panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Panicked)?
}

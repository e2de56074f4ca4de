//! [`Service`]: everything an operation needs. Operations are methods of it, each in the file of what it is about; here is how
//! a service is made and how it lasts. What it tells of itself is in [`facts`](super::facts).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use egress::Egress;
use exec::{HostReport, Launcher};
use policy::environment::Configured;
use policy::{ArchiveLimits, CommandPolicy, FileLimits, PortLimits, RunLimits};
use storage::Store;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

use super::admission::permit_kind::PermitKind;
use super::admission::permits::Permits;
use super::admission::{Admission, Owner};
use super::agents::AgentTable;
use super::backends::Backends;
use super::devbox::table::Devboxes;
use super::disk::DiskWatch;
use super::events::EventTable;
use super::preparations::Preparations;
use super::readiness::Readiness;
use super::run::table::RunTable;
use super::run::under_way::UnderWay;
use super::run::unnamed::UnnamedRuns;
use super::runners::Runners;
use super::shares::Shares;
use super::stopping::Stopping;
use super::sync::Syncing;
use super::{packages, snapshots, sweep};
use crate::audit::Audit;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::registry::RegistrySync;
use crate::telemetry::Spans;

/// Everything an operation needs.
pub struct Service {
    /// The workspaces that another backend answers for, instead of what follows.
    pub(super) backends: Backends,
    /// The machines that users lend.
    pub(super) runners: Arc<Runners>,
    /// The devboxes, where their dialect is switched on.
    pub(super) devboxes: Option<Arc<Devboxes>>,
    /// Links by which installers read skills.
    pub(super) shares: Arc<Shares>,
    /// The bytes on disk.
    pub(super) store: Store,
    /// Starts commands.
    pub(super) launcher: Arc<Launcher>,
    /// The confinement that this host grants, as found at start.
    pub(super) host: HostReport,
    /// Which commands may run.
    pub(super) commands: CommandPolicy,
    /// What holds for single agents.
    pub(super) agents: AgentTable,
    /// Variables that every command gets.
    pub(super) environment: Configured,
    /// The directories of programs, as commands find them, separated by `:`.
    pub(super) search_path: String,
    /// The network that commands may reach at most, and without a word of the request.
    pub(super) network: exec::Network,
    /// The way out for commands that may use it.
    pub(super) egress: Arc<Egress>,
    /// The table of what was published where.
    pub(super) registry: Arc<RegistrySync>,
    /// Bounds on archives.
    pub(super) archive_limits: ArchiveLimits,
    /// Bounds on file operations.
    pub(super) file_limits: FileLimits,
    /// Bounds on runs.
    pub(super) run_limits: RunLimits,
    /// Whether the data directory can be written to.
    pub(super) readiness: Readiness,
    /// Who does how much else.
    pub(super) admission: Arc<Admission>,
    /// Who is running how much.
    pub(super) permits: Permits,
    /// Who has how many runs in the background.
    pub(super) background: Permits,
    /// The terminals of each user.
    pub(super) terminals: Permits,
    /// The connections to ports of each user.
    pub(super) port_permits: Permits,
    /// Bounds on connections to ports.
    pub(super) port_limits: PortLimits,
    /// The runs of each user with undecided changes.
    pub(super) undecided: Permits,
    /// How machines that users lend are synchronised.
    pub(super) syncing: Syncing,
    /// How workspaces are prepared.
    pub(super) preparations: Preparations,
    /// Places for packages on their way in.
    pub(super) package_permits: Permits<Owner>,
    /// Runs that have names.
    pub(super) table: RunTable,
    /// Runs under way that have none.
    pub(super) unnamed: UnnamedRuns,
    /// The trees whose events have listeners.
    pub(super) events: EventTable,
    /// Which sandboxes have how many runs under way.
    pub(super) under_way: UnderWay,
    /// Places for work on snapshots.
    pub(super) snapshot_permits: Permits,
    /// The trees that runs may fill.
    pub(super) disk: Arc<DiskWatch>,
    /// Runs under way, which outlive the request that started them.
    pub(super) runs: TaskTracker,
    /// The record of who changed what.
    pub(super) audit: Arc<Audit>,
    /// Counts what happens.
    pub(super) metrics: Arc<Metrics>,
    /// The way of spans to a collector, where there is one.
    pub(super) spans: Option<Arc<Spans>>,
    /// How far a stop of the service has come.
    pub(super) stopping: Stopping,
    /// Set when runs are to be dropped.
    pub(super) stop: CancellationToken,
}

/// The parts of a service that are there before it.
pub struct Parts {
    /// The workspaces that another backend answers for.
    pub backends: Backends,
    /// The machines that users lend.
    pub runners: Arc<Runners>,
    /// The devboxes, where their dialect is switched on.
    pub devboxes: Option<Devboxes>,
    /// Links by which installers read skills.
    pub shares: Shares,
    /// The bytes on disk.
    pub store: Store,
    /// Starts commands.
    pub launcher: Arc<Launcher>,
    /// The confinement that this host grants.
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
    /// How workspaces are prepared.
    pub preparations: Preparations,
    /// The record of who changed what.
    pub audit: Arc<Audit>,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
    /// The way of spans to a collector, where there is one.
    pub spans: Option<Arc<Spans>>,
}

impl Service {
    /// A service of these parts, with the limits of `config`.
    ///
    /// # Errors
    /// When the kernel gives no thread.
    pub fn new(config: &Config, parts: Parts) -> io::Result<Self> {
        let limits = &config.limits;
        let sessions = &limits.sessions;
        Ok(Self {
            backends: parts.backends,
            runners: parts.runners,
            devboxes: parts.devboxes.map(Arc::new),
            shares: Arc::new(parts.shares),
            store: parts.store,
            launcher: Arc::clone(&parts.launcher),
            host: parts.host,
            commands: parts.commands,
            agents: parts.agents,
            environment: parts.environment,
            search_path: parts.search_path,
            network: parts.network,
            egress: parts.egress,
            registry: parts.registry,
            archive_limits: limits.archive.clone(),
            file_limits: limits.files.clone(),
            run_limits: limits.runs.clone(),
            readiness: Readiness::start()?,
            admission: Arc::new(Admission::new(&limits.work).telling(parts.launcher)),
            permits: Permits::new(&limits.runs),
            background: Permits::without_queue(
                PermitKind::BACKGROUND,
                sessions.background,
                sessions.background_per_user,
            ),
            terminals: Permits::without_queue(
                PermitKind::TERMINALS,
                sessions.terminals,
                sessions.terminals_per_user,
            ),
            port_permits: Permits::with(
                PermitKind::PORTS,
                limits.ports.connections,
                limits.ports.connections_per_user,
                Duration::from_millis(limits.runs.queue_ms),
            ),
            port_limits: limits.ports.clone(),
            undecided: Permits::without_queue(
                PermitKind::UNDECIDED,
                sessions.undecided,
                sessions.undecided_per_user,
            ),
            syncing: Syncing::new(config.runners.clone()),
            preparations: parts.preparations,
            package_permits: packages::permits(limits.work.queue_ms),
            events: EventTable::new(limits.events.clone()),
            table: RunTable::new(sessions.clone()),
            unnamed: UnnamedRuns::default(),
            stopping: Stopping::default(),
            under_way: UnderWay::default(),
            snapshot_permits: snapshots::permits(limits.snapshots.at_once),
            disk: Arc::default(),
            runs: TaskTracker::new(),
            audit: parts.audit,
            metrics: parts.metrics,
            spans: parts.spans,
            stop: CancellationToken::new(),
        })
    }

    /// Looks after the service until it stops: what its commands take on the disk, unused workspaces, and runs that go on
    /// filling what was removed.
    pub fn tend(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(&self.disk).look(self.store.clone(), self.stop.clone()));
        tokio::spawn(sweep::sweep(Arc::clone(self)));
        let filled = Arc::downgrade(self);
        self.store.when_trash_is_filled(move |sandbox| {
            if let Some(service) = filled.upgrade() {
                service.under_way.stop(sandbox);
            }
        });
    }

    /// Set when runs and connections are to be dropped.
    #[must_use]
    pub fn until_stopped(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Waits until runs and connections are to be dropped.
    pub fn stopped(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    /// Drops runs and connections.
    pub fn drop_runs(&self) {
        self.stop.cancel();
    }
}

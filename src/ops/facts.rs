//! What a service tells of itself to those that ask its operations: limits, parts, and the runs that it knows.

use std::sync::Arc;

use egress::Egress;
use exec::{HostReport, Launcher};
use policy::{
    ArchiveLimits, EventLimits, FileLimits, PortLimits, RunLimits, SessionLimits, TreeId, UserId, WorkspaceId,
};
use storage::{Owner, Spool, Stat, Store};

use super::admission::Admission;
use super::backends::Backends;
use super::devbox::table::Devboxes;
use super::preparations::Preparations;
use super::readiness::Found;
use super::run::id::ExecId;
use super::run::record::Recorded;
use super::run::unnamed::Unnamed;
use super::runners::Runners;
use super::{Result, Service};
use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::registry::RegistrySync;
use crate::telemetry::Spans;

impl Service {
    /// Bounds on archives.
    #[must_use]
    pub fn archive_limits(&self) -> &ArchiveLimits {
        &self.archive_limits
    }

    /// Bounds on file operations.
    #[must_use]
    pub fn file_limits(&self) -> &FileLimits {
        &self.file_limits
    }

    /// Bounds on runs.
    #[must_use]
    pub fn run_limits(&self) -> &RunLimits {
        &self.run_limits
    }

    /// Bounds on connections to ports.
    #[must_use]
    pub fn port_limits(&self) -> &PortLimits {
        &self.port_limits
    }

    /// Bounds on runs in the background and terminals.
    #[must_use]
    pub fn session_limits(&self) -> &SessionLimits {
        self.table.limits()
    }

    /// Bounds on listeners for events.
    #[must_use]
    pub fn event_limits(&self) -> &EventLimits {
        self.events.limits()
    }

    /// How the store behaves, bounds on what lies on the disk among it.
    #[must_use]
    pub fn store_options(&self) -> &storage::Options {
        self.store.options()
    }

    /// Whether the kernel keeps the quotas of trees, or why not.
    ///
    /// # Errors
    /// The reason.
    pub fn kernel_keeps_quotas(&self) -> std::result::Result<(), &str> {
        self.store.kernel_keeps_quotas()
    }

    /// The confinement that this host grants, as found at start.
    #[must_use]
    pub fn host(&self) -> &HostReport {
        &self.host
    }

    /// Names of the programs that a caller may start.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.commands.direct()
    }

    /// The network that commands may reach at most.
    #[must_use]
    pub fn network(&self) -> exec::Network {
        self.network
    }

    /// Starts commands.
    #[must_use]
    pub fn launcher(&self) -> &Arc<Launcher> {
        &self.launcher
    }

    /// The way out for commands that may use it.
    #[must_use]
    pub fn egress(&self) -> &Arc<Egress> {
        &self.egress
    }

    /// The bytes on disk, for what starts and stops the service. Requests take the operations.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The table of what was published where.
    #[must_use]
    pub fn registry(&self) -> &RegistrySync {
        &self.registry
    }

    /// The record of who changed what.
    #[must_use]
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// Counts what happens.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The way of spans to a collector, where there is one.
    #[must_use]
    pub fn spans(&self) -> Option<&Arc<Spans>> {
        self.spans.as_ref()
    }

    /// Who does how much besides running.
    #[must_use]
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The workspaces that another backend answers for.
    #[must_use]
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The machines that users lend.
    #[must_use]
    pub fn runners(&self) -> &Arc<Runners> {
        &self.runners
    }

    /// How workspaces are prepared.
    #[must_use]
    pub fn preparations(&self) -> &Preparations {
        &self.preparations
    }

    /// The devboxes, where their dialect is switched on.
    #[must_use]
    pub fn devbox_table(&self) -> Option<&Arc<Devboxes>> {
        self.devboxes.as_ref()
    }

    /// A run that has a name.
    ///
    /// # Errors
    /// [`Error::NoRun`](super::Error::NoRun).
    pub fn named_run(&self, tree: &TreeId, id: &ExecId) -> Result<Arc<Recorded>> {
        self.table.find(tree, id)
    }

    /// All runs that have names, in no particular order.
    #[must_use]
    pub fn named_runs(&self) -> Vec<Arc<Recorded>> {
        self.table.all(None)
    }

    /// A run under way that has no name.
    #[must_use]
    pub fn unnamed_run(&self, tree: &TreeId, id: &ExecId) -> Option<Arc<Unnamed>> {
        self.unnamed.find(tree, id)
    }

    /// All runs under way that have no names, in no particular order.
    #[must_use]
    pub fn unnamed_runs(&self) -> Vec<Arc<Unnamed>> {
        self.unnamed.all()
    }

    /// How many commands and how many terminals of a workspace are under way.
    #[must_use]
    pub fn runs_under_way(&self, id: &WorkspaceId) -> (usize, usize) {
        self.under_way.count(id)
    }

    /// The finding about the data directory of now, or of a moment ago; `None` when no look has ended for long.
    pub async fn look_at_disk(&self) -> Option<Found> {
        self.readiness.look(&self.store).await
    }

    /// Who owns an entry of the tree `id`, as commands see it.
    #[must_use]
    pub fn owner_seen(&self, id: &TreeId, stat: &Stat) -> Owner {
        self.store.owner_seen(id, stat)
    }

    /// A file for what `user` sends, which counts for that user.
    ///
    /// # Errors
    /// Those of admission and of [`Store::spool`].
    pub async fn spool(&self, user: &UserId) -> Result<Spool> {
        let (store, owner) = (self.store.clone(), user.clone());
        self.light(user, move || Ok(store.spool(&owner)?)).await
    }

    /// Whether a stop of the service has begun.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.has_begun()
    }
}

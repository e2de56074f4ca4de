//! [`Metrics`]: figures about the service, in the text form that Prometheus reads.
//!
//! Every label has a bounded set of values: templates of routes, methods, statuses, codes, tiers, outcomes. No user,
//! agent, skill or path is a label, so that the memory taken depends on the program and not on its users.

mod form;
mod mcp;
mod runs;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use exec::ExecResult;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

pub use self::form::Form;
pub use self::mcp::{CallOutcome, CountedCall, McpCalls};
pub use self::runs::Outcome;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Asked {
    route: String,
    method: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failed {
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ran {
    outcome: &'static str,
    tier: String,
}

/// The figures of the moment, collected when they are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Commands under way.
    pub running: usize,
    /// Requests that wait for a place to run a command.
    pub waiting: usize,
    /// Skills that are mounted.
    pub live_views: usize,
    /// Network namespaces that are kept for users and agents.
    pub networks: usize,
    /// Runners that are connected.
    pub runners: usize,
    /// Bytes that the file system of the data directory has left.
    pub free_bytes: u64,
    /// Things that were thrown away and wait for another attempt to remove them.
    pub trash_waiting: usize,
    /// Attempts that have failed.
    pub trash_failures: u64,
    /// Whether audit records can be written; 1 also where none are.
    pub is_audited: bool,
}

/// Counters, gauges and histograms of one service.
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Asked, Histogram, fn() -> Histogram>,
    failures: Family<Failed, Counter>,
    runs: Family<Ran, Counter>,
    resident_runs: Counter,
    run_seconds: Histogram,
    /// Bytes that callers sent and got, counted on their connections.
    pub received: Counter<u64, AtomicU64>,
    /// As `received`, the other way.
    pub sent: Counter<u64, AtomicU64>,
    /// Open connections.
    pub connections: Gauge<i64, AtomicI64>,
    /// Connections that were told `busy`.
    pub refused_connections: Counter,
    /// Connections that gave way to others.
    pub evicted_connections: Counter,
    /// Workspaces set aside because they were not used.
    pub set_aside: Counter,
    /// Workspaces removed because they were not used.
    pub swept: Counter,
    /// Audit records written.
    pub audited: Counter,
    /// 1 while the audit log is too large and its files are too young to go.
    pub audit_overdue: Gauge,
    /// Calls of MCP tools.
    pub mcp: McpCalls,
    /// Spans that the collector took.
    pub spans_sent: Counter,
    /// Spans that were not sent, or that the collector did not take.
    pub spans_dropped: Counter,
    moment: Gauges,
}

#[derive(Default)]
struct Gauges {
    running: Gauge,
    waiting: Gauge,
    live_views: Gauge,
    networks: Gauge,
    runners: Gauge,
    free_bytes: Gauge,
    trash_waiting: Gauge,
    trash_failures: Counter<u64, AtomicU64>,
    audited: Gauge,
}

/// From half a millisecond to half a minute.
fn request_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 17))
}

impl Metrics {
    /// All figures at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("filesecbox"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(request_buckets),
            failures: Family::default(),
            runs: Family::default(),
            resident_runs: Counter::default(),
            // From a millisecond to more than the longest deadline unless configured.
            run_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 20)),
            received: Counter::default(),
            sent: Counter::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            evicted_connections: Counter::default(),
            set_aside: Counter::default(),
            swept: Counter::default(),
            audited: Counter::default(),
            audit_overdue: Gauge::default(),
            mcp: McpCalls::new(),
            spans_sent: Counter::default(),
            spans_dropped: Counter::default(),
            moment: Gauges::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("http_requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "http_request_duration",
            "Time from the head of a request to the head of its answer",
            Unit::Seconds,
            self.seconds.clone(),
        );
        registry.register("http_failures", "Requests that failed, by code", self.failures.clone());
        registry.register("runs", "Runs of commands that ended", self.runs.clone());
        registry.register(
            "resident_runs",
            "Runs in namespaces that were ready from the run before",
            self.resident_runs.clone(),
        );
        registry.register_with_unit(
            "run_duration",
            "Time that runs took",
            Unit::Seconds,
            self.run_seconds.clone(),
        );
        registry.register_with_unit("received", "Bytes from callers", Unit::Bytes, self.received.clone());
        registry.register_with_unit("sent", "Bytes to callers", Unit::Bytes, self.sent.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_refused",
            "Connections told that there are too many",
            self.refused_connections.clone(),
        );
        registry.register(
            "connections_evicted",
            "Connections without a request under way that gave way to others",
            self.evicted_connections.clone(),
        );
        registry.register(
            "workspaces_set_aside",
            "Workspaces set aside because they were not used",
            self.set_aside.clone(),
        );
        registry.register(
            "workspaces_swept",
            "Workspaces removed because they were not used",
            self.swept.clone(),
        );
        registry.register("audit_records", "Audit records written", self.audited.clone());
        registry.register(
            "audit_overdue",
            "1 while the audit log is too large and its files are too young to go",
            self.audit_overdue.clone(),
        );
        self.mcp.register(registry);
        registry.register("spans_sent", "Spans that the collector took", self.spans_sent.clone());
        registry.register(
            "spans_dropped",
            "Spans dropped because the collector did not take them in time",
            self.spans_dropped.clone(),
        );
        let moment = &self.moment;
        registry.register("runs_running", "Commands under way", moment.running.clone());
        registry.register(
            "runs_waiting",
            "Requests that wait for a place to run a command",
            moment.waiting.clone(),
        );
        registry.register("live_views", "Skills that are mounted", moment.live_views.clone());
        let networks = "Network namespaces that are kept for users and agents";
        registry.register("network_namespaces", networks, moment.networks.clone());
        registry.register("runners", "Runners that are connected", moment.runners.clone());
        registry.register_with_unit(
            "disk_free",
            "What the file system of the data directory has left",
            Unit::Bytes,
            moment.free_bytes.clone(),
        );
        registry.register(
            "trash_waiting",
            "Things that were thrown away and wait to be removed",
            moment.trash_waiting.clone(),
        );
        registry.register(
            "trash_failures",
            "Attempts to remove what was thrown away that have failed",
            moment.trash_failures.clone(),
        );
        registry.register(
            "audit_writable",
            "1 unless audit records cannot be written and changes are refused",
            moment.audited.clone(),
        );
        let version: Family<Vec<(&str, &str)>, Gauge> = Family::default();
        version.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build", "The version of the service", version);
    }

    /// Counts an answered request. `route` is a template, and `code` the word of a failure.
    pub fn answered(
        &self,
        route: &str,
        method: &'static str,
        status: u16,
        code: Option<&'static str>,
        took: Duration,
    ) {
        let asked = Asked { route: route.to_owned(), method };
        self.seconds.get_or_create(&asked).observe(took.as_secs_f64());
        self.requests.get_or_create(&Answered { route: asked.route, method, status }).inc();
        if let Some(code) = code {
            self.failures.get_or_create(&Failed { code }).inc();
        }
    }

    /// Counts a run at a tier, by its word, that ended with a result.
    pub fn ran<E>(&self, tier: String, result: &ExecResult<E>) {
        self.runs.get_or_create(&Ran { outcome: Outcome::of(result).word(), tier }).inc();
        self.run_seconds.observe(Duration::from_millis(result.duration_ms).as_secs_f64());
        if result.is_residents {
            self.resident_runs.inc();
        }
    }

    /// Counts a run that could not be started or taken in.
    pub fn ran_without_result(&self) {
        let tier = "none".to_owned();
        self.runs.get_or_create(&Ran { outcome: Outcome::Failed.word(), tier }).inc();
    }

    /// All figures as text.
    #[must_use]
    pub fn text(&self, moment: Moment, form: Form) -> String {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.moment.running.set(count(moment.running));
        self.moment.waiting.set(count(moment.waiting));
        self.moment.live_views.set(count(moment.live_views));
        self.moment.networks.set(count(moment.networks));
        self.moment.runners.set(count(moment.runners));
        self.moment.free_bytes.set(i64::try_from(moment.free_bytes).unwrap_or(i64::MAX));
        self.moment.trash_waiting.set(count(moment.trash_waiting));
        self.moment.trash_failures.inner().store(moment.trash_failures, Ordering::Relaxed);
        self.moment.audited.set(i64::from(moment.is_audited));
        let mut out = String::new();
        // Writing to a text cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        form.of_open_metrics(out)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Metrics that several parts of the service count in.
pub type Shared = Arc<Metrics>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told_and_nothing_else() {
        let metrics = Metrics::new();
        metrics.answered("/v1/x/{u}", "GET", 507, Some("quota"), Duration::from_millis(3));
        metrics.answered("/v1/x/{u}", "GET", 507, Some("quota"), Duration::from_millis(3));
        metrics.ran_without_result();
        metrics.received.inc_by(7);
        let text =
            metrics.text(Moment { running: 2, is_audited: true, ..Moment::default() }, Form::OpenMetrics);
        for line in [
            "filesecbox_http_requests_total{route=\"/v1/x/{u}\",method=\"GET\",status=\"507\"} 2",
            "filesecbox_http_failures_total{code=\"quota\"} 2",
            "filesecbox_http_request_duration_seconds_count{route=\"/v1/x/{u}\",method=\"GET\"} 2",
            "filesecbox_runs_total{outcome=\"failed\",tier=\"none\"} 1",
            "filesecbox_received_bytes_total 7",
            "filesecbox_runs_running 2",
            "filesecbox_audit_writable 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}\n{text}");
        }
    }
}

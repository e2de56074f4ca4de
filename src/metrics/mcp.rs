//! [`McpCalls`]: calls of MCP tools, by tool and outcome.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    tool: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Called {
    tool: &'static str,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// With a result.
    Ok,
    /// The tool refused it.
    Refused,
    /// With an error of the protocol, such as `busy`.
    Failed,
    /// Its caller left.
    Unanswered,
}

impl CallOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unanswered => "unanswered",
        }
    }
}

/// Calls of tools. The names of tools are those of the program.
pub struct McpCalls {
    calls: Family<Ended, Counter>,
    seconds: Family<Called, Histogram, fn() -> Histogram>,
}

/// A call under way. Dropping it counts that its caller has left.
pub struct CountedCall<'a> {
    of: &'a McpCalls,
    tool: &'static str,
    begin: Instant,
    outcome: CallOutcome,
}

/// From a millisecond to more than the longest command of a tool.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

impl McpCalls {
    pub(super) fn new() -> Self {
        Self { calls: Family::default(), seconds: Family::new_with_constructor(buckets) }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("mcp_calls", "Calls of MCP tools that ended", self.calls.clone());
        let help = "Time that calls of MCP tools took";
        registry.register_with_unit("mcp_call_duration", help, Unit::Seconds, self.seconds.clone());
    }

    /// Begins to count a call.
    #[must_use]
    pub fn begin(&self, tool: &'static str) -> CountedCall<'_> {
        CountedCall { of: self, tool, begin: Instant::now(), outcome: CallOutcome::Unanswered }
    }
}

impl CountedCall<'_> {
    /// Counts how the call ended.
    pub fn end(mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        let Self { of, tool, begin, outcome } = self;
        of.calls.get_or_create(&Ended { tool, outcome: outcome.word() }).inc();
        of.seconds.get_or_create(&Called { tool }).observe(begin.elapsed().as_secs_f64());
    }
}

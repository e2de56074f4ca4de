//! [`Request`] and [`Run`]: what is told of a request and of the run of a command, as spans.
//!
//! Names of attributes are those of OpenTelemetry's semantic conventions where there is one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Context;
use super::wire::{self, ERROR, INTERNAL, KeyValue, SERVER, Status};
use crate::metrics::Outcome;

/// When something began, on the clock of the host; how long it takes does not follow when that is set.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    at: SystemTime,
    since: Instant,
}

/// A request that was answered, or whose caller went away.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'static str,
    /// The template of its route.
    pub route: &'a str,
    /// Its id, as its answer and the log have it.
    pub id: &'a str,
    /// The id that its sender gave it.
    pub caller_id: Option<&'a str>,
    /// The role of its caller, when that is known.
    pub role: Option<&'static str>,
    /// The status it was answered with.
    pub status: Option<u16>,
    /// The word of its failure.
    pub code: Option<&'static str>,
}

/// A run of a command that ended.
#[derive(Debug)]
pub struct Run<'a> {
    /// The program's bare name.
    pub program: &'a str,
    /// How it ended.
    pub outcome: Outcome,
    /// The word for what confined it; `None` where there is no result.
    pub tier: Option<String>,
}

/// A span that is about to be sent.
#[derive(Debug)]
pub struct Span(pub(super) wire::Span);

impl Begun {
    /// Something begins now.
    #[must_use]
    pub fn now() -> Self {
        Self { at: SystemTime::now(), since: Instant::now() }
    }

    /// Start and end in nanoseconds since 1970, when it ends now.
    fn until_now(self) -> (u64, u64) {
        let start = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (nanos(start), nanos(start.saturating_add(self.since.elapsed())))
    }
}

impl Request<'_> {
    /// The span of a request that ends now.
    #[must_use]
    pub fn ended(&self, context: &Context, begun: Begun) -> Span {
        let mut attributes = vec![
            KeyValue::text("http.request.method", self.method),
            KeyValue::text("http.route", self.route),
            KeyValue::text("filesecbox.request_id", self.id),
        ];
        let sent = self.caller_id.map(|id| KeyValue::text("filesecbox.caller_request_id", id));
        attributes.extend(sent);
        attributes.extend(self.role.map(|role| KeyValue::text("filesecbox.role", role)));
        attributes.extend(self.code.map(|code| KeyValue::text("error.type", code)));
        let status =
            self.status.map(|status| KeyValue::number("http.response.status_code", i64::from(status)));
        attributes.extend(status);
        // A caller's mistake is no error of the service.
        let is_error = self.status.is_none_or(|status| status >= 500);
        span(context, format!("{} {}", self.method, self.route), SERVER, begun, attributes, is_error)
    }
}

impl Run<'_> {
    /// The span of a run that ends now.
    #[must_use]
    pub fn ended(&self, context: &Context, begun: Begun) -> Span {
        let attributes = vec![
            KeyValue::text("process.executable.name", self.program),
            KeyValue::text("filesecbox.run.outcome", self.outcome.word()),
            KeyValue::text("filesecbox.run.tier", self.tier.clone().unwrap_or_else(|| "none".to_owned())),
        ];
        span(
            context,
            format!("run {}", self.program),
            INTERNAL,
            begun,
            attributes,
            self.outcome == Outcome::Failed,
        )
    }
}

fn span(
    context: &Context,
    name: String,
    kind: i32,
    begun: Begun,
    attributes: Vec<KeyValue>,
    is_error: bool,
) -> Span {
    let (start, end) = begun.until_now();
    Span(wire::Span {
        trace_id: context.trace.to_vec(),
        span_id: context.span.to_vec(),
        parent_span_id: context.parent.map_or_else(Vec::new, |parent| parent.to_vec()),
        name,
        kind,
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        attributes,
        status: is_error.then_some(Status { code: ERROR }),
    })
}

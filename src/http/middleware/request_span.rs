//! [`RequestSpan`]: the span of a request, which is told also when its caller goes away before the answer.

use std::sync::Arc;

use axum::http::HeaderMap;

use crate::audit::UNANSWERED;
use crate::http::App;
use crate::http::request_log::RequestLog;
use crate::telemetry::span::{Begun, Request};
use crate::telemetry::{Context, Spans};

/// The header with which a caller says which trace its request belongs to.
const TRACEPARENT: &str = "traceparent";

/// A request that has a span.
pub(in crate::http) struct RequestSpan {
    /// Its place in its trace.
    pub(in crate::http) context: Context,
    spans: Arc<Spans>,
    begun: Begun,
    method: &'static str,
    route: String,
    facts: Arc<RequestLog>,
    status: Option<u16>,
    code: Option<&'static str>,
}

impl RequestSpan {
    /// The span of a request that begins now, where traces are sent and this one is among them.
    pub(in crate::http) fn begin(
        app: &App,
        headers: &HeaderMap,
        method: &'static str,
        route: &str,
        facts: &Arc<RequestLog>,
    ) -> Option<Self> {
        let spans = Arc::clone(app.service.spans()?);
        // Several are malformed, as the standard has it.
        let mut sent = headers.get_all(TRACEPARENT).iter();
        let traceparent = sent.next().filter(|_| sent.next().is_none()).and_then(|sent| sent.to_str().ok());
        Some(Self {
            context: spans.begin(traceparent)?,
            spans,
            begun: Begun::now(),
            method,
            route: route.to_owned(),
            facts: Arc::clone(facts),
            status: None,
            code: Some(UNANSWERED),
        })
    }

    /// Tells of the answer.
    pub(in crate::http) fn answered(mut self, status: u16, code: Option<&'static str>) {
        (self.status, self.code) = (Some(status), code);
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let Self { method, status, code, .. } = *self;
        let request = Request {
            method,
            route: &self.route,
            id: &self.facts.id,
            caller_id: self.facts.caller_id.as_deref(),
            role: self.facts.role(),
            status,
            code,
        };
        self.spans.push(request.ended(&self.context, self.begun));
    }
}

//! [`Spans`]: the way of spans to the collector.
//!
//! A request puts its span into a bounded queue and goes on; one thread takes batches out of it and posts them. A
//! collector that is dead or slow costs spans, which are counted, and nothing else: no request waits for it, and a
//! batch that it does not take in time is given up, because what comes after it is worth more than what is late.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prost::Message;
use thiserror::Error;

use super::span::Span;
use super::wire::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, KeyValue, Resource,
    ResourceSpans, ScopeSpans,
};
use super::{Context, wire};
use crate::metrics;

/// Spans that are sent at once.
const BATCH_MAX: usize = 512;
/// How long the first span of a batch waits for others.
const GATHERING: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch, from connecting to the end of its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an orderly stop waits until all is sent.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes of the collector's answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Where spans are sent, and how many.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector's URL for traces.
    pub url: String,
    /// The name of the service.
    pub service_name: String,
    /// The part of requests that have spans when their callers do not say.
    pub sample_ratio: f64,
    /// Spans that may wait.
    pub queue: usize,
}

/// The queue of spans.
pub struct Spans {
    sample_ratio: f64,
    /// Gone when the service stops.
    queue: Mutex<Option<SyncSender<Span>>>,
    metrics: metrics::Shared,
    /// Closed by the thread that sends, at its end.
    ended: Mutex<Receiver<()>>,
}

/// Why a batch was not taken.
#[derive(Debug, Error)]
enum SendError {
    /// There is no answer, or half of one.
    #[error("the collector cannot be asked")]
    Transport(#[source] Box<ureq::Error>),
    /// The answer is no success.
    #[error("the collector answers with status {0}")]
    Status(u16),
}

/// The thread that sends.
struct Exporter {
    agent: ureq::Agent,
    url: String,
    resource: Resource,
    metrics: metrics::Shared,
    /// Whether the last batch was not taken: only changes are logged.
    is_failing: bool,
}

impl Spans {
    /// Starts the thread that sends.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(settings: Settings, metrics: metrics::Shared) -> io::Result<Self> {
        let (sender, spans) = sync_channel(settings.queue);
        let (ending, ended) = mpsc::channel::<()>();
        let mut exporter = Exporter::new(&settings, metrics.clone());
        std::thread::Builder::new().name("spans".to_owned()).spawn(move || {
            exporter.run(&spans);
            drop(ending);
        })?;
        Ok(Self {
            sample_ratio: settings.sample_ratio,
            queue: Mutex::new(Some(sender)),
            metrics,
            ended: Mutex::new(ended),
        })
    }

    /// The context of a request with this `traceparent`; `None` when nothing is to be told of it.
    #[must_use]
    pub fn begin(&self, traceparent: Option<&str>) -> Option<Context> {
        Context::of_request(traceparent, self.sample_ratio)
    }

    /// Sends a span some time soon, or drops and counts it. Never waits.
    pub fn push(&self, span: Span) {
        let queue = self.queue.lock();
        if queue.as_ref().is_none_or(|queue| queue.try_send(span).is_err()) {
            self.metrics.spans_dropped.inc();
        }
    }

    /// Sends what waits, and gives up after two seconds.
    pub fn close(&self) {
        drop(self.queue.lock().take());
        if self.ended.lock().recv_timeout(FAREWELL) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("failed to send the last spans in time: they are dropped");
        }
    }
}

impl Exporter {
    fn new(settings: &Settings, metrics: metrics::Shared) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            // The collector is where the operator says, not where an answer or the environment leads.
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("filesecbox/", env!("CARGO_PKG_VERSION")));
        let attributes = vec![
            KeyValue::text("service.name", settings.service_name.as_str()),
            KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
        ];
        Self {
            agent: config.build().into(),
            url: settings.url.clone(),
            resource: Resource { attributes },
            metrics,
            is_failing: false,
        }
    }

    /// Sends spans until all senders of the queue are gone.
    fn run(&mut self, spans: &Receiver<Span>) {
        while let Ok(first) = spans.recv() {
            let until = Instant::now() + GATHERING;
            let mut batch = vec![first.0];
            while batch.len() < BATCH_MAX
                && let Ok(next) = spans.recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                batch.push(next.0);
            }
            self.send_counted(batch);
        }
    }

    fn send_counted(&mut self, batch: Vec<wire::Span>) {
        let total = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = self.send(batch);
        let rejected = *sent.as_ref().unwrap_or(&total).min(&total);
        self.metrics.spans_sent.inc_by(total - rejected);
        self.metrics.spans_dropped.inc_by(rejected);
        match &sent {
            Ok(_) if self.is_failing => tracing::info!("the collector takes spans again"),
            Err(error) if !self.is_failing => {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(
                    %error, cause,
                    "failed to send spans: spans are dropped until the collector takes them"
                );
            }
            Ok(_) | Err(_) => {}
        }
        self.is_failing = sent.is_err();
    }

    /// Sends a batch; returns how many of its spans the collector did not want.
    fn send(&self, spans: Vec<wire::Span>) -> Result<u64, SendError> {
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
            }],
        };
        let transport = |error| SendError::Transport(Box::new(error));
        let post = self.agent.post(&self.url).header("content-type", "application/x-protobuf");
        let mut response = post.send(request.encode_to_vec()).map_err(transport)?;
        if !response.status().is_success() {
            return Err(SendError::Status(response.status().as_u16()));
        }
        let answer =
            response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(transport)?;
        // An answer that cannot be read is a success still: its status says so.
        let answer = ExportTraceServiceResponse::decode(answer.as_slice()).unwrap_or_default();
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }
}

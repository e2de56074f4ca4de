//! Traces for operators who have a collector: spans over OTLP/HTTP, when `telemetry.otlp_endpoint` says where.
//!
//! | File | Holds |
//! | --- | --- |
//! | [`context`] | which trace a span belongs to, and what a caller says about it |
//! | [`span`] | what is told of a request and of a run |
//! | [`exporter`] | the queue of spans and the thread that sends them |
//! | `wire` | the messages of OTLP that are sent |
//!
//! A span has templates of routes, words and ids of requests. It never has a user, an agent, a path, an argument, a
//! token or contents: readers of traces may see less than readers of the log.
//!
//! # References
//! * OpenTelemetry Protocol 1.x, section *OTLP/HTTP*: <https://opentelemetry.io/docs/specs/otlp/>
//! * W3C Trace Context: <https://www.w3.org/TR/trace-context/>

pub mod context;
pub mod exporter;
pub mod span;
mod wire;

pub use self::context::Context;
pub use self::exporter::{Settings, Spans};

//! [`Form`]: events on their way, as `text/event-stream` (the HTML standard's server-sent events) or
//! `application/x-ndjson` (one JSON object a line).

use std::fmt::Display;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// How often a silent stream shows that it lives. Proxies close connections that are silent for a minute.
pub(in crate::http) const PULSE: Duration = Duration::from_secs(15);

/// The form of an answer that may be a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Form {
    /// One JSON document.
    Document,
    /// Server-sent events.
    ServerSent,
    /// One JSON object a line.
    Lines,
}

impl Form {
    /// The form that the caller accepts.
    pub(in crate::http) fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.contains("text/event-stream") {
            Self::ServerSent
        } else if accept.contains("application/x-ndjson") {
            Self::Lines
        } else {
            Self::Document
        }
    }

    pub(in crate::http) fn is_stream(self) -> bool {
        self != Self::Document
    }

    /// The answer that sends `body` as it comes.
    pub(in crate::http) fn response(self, body: Body) -> Response {
        let kind = match self {
            Self::ServerSent => "text/event-stream",
            Self::Lines | Self::Document => "application/x-ndjson",
        };
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            // nginx would collect a stream before it passes it on.
            (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        (headers, body).into_response()
    }

    /// The sign of life of a silent stream: a comment, which readers of events skip; an empty line, which readers of
    /// lines skip.
    pub(in crate::http) fn pulse(self) -> &'static [u8] {
        match self {
            Self::ServerSent => b": waiting\n\n",
            Self::Lines | Self::Document => b"\n",
        }
    }

    /// Writes one event, whose JSON has its name too.
    pub(in crate::http) fn write(
        self,
        event: &str,
        id: Option<impl Display>,
        told: &impl Serialize,
        into: &mut Vec<u8>,
    ) {
        let json = serde_json::to_vec(told).unwrap_or_default();
        if self == Self::ServerSent {
            if let Some(id) = id {
                into.extend_from_slice(format!("id: {id}\n").as_bytes());
            }
            into.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
            into.extend(json);
            into.extend_from_slice(b"\n\n");
        } else {
            into.extend(json);
            into.push(b'\n');
        }
    }
}

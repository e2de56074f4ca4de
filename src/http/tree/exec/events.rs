//! Events of a run on their way: `text/event-stream` (the HTML standard's server-sent events) or
//! `application/x-ndjson` (one JSON object a line).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exec::Encoding;
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;

use crate::ops::run::event::{Event, Kind};
use crate::ops::run::record::{Follower, Found, Recorded};

/// How often a silent stream shows that it lives. Proxies close connections that are silent for a minute.
const PULSE: Duration = Duration::from_secs(15);

/// The form of an answer about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON document.
    Document,
    /// Server-sent events.
    ServerSent,
    /// One JSON object a line.
    Lines,
}

/// One event as it is sent.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exec_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seq: Option<u64>,
}

/// A stream being sent.
struct Sending {
    follower: Follower,
    form: Form,
    encoding: Encoding,
    follow: bool,
    is_over: bool,
}

impl Form {
    /// The form that the caller accepts.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.contains("text/event-stream") {
            Self::ServerSent
        } else if accept.contains("application/x-ndjson") {
            Self::Lines
        } else {
            Self::Document
        }
    }

    pub(super) fn is_stream(self) -> bool {
        self != Self::Document
    }

    /// Answers with events as they come, up to the end of the run when `follow` says so, else those that are there.
    ///
    /// Nothing is read from the log that the receiver has no room for.
    pub(super) fn answer(self, follower: Follower, encoding: Encoding, follow: bool) -> Response {
        let sending = Sending { follower, form: self, encoding, follow, is_over: false };
        let body = Body::from_stream(stream::unfold(sending, |mut sending| async move {
            let piece = sending.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), sending))
        }));
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

    fn write(self, told: &Told<'_>, into: &mut Vec<u8>) {
        let json = serde_json::to_vec(told).unwrap_or_default();
        if self == Self::ServerSent {
            if let Some(seq) = told.seq {
                into.extend_from_slice(format!("id: {seq}\n").as_bytes());
            }
            into.extend_from_slice(format!("event: {}\ndata: ", told.event).as_bytes());
            into.extend(json);
            into.extend_from_slice(b"\n\n");
        } else {
            into.extend(json);
            into.push(b'\n');
        }
    }
}

impl Sending {
    /// The next piece of the body; `None` at its end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        let found = if self.follow {
            match tokio::time::timeout(PULSE, self.follower.next()).await {
                Ok(found) => found,
                // A comment, which readers of events skip; an empty line, which readers of lines skip.
                Err(_) if self.form == Form::ServerSent => return Some(b": waiting\n\n".to_vec()),
                Err(_) => return Some(b"\n".to_vec()),
            }
        } else {
            self.follower.now().await
        };
        let mut piece = Vec::new();
        match found {
            Ok(Found::Events(events)) => {
                for event in &events {
                    self.write(event, &mut piece);
                }
            }
            Ok(Found::Gone { first }) => {
                self.is_over = true;
                let gone = Told { first_seq: Some(first), ..Told::new("gone") };
                self.form.write(&gone, &mut piece);
            }
            Ok(Found::Nothing | Found::End) => return None,
            Err(error) => {
                tracing::error!(%error, "the events of a run cannot be read");
                return None;
            }
        }
        Some(piece)
    }

    fn write(&self, event: &Event, piece: &mut Vec<u8>) {
        let recorded: &Recorded = &self.follower.recorded;
        let mut told = Told { seq: Some(event.seq), ..Told::new(event.kind.word()) };
        let text;
        match event.kind {
            Kind::Started => told.exec_id = Some(recorded.id.as_str()),
            Kind::Stdout | Kind::Stderr if self.encoding == Encoding::Base64 => {
                told.base64 = Some(STANDARD.encode(&event.payload));
            }
            Kind::Stdout | Kind::Stderr => {
                text = String::from_utf8_lossy(&event.payload);
                told.text = Some(&text);
            }
            Kind::Exit => told.result = recorded.exit(),
        }
        self.form.write(&told, piece);
    }
}

impl<'a> Told<'a> {
    fn new(event: &'a str) -> Self {
        Self { seq: None, event, exec_id: None, text: None, base64: None, result: None, first_seq: None }
    }
}

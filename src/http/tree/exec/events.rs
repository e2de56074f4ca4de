//! Events of a run on their way.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exec::Encoding;
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;

use crate::http::answer::streamed::{Form, PULSE};
use crate::http::tree::walls::Walls;
use crate::ops::run::event::{Event, Kind};
use crate::ops::run::record::{Follower, Found, Recorded};

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
    result: Option<Value>,
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
    walls: Walls,
}

/// Answers with events as they come, up to the end of the run when `follow` says so, else those that are there.
///
/// Nothing is read from the log that the receiver has no room for.
pub(super) fn answer(
    form: Form,
    follower: Follower,
    encoding: Encoding,
    follow: bool,
    walls: Walls,
) -> Response {
    let sending = Sending { follower, form, encoding, follow, is_over: false, walls };
    let body = Body::from_stream(stream::unfold(sending, |mut sending| async move {
        let piece = sending.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(piece)), sending))
    }));
    form.response(body)
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
                Err(_) => return Some(self.form.pulse().to_vec()),
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
                self.form.write(gone.event, gone.seq, &gone, &mut piece);
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
            Kind::Exit => told.result = recorded.exit().map(|exit| self.walls.exit(exit)),
        }
        self.form.write(told.event, told.seq, &told, piece);
    }
}

impl<'a> Told<'a> {
    fn new(event: &'a str) -> Self {
        Self { seq: None, event, exec_id: None, text: None, base64: None, result: None, first_seq: None }
    }
}

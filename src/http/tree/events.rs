//! `GET T/events?after`: what becomes of the files of a tree, as it happens.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use storage::Kind;
use storage::watch::{Became, Notice};

use super::entry_facts::EntryFacts;
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::streamed::{Form, PULSE};
use crate::http::extract::{Local, Params, TreeRequest};
use crate::ops::events::{EventId, Heard, Listener, Reason, What};
use crate::ops::tree::facts::Facts;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    after: Option<String>,
}

/// One event as it is sent.
#[derive(Serialize)]
struct Told<'a> {
    event: &'a str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    /// Of what is gone, what it was; else among the facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(flatten)]
    facts: Option<EntryFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// A stream being sent.
struct Sending {
    listener: Listener,
    form: Form,
    /// Whether the beginning was told.
    has_begun: bool,
    is_over: bool,
}

pub(in crate::http) async fn events(
    State(app): State<App>,
    Local(request): Local<TreeRequest>,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let after = query.after.as_deref().or(last).map(|text| {
        let wrong = || Problem::invalid("`after` is no event's `id`: send one as it came, or leave it out");
        text.parse::<EventId>().map_err(|()| wrong())
    });
    let after = after.transpose()?;
    // A stream is all there is; who asks for nothing gets what browsers ask for.
    let form = match Form::of(&headers) {
        Form::Document => Form::ServerSent,
        form => form,
    };
    let listener = app.service.listen(request.tree.local()?.clone(), after).await?;
    let sending = Sending { listener, form, has_begun: false, is_over: false };
    let body = Body::from_stream(stream::unfold(sending, |mut sending| async move {
        let piece = sending.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(piece)), sending))
    }));
    Ok(form.response(body))
}

impl Sending {
    /// The next piece of the body; `None` at its end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut piece = Vec::new();
        if self.is_over {
            return None;
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.write(&Told::new("ready", self.listener.position()), &mut piece);
            return Some(piece);
        }
        let before = self.listener.position();
        let heard = match tokio::time::timeout(PULSE, self.listener.next()).await {
            Ok(heard) => heard,
            Err(_) => return Some(self.form.pulse().to_vec()),
        };
        match heard {
            Heard::Events(events) => {
                for event in &events {
                    let told = Told::of(&event.what, before.with(event.seq));
                    self.is_over |= matches!(event.what, What::End(_));
                    self.write(&told, &mut piece);
                }
            }
            Heard::Missed(reason) => {
                self.write(&Told::rescan(reason, self.listener.position()), &mut piece);
            }
            Heard::End => {
                self.is_over = true;
                let position = self.listener.position();
                self.write(&Told { reason: Some("stopped"), ..Told::new("end", position) }, &mut piece);
            }
        }
        Some(piece)
    }

    fn write(&self, told: &Told<'_>, into: &mut Vec<u8>) {
        self.form.write(told.event, Some(&told.id), told, into);
    }
}

impl<'a> Told<'a> {
    fn new(event: &'a str, id: EventId) -> Self {
        Self { event, id: id.to_string(), path: None, from: None, kind: None, facts: None, reason: None }
    }

    fn rescan(reason: Reason, id: EventId) -> Self {
        Self { reason: Some(reason.word()), ..Self::new("rescan", id) }
    }

    fn of(what: &'a What, id: EventId) -> Self {
        match what {
            What::Rescan(reason) => Self::rescan(*reason, id),
            What::End(reason) => Self { reason: Some(reason), ..Self::new("end", id) },
            What::Entry(Notice { path, became, kind, stat }) => {
                let (event, from) = match became {
                    Became::Created => ("created", None),
                    Became::Modified => ("modified", None),
                    Became::Deleted => ("deleted", None),
                    Became::Moved { from } => ("moved", Some(from.as_str())),
                };
                // A notice does not tell the layer.
                let facts = stat.clone().map(|stat| EntryFacts::from(Facts::local(stat, None)));
                let kind = facts.is_none().then_some(*kind);
                Self { path: Some(path.as_str()), from, kind, facts, ..Self::new(event, id) }
            }
        }
    }
}

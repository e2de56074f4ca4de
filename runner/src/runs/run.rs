//! [`Run`]: one command in which the service takes part, and its events on their way.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::Error;
use sandbox::live::{Input, LiveEnd, Order, Output};
use sandbox::wire::Data;
use sandbox::wire::live::{Event, UNACKNOWLEDGED_MAX, What};
use sandbox::wire::response::{ExecResult, Failed};
use tokio::sync::mpsc::Permit;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A command in which the service takes part.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) state: Mutex<State>,
    /// Told when the state has changed.
    pub(super) changed: Notify,
    pub(super) input: tokio::sync::Mutex<Taken>,
    /// Whether its command was started; `None` until that is known.
    pub(super) started: watch::Sender<Option<Result<(), Failed>>>,
    pub(super) killed: CancellationToken,
}

#[derive(Debug)]
pub(super) struct State {
    /// The connection to which it is attached.
    pub(super) outgoing: Option<mpsc::Sender<String>>,
    /// The last event that was sent there.
    pub(super) sent: u64,
    /// Those that are not acknowledged.
    pub(super) events: VecDeque<Event>,
    /// The number of the last event.
    pub(super) last: u64,
    pub(super) orders: Option<mpsc::Sender<Order>>,
}

/// The input that was taken so far.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Bytes, and ends, which count as one each.
    pub(super) count: u64,
    pub(super) sender: Option<mpsc::Sender<Input>>,
}

impl State {
    pub(super) fn acknowledge(&mut self, seq: u64) {
        while self.events.front().is_some_and(|event| event.seq <= seq) {
            self.events.pop_front();
        }
    }

    /// The first event that is to be sent, and where.
    fn next(&self) -> Option<(Event, mpsc::Sender<String>)> {
        let event = self.events.iter().find(|event| event.seq > self.sent)?;
        Some((event.clone(), self.outgoing.clone()?))
    }
}

impl Run {
    pub(super) fn new(name: &str, outgoing: mpsc::Sender<String>) -> Self {
        let state =
            State { outgoing: Some(outgoing), sent: 0, events: VecDeque::new(), last: 0, orders: None };
        Self {
            name: name.to_owned(),
            state: Mutex::new(state),
            changed: Notify::new(),
            input: tokio::sync::Mutex::default(),
            started: watch::Sender::new(None),
            killed: CancellationToken::new(),
        }
    }

    /// Sends events on another connection: behind `after`, or all that are not acknowledged.
    pub(super) fn attach(&self, after: Option<u64>, outgoing: mpsc::Sender<String>) {
        let mut state = self.state.lock();
        if let Some(after) = after {
            state.acknowledge(after);
        }
        state.sent = after.unwrap_or(0);
        state.outgoing = Some(outgoing);
        drop(state);
        self.changed.notify_one();
    }

    fn push(&self, what: What) {
        let mut state = self.state.lock();
        state.last += 1;
        let event = Event { run: self.name.clone(), seq: state.last, what };
        state.events.push_back(event);
    }

    /// Takes events from the command and sends them, until the last has come to the service, or no service was there for too long.
    pub(super) async fn relay(
        &self,
        mut output: mpsc::Receiver<Output>,
        mut end: LiveEnd,
        alone_max: Duration,
    ) {
        let (mut alone_since, mut is_over) = (None, false);
        loop {
            let (next, outgoing, has_room, is_done) = {
                let state = self.state.lock();
                let has_room = state.events.len() < UNACKNOWLEDGED_MAX;
                (state.next(), state.outgoing.clone(), has_room, is_over && state.events.is_empty())
            };
            if is_done {
                return;
            }
            let alone_until = match &outgoing {
                Some(_) => {
                    alone_since = None;
                    None
                }
                None => Some(*alone_since.get_or_insert_with(Instant::now) + alone_max),
            };
            tokio::select! {
                () = self.changed.notified() => {}
                room = room(next.as_ref()) => {
                    if let Some((event, sender)) = &next {
                        self.sent(event, sender, room);
                    }
                }
                () = lost(outgoing.as_ref()) => {
                    if let Some(sender) = &outgoing {
                        self.detach(sender);
                    }
                }
                output = output.recv(), if has_room && !is_over => match output {
                    Some(Output { stream, bytes }) => self.push(What::Output(stream, Data(bytes))),
                    None => {
                        is_over = true;
                        self.push(What::End(ended(end.wait().await)));
                    }
                },
                () = until(alone_until) => {
                    warn!(after_s = alone_max.as_secs(), "a command was killed: no service took part in it any more");
                    return;
                }
            }
        }
    }

    /// Puts an event into the room that there is, unless the run is attached to another connection by now.
    fn sent(&self, event: &Event, sender: &mpsc::Sender<String>, room: Option<Permit<'_, String>>) {
        let Some(room) = room else { return self.detach(sender) };
        let mut state = self.state.lock();
        let is_attached = state.outgoing.as_ref().is_some_and(|there| there.same_channel(sender));
        if is_attached && state.sent < event.seq {
            state.sent = event.seq;
            drop(state);
            room.send(event.to_text());
        }
    }

    fn detach(&self, sender: &mpsc::Sender<String>) {
        let mut state = self.state.lock();
        if state.outgoing.as_ref().is_some_and(|there| there.same_channel(sender)) {
            state.outgoing = None;
        }
    }
}

/// Room for an event on its connection; `None` when that is lost. Waits for ever where there is no event.
async fn room(next: Option<&(Event, mpsc::Sender<String>)>) -> Option<Permit<'_, String>> {
    match next {
        Some((_, sender)) => sender.reserve().await.ok(),
        None => pending().await,
    }
}

/// Waits until a connection is lost.
async fn lost(outgoing: Option<&mpsc::Sender<String>>) {
    match outgoing {
        Some(sender) => sender.closed().await,
        None => pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => pending().await,
    }
}

/// The end of a command as it is told.
fn ended(result: Result<sandbox::ExecResult, Error>) -> Result<ExecResult, Failed> {
    let result = result.map_err(|error| Failed::of(&error))?;
    info!(exit_code = result.exit_code, timed_out = result.timed_out, "a run has ended");
    Ok(ExecResult {
        exit_code: result.exit_code,
        timed_out: result.timed_out,
        signal: result.signal,
        stdout_dropped: result.stdout_dropped_bytes,
        stderr_dropped: result.stderr_dropped_bytes,
        hint: result.hint,
        ..ExecResult::default()
    })
}

//! `GET T/terminal`: a shell in a terminal, over a WebSocket (RFC 6455).
//!
//! Binary messages are what is typed and what is shown. Text messages are JSON: from the caller
//! `{"type":"resize","rows":…,"cols":…}` and `{"type":"input","text":…}`; from the service first
//! `{"type":"started",…}` and last `{"type":"exit",…}`. When the connection ends, the shell waits a while to be taken up again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use exec::{Encoding, WindowSize};
use policy::RelPath;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::walls::{Told, Walls};
use crate::http::answer::problem::Problem;
use crate::http::extract::object::Object;
use crate::http::extract::{ChangingRequest, Params};
use crate::http::{App, request_log};
use crate::ops::run::event::Kind;
use crate::ops::run::id::ExecId;
use crate::ops::run::record::{Follower, Found, Purpose, Recorded};
use crate::ops::run::seat::Seat;
use crate::ops::run::session::Recording;
use crate::ops::run::{Command, Commit, RunRequest, Skills};
use crate::ops::tree::Tree;

/// Largest message from the caller, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// The bytes that may wait to be sent before nothing more is read from the run.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// How often a silent connection shows that it lives.
const PULSE: Duration = Duration::from_secs(30);
/// Largest side of a terminal, in characters.
const SIDE_MAX: u16 = 1000;
/// The kind of terminal that the shell is told; every emulator understands it.
pub(super) const TERM: &str = "xterm-256color";
/// The size of a terminal whose caller names none.
const USUAL: WindowSize = WindowSize { rows: 24, cols: 80 };
/// The output of a terminal that is taken up again which comes once more, in bytes.
const LATEST_BYTES: u64 = 256 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    rows: Option<u16>,
    cols: Option<u16>,
    /// The terminal to take up again; `None`: a new one.
    exec_id: Option<String>,
}

/// A text message from the caller.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    Resize { rows: u16, cols: u16 },
    Input { text: String },
}

/// Why a terminal is closed.
enum Over {
    /// Its shell has ended, or its connection.
    Ended,
    /// Nothing happened for too long.
    Idle,
    /// Another caller has it now.
    Taken,
}

pub(in crate::http) async fn terminal(
    State(app): State<App>,
    ChangingRequest { tree }: ChangingRequest,
    Params(query): Params<Query>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    request_log::program("bash");
    let asked = (query.rows.is_some() || query.cols.is_some()).then_some(());
    let size = size(query.rows.unwrap_or(USUAL.rows), query.cols.unwrap_or(USUAL.cols))?;
    let upgrade = upgrade
        .map_err(|_| Problem::invalid("a terminal needs a WebSocket: connect with `ws://` and `Upgrade`"))?;
    let (seat, follower) = match query.exec_id {
        Some(id) => resume(&app, &tree, &id, asked.map(|()| size))?,
        None => begin(&app, &tree, size).await?,
    };
    let idle = Duration::from_millis(app.service.session_limits().terminal_idle_ms);
    let upgrade = upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .write_buffer_size(0)
        .max_write_buffer_size(WAITING_BYTES_MAX);
    let walls = Walls::of(&app, Told::Differing);
    Ok(upgrade.on_upgrade(move |socket| async move { sit(socket, seat, follower, idle, &walls).await }))
}

/// Takes a terminal up again, with what it has shown last.
fn resume(app: &App, tree: &Tree, id: &str, size: Option<WindowSize>) -> Result<(Seat, Follower), Problem> {
    let recorded = app.service.named_run(tree.id(), &ExecId::parse(id)?)?;
    request_log::run(&recorded.id);
    let seat = app.service.sit(&recorded)?;
    if let Some(size) = size {
        recorded.resize(size)?;
    }
    Ok((seat, recorded.follow_latest(LATEST_BYTES)?))
}

/// Starts a shell in a terminal.
async fn begin(app: &App, tree: &Tree, size: WindowSize) -> Result<(Seat, Follower), Problem> {
    let run = RunRequest {
        command: Command::Program { name: tree.shell().await?, args: Vec::new() },
        dir: RelPath::root(),
        env: BTreeMap::from([("TERM".to_owned(), TERM.to_owned())]),
        stdin: None,
        timeout_ms: None,
        isolation: None,
        skills: Skills::None,
        network: None,
        encoding: Encoding::Text,
        changes: false,
        reached: false,
        tty: false,
        commit: Commit::Now,
    };
    let recording =
        Recording { id: None, purpose: Purpose::Terminal(size), stdin_open: true, is_streamed: true };
    // Before the answer, so that a refusal has its status.
    let begun = app.service.begin(tree.to_run_in(), run, recording).await?;
    request_log::run(&begun.recorded.id);
    // From here on the shell ends also when no connection ever comes.
    let seat = app.service.sit(&begun.recorded)?;
    Ok((seat, begun.follow()?))
}

fn size(rows: u16, cols: u16) -> Result<WindowSize, Problem> {
    if (1..=SIDE_MAX).contains(&rows) && (1..=SIDE_MAX).contains(&cols) {
        Ok(WindowSize { rows, cols })
    } else {
        Err(Problem::invalid(format!("`rows` and `cols` are 1 to {SIDE_MAX}")))
    }
}

/// Carries messages both ways until one side ends.
async fn sit(mut socket: WebSocket, mut seat: Seat, mut follower: Follower, idle: Duration, walls: &Walls) {
    let recorded = Arc::clone(&follower.recorded);
    let started = json!({ "type": "started", "exec_id": recorded.id.as_str() });
    if socket.send(Message::text(started.to_string())).await.is_err() {
        return;
    }
    let mut silent_until = Instant::now() + idle;
    let mut pulse = tokio::time::interval(PULSE);
    let over = loop {
        tokio::select! {
            found = follower.next() => match found {
                Ok(Found::Events(events)) => {
                    silent_until = Instant::now() + idle;
                    let shown = events.into_iter().filter(|event| matches!(event.kind, Kind::Stdout | Kind::Stderr));
                    let mut bytes = Vec::new();
                    shown.for_each(|event| bytes.extend(event.payload));
                    if !bytes.is_empty() && socket.send(Message::binary(bytes)).await.is_err() {
                        return;
                    }
                }
                _ => break Over::Ended,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(message)) => {
                    silent_until = Instant::now() + idle;
                    if let Err(sentence) = take(&recorded, message).await {
                        let told = json!({ "type": "error", "data": sentence });
                        if socket.send(Message::text(told.to_string())).await.is_err() {
                            return;
                        }
                    }
                }
                // A closed connection, or one that breaks the protocol.
                _ => return,
            },
            // Proxies close connections that are silent for a minute.
            _ = pulse.tick() => {
                if socket.send(Message::Ping(Bytes::new())).await.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep_until(silent_until) => break Over::Idle,
            () = seat.taken() => break Over::Taken,
        }
    };
    match over {
        Over::Ended => {}
        Over::Idle => {
            recorded.kill();
            let _ = recorded.outcome().await;
        }
        Over::Taken => {
            let _ = socket.send(Message::text(json!({ "type": "taken" }).to_string())).await;
            let _ = socket.send(Message::Close(None)).await;
            return;
        }
    }
    let exit = json!({
        "type": "exit",
        "idle": matches!(over, Over::Idle),
        "result": recorded.exit().map(|exit| walls.exit(exit)),
    });
    let _ = socket.send(Message::text(exit.to_string())).await;
    let _ = socket.send(Message::Close(None)).await;
}

/// Does what a message says.
async fn take(recorded: &Recorded, message: Message) -> Result<(), String> {
    match message {
        Message::Binary(bytes) => typed(recorded, bytes.into()).await,
        Message::Text(text) => match serde_json::from_str(&text).map(|Object(order)| order) {
            Ok(Order::Resize { rows, cols }) => match size(rows, cols) {
                Ok(size) => recorded.resize(size).map_err(|error| error.to_string()),
                Err(_) => Err(format!("`rows` and `cols` are 1 to {SIDE_MAX}")),
            },
            Ok(Order::Input { text }) => typed(recorded, text.into_bytes()).await,
            Err(error) => Err(format!("the message is wrong: {error}")),
        },
        // Pings are answered by the library; a close is followed by the end of the stream.
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Ok(()),
    }
}

async fn typed(recorded: &Recorded, bytes: Vec<u8>) -> Result<(), String> {
    recorded.feed(bytes, false).await.map_err(|error| error.to_string())
}

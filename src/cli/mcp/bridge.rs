//! The bridge: requests of the client that are under way, and the messages that go back.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, INTERNAL, INVALID_REQUEST, failure, settled_version};
use super::lines::Line;
use super::message::{Request, Sent, version_header};
use super::upstream::Upstream;
use crate::mcp::MESSAGE_BYTES_MAX;

/// Requests under way at once: as many as a user may have by default.
const REQUESTS_MAX: usize = 32;
/// Messages that wait to be written.
const WAITING: usize = 4;
/// How long requests may take when standard input has ended.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the requests share.
struct Bridge {
    upstream: Upstream,
    /// The revision that a client of an older one has settled on.
    version: Mutex<Option<String>>,
    /// Ends the request of an id.
    under_way: Mutex<HashMap<String, CancellationToken>>,
}

/// Passes the messages of `input` on to `upstream`, and the answers to `output`, until the input ends or the output is closed.
///
/// # Errors
/// The output cannot be written, but for a reader who has left.
pub(super) async fn run(
    upstream: Upstream,
    mut input: Receiver<Line>,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let under_way = Mutex::default();
    let bridge = Arc::new(Bridge { upstream, version: Mutex::default(), under_way });
    let (messages, written) = mpsc::channel(WAITING);
    let mut writer = tokio::task::spawn_blocking(move || write(written, output));
    let pass = async {
        let mut requests = JoinSet::new();
        loop {
            tokio::select! {
                line = input.recv() => {
                    let Some(line) = line else { break };
                    if let Some(refusal) = take(&bridge, &mut requests, &messages, line) {
                        // A client that does not read waits with its next message.
                        let _ = messages.send(refusal).await;
                    }
                }
                Some(_) = requests.join_next() => {}
            }
        }
        let ended = async { while requests.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, ended).await;
        // The connections of the others are closed, which ends what they run.
        requests.shutdown().await;
        drop(messages);
    };
    tokio::select! {
        written = &mut writer => return finished(written),
        () = pass => {}
    }
    match tokio::time::timeout(FAREWELL, writer).await {
        Ok(written) => finished(written),
        // The client does not read.
        Err(_) => Ok(()),
    }
}

/// Looks at a line, and begins what it asks for. Gives the answer to what is not passed on.
fn take(
    bridge: &Arc<Bridge>,
    requests: &mut JoinSet<()>,
    messages: &Sender<Vec<u8>>,
    line: Line,
) -> Option<Vec<u8>> {
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong => {
            let text = format!("the message has more than {MESSAGE_BYTES_MAX} bytes: send less at once");
            return Some(failure("null", INVALID_REQUEST, "too_large", &text));
        }
    };
    let request = match Sent::read(line) {
        Sent::Request(request) => request,
        Sent::Cancelled(id) => {
            if let Some(request) = bridge.under_way.lock().get(&id) {
                request.cancel();
            }
            return None;
        }
        Sent::Other => return None,
        Sent::Refused(answer) => return Some(answer),
    };
    let cancelled = CancellationToken::new();
    {
        let mut under_way = bridge.under_way.lock();
        if under_way.contains_key(&request.id) {
            let text = "a request with this `id` is under way: give each request an id of its own";
            return Some(failure(&request.id, INVALID_REQUEST, "invalid", text));
        }
        if under_way.len() >= REQUESTS_MAX {
            let text = format!("{REQUESTS_MAX} requests are under way: wait for an answer, then try again");
            return Some(failure(&request.id, INTERNAL, "busy", &text));
        }
        under_way.insert(request.id.clone(), cancelled.clone());
    }
    let (bridge, messages) = (Arc::clone(bridge), messages.clone());
    requests.spawn(async move {
        let id = request.id.clone();
        // A request that was cancelled has no answer.
        let _ = cancelled.run_until_cancelled(bridge.pass(request, &messages)).await;
        bridge.under_way.lock().remove(&id);
    });
    None
}

impl Bridge {
    /// Passes a request on, and sends what is answered. Dropping it closes its connection, which ends what it runs.
    async fn pass(&self, request: Request, messages: &Sender<Vec<u8>>) {
        let Request { id, is_initialize, mut headers, body } = request;
        if headers.is_empty() && !is_initialize {
            headers.extend(self.version.lock().as_deref().and_then(version_header));
        }
        let mut answer = match self.upstream.send(&body, &headers).await {
            Ok(response) => Answer::new(id.clone(), response),
            Err(text) => {
                let _ = messages.send(failure(&id, INTERNAL, "disconnected", text)).await;
                return;
            }
        };
        drop(body);
        while let Some(message) = answer.next().await {
            if is_initialize && let Some(version) = settled_version(&message) {
                *self.version.lock() = Some(version);
            }
            if messages.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// Writes each message as a line, at once.
fn write(mut messages: Receiver<Vec<u8>>, mut output: impl Write) -> io::Result<()> {
    while let Some(mut message) = messages.blocking_recv() {
        message.push(b'\n');
        output.write_all(&message)?;
        output.flush()?;
    }
    Ok(())
}

fn finished(written: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    match written.map_err(io::Error::other)? {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

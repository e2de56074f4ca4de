//! [`Streams`]: processes whose output is told as it comes, by the name of their stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::live::{Input, LiveRun, LiveSpec, Order, Stream, WindowSize};
use sandbox::wire::founding::{NAME_BYTES_MAX, Push, StreamEnd, StreamInput};
use sandbox::wire::live::EVENT_BYTES_MAX;
use sandbox::wire::response::Failed;
use sandbox::wire::{Data, Response};
use sandbox::{ErrorKind, Sandbox, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Processes of one connection, at most.
const STREAMS_MAX: usize = 64;
/// Bytes of input that wait for all of them, at most.
const INPUT_BYTES_MAX: usize = 16 << 20;
/// How long a process may take to end when its input has.
const ENDING: Duration = Duration::from_secs(2);

/// What a process has in place of standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Pipes. What it writes to standard error is not told: the founding wire has no place for it.
    Stdio,
    /// A terminal.
    Pty,
}

/// A process that is to be started.
pub(super) struct Start {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) spec: LiveSpec,
    /// Where frames about it go.
    pub(super) pushes: mpsc::Sender<String>,
}

/// The processes with streams of one connection.
#[derive(Clone, Debug)]
pub(in crate::session) struct Streams {
    /// By name; `None` once the connection has ended.
    table: Arc<Mutex<Option<HashMap<String, Entry>>>>,
    /// Room for input that waits.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    /// Input on its way, with the room that it takes; `None` when no more is taken.
    input: Option<mpsc::UnboundedSender<(Input, Option<OwnedSemaphorePermit>)>>,
    /// The last size that its terminal was given.
    size: watch::Sender<Option<WindowSize>>,
    /// The process is to be killed.
    killed: CancellationToken,
    /// More input came than is kept.
    flooded: CancellationToken,
}

/// The runner's ends of an [`Entry`].
struct Ends {
    input: mpsc::UnboundedReceiver<(Input, Option<OwnedSemaphorePermit>)>,
    size: watch::Receiver<Option<WindowSize>>,
    killed: CancellationToken,
    flooded: CancellationToken,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            table: Arc::new(Mutex::new(Some(HashMap::new()))),
            room: Arc::new(Semaphore::new(INPUT_BYTES_MAX)),
        }
    }
}

impl Streams {
    /// Starts a process, and tells of it until it ends.
    pub(super) async fn start(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        user: &UserId,
        start: Start,
    ) -> Result<(), Failed> {
        let Start { kind, name, spec, pushes } = start;
        let ends = self.enter(kind, &name)?;
        // Its place is free again as soon as it is not held any more, however that comes.
        let place = Place { streams: self.clone(), name };
        let begun = tokio::select! {
            begun = sandbox.begin(user, spec) => begun,
            () = ends.killed.cancelled() => return Err(ended()),
        };
        let run = begun.map_err(|error| not_started(&error))?;
        tokio::spawn(relay(kind, place, run, ends, pushes));
        Ok(())
    }

    fn enter(&self, kind: Kind, name: &str) -> Result<Ends, Failed> {
        let invalid = |message: String| Failed::new(ErrorKind::Invalid, message);
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(invalid(format!("stream_id has 1 to {NAME_BYTES_MAX} bytes")));
        }
        let mut table = self.table.lock();
        let table = table.as_mut().ok_or_else(ended)?;
        if table.contains_key(name) {
            return Err(invalid(format!("duplicate stream_id: {}", name.escape_debug())));
        }
        if table.len() >= STREAMS_MAX {
            let message = format!("{STREAMS_MAX} streams are open: close one");
            return Err(Failed::new(ErrorKind::Busy, message));
        }
        let (input, inputs) = mpsc::unbounded_channel();
        let (size, sizes) = watch::channel(None);
        let (killed, flooded) = (CancellationToken::new(), CancellationToken::new());
        let ends = Ends { input: inputs, size: sizes, killed: killed.clone(), flooded: flooded.clone() };
        table.insert(name.to_owned(), Entry { kind, input: Some(input), size, killed, flooded });
        Ok(ends)
    }

    /// Puts input behind what waits. A process for which more comes than can be kept is killed: some of its input would be missing.
    pub(super) fn feed(&self, kind: Kind, asked: &StreamInput) {
        let table = self.table.lock();
        let Some(entry) = table.as_ref().and_then(|table| table.get(&asked.stream_id)) else { return };
        let Some(input) = entry.input.as_ref().filter(|_| entry.kind == kind) else { return };
        let bytes = asked.data.0.clone();
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match Arc::clone(&self.room).try_acquire_many_owned(count) {
            Ok(room) => drop(input.send((Input::Bytes(bytes), Some(room)))),
            Err(_) => entry.flooded.cancel(),
        }
    }

    /// Gives a terminal another size.
    pub(super) fn resize(&self, name: &str, size: WindowSize) {
        if let Some(entry) = self.table.lock().as_ref().and_then(|table| table.get(name)) {
            entry.size.send_replace(Some(size));
        }
    }

    /// Ends a process: one with pipes by the end of its input, and after [`ENDING`] by force; one in a terminal at once.
    pub(super) fn close(&self, kind: Kind, name: &str) -> Result<Response, Failed> {
        let mut table = self.table.lock();
        let entry = table.as_mut().and_then(|table| table.get_mut(name)).filter(|entry| entry.kind == kind);
        let unknown =
            || Failed::new(ErrorKind::NotFound, format!("stream not found: {}", name.escape_debug()));
        let entry = entry.ok_or_else(unknown)?;
        match kind {
            Kind::Stdio => {
                if let Some(input) = entry.input.take() {
                    let _gone = input.send((Input::End, None));
                }
            }
            Kind::Pty => entry.killed.cancel(),
        }
        Ok(Response::Ok)
    }

    /// Kills all, and takes no more.
    pub(in crate::session) fn close_all(&self) {
        for entry in self.table.lock().take().unwrap_or_default().into_values() {
            entry.killed.cancel();
        }
    }
}

/// The place of a process in the table, free when it is dropped.
struct Place {
    streams: Streams,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _entry = self.streams.table.lock().as_mut().and_then(|table| table.remove(&self.name));
    }
}

/// Tells of a process until it ends.
async fn relay(kind: Kind, place: Place, run: LiveRun, ends: Ends, pushes: mpsc::Sender<String>) {
    let LiveRun { mut output, input, orders, mut end } = run;
    let Ends { input: inputs, size, killed, flooded } = ends;
    let mut sizes = Sizes { size, orders };
    let before_input = sizes.clone();
    let name = place.name.clone();
    let tell = async |push: Push| pushes.send(push.to_text()).await;
    let speak = async {
        while let Some(came) = output.recv().await {
            if came.stream == Stream::Stdout {
                let data = StreamInput { stream_id: name.clone(), data: Data(came.bytes) };
                let push = if kind == Kind::Stdio { Push::StdioData(data) } else { Push::PtyData(data) };
                if tell(push).await.is_err() {
                    break;
                }
            }
        }
        end.wait().await
    };
    let resize = async {
        while sizes.size.changed().await.is_ok() {
            sizes.tell().await;
        }
        std::future::pending::<()>().await;
    };
    let (exit_code, error) = tokio::select! {
        ended = speak => match ended {
            Ok(result) => (result.exit_code, None),
            Err(error) => (-1, Some(error.message().to_owned())),
        },
        () = feed(inputs, input, before_input) => (-1, None),
        () = resize => (-1, None),
        () = killed.cancelled() => (-1, None),
        () = flooded.cancelled() => {
            (-1, Some(format!("more than {INPUT_BYTES_MAX} bytes of input waited")))
        }
    };
    // Killed, where it has not ended by itself.
    drop(end);
    // Its name means nothing any more when its end is told.
    drop(place);
    let end = StreamEnd { stream_id: name, exit_code, error };
    let push = if kind == Kind::Stdio { Push::StdioExit(end) } else { Push::PtyExit(end) };
    // The connection may be gone.
    let _gone = pushes.send(push.to_text()).await;
}

/// The sizes of a terminal, on their way.
#[derive(Clone)]
struct Sizes {
    size: watch::Receiver<Option<WindowSize>>,
    orders: mpsc::Sender<Order>,
}

impl Sizes {
    /// Passes on the last size; the same one again is nothing to the command.
    async fn tell(&mut self) {
        let size = *self.size.borrow_and_update();
        if let Some(size) = size {
            let _ended = self.orders.send(Order::Resize(size)).await;
        }
    }
}

/// Passes input on, behind the size that came before it. Ends [`ENDING`] after the end of the input, when the process should have ended as well.
async fn feed(
    mut inputs: mpsc::UnboundedReceiver<(Input, Option<OwnedSemaphorePermit>)>,
    input: mpsc::Sender<Input>,
    mut sizes: Sizes,
) {
    let mut has_ended = false;
    while let Some((piece, _room)) = inputs.recv().await {
        if sizes.size.has_changed().unwrap_or(false) {
            sizes.tell().await;
        }
        // In small pieces: what the process has taken may wait behind it once more.
        let mut bytes = match piece {
            Input::Bytes(bytes) => bytes,
            Input::End => {
                has_ended = true;
                let _gone = input.send(Input::End).await;
                break;
            }
        };
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(EVENT_BYTES_MAX));
            if input.send(Input::Bytes(part)).await.is_err() {
                return std::future::pending().await;
            }
        }
    }
    if !has_ended {
        // The process reads no more, and goes on.
        std::future::pending::<()>().await;
    }
    drop(input);
    tokio::time::sleep(ENDING).await;
}

fn ended() -> Failed {
    Failed::new(ErrorKind::Disconnected, "the connection has ended")
}

fn not_started(error: &sandbox::Error) -> Failed {
    let told = Failed::of(error);
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Internal => {
            Failed { code: "EIO".to_owned(), message: format!("start process: {}", told.message), ..told }
        }
        _ => told,
    }
}

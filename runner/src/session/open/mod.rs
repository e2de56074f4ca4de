//! [`OpenFiles`]: files that are open between requests. Each has a task of its own, which serves its requests in order.

mod reading;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::AbortRegistration;
use parking_lot::Mutex;
use sandbox::ErrorKind;
use sandbox::wire::response::Failed;
use sandbox::wire::{FILES_MAX, PIECE_BYTES, Request, Response, Transfer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use super::answer::frame;
use super::calls::Slot;
use super::{Machine, outcome};

/// Requests of one file that wait, at most; a service has four under way.
const WAITING: usize = 8;
/// How long a file stays open of which nothing is asked.
const IDLE: Duration = Duration::from_secs(120);

/// The open files of one connection.
#[derive(Clone, Debug)]
pub(super) struct OpenFiles {
    /// By handle; `None` once the connection has ended.
    files: Arc<Mutex<Option<HashMap<u64, OpenFile>>>>,
    room: Arc<Semaphore>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct OpenFile {
    requests: mpsc::Sender<(Ask, Slot)>,
    is_spoiled: Arc<AtomicBool>,
}

/// A request of an open file.
#[derive(Debug)]
pub(super) enum Ask {
    /// Tell the next piece.
    Read,
    /// Take the next piece.
    Write(Bytes),
    /// Put the file in its place.
    Finish,
    /// Send the rest over HTTP.
    Send(Transfer, AbortRegistration),
    /// Fetch the rest over HTTP.
    Fetch(Transfer, AbortRegistration),
}

/// The requests of one file as its task takes them; the file is forgotten when this is dropped.
struct Requests {
    files: OpenFiles,
    handle: u64,
    queue: mpsc::Receiver<(Ask, Slot)>,
    is_spoiled: Arc<AtomicBool>,
    _room: OwnedSemaphorePermit,
}

fn invalid(message: &str) -> Failed {
    Failed::new(ErrorKind::Invalid, message)
}

/// The service asks for what was not agreed on.
fn no_transfers() -> Failed {
    Failed::new(ErrorKind::Unsupported, "this runner carries no files over HTTP: ask for pieces")
}

fn unknown() -> Failed {
    invalid("no file is open with this handle: open it again")
}

impl OpenFiles {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        let room = Arc::new(Semaphore::new(FILES_MAX));
        Self { files: Arc::new(Mutex::new(Some(HashMap::new()))), room, tasks }
    }

    /// Opens a file and answers; tells the outcome for the log.
    pub(super) async fn open(&self, machine: Arc<Machine>, request: Request, id: Option<&str>) -> String {
        let opened = match request {
            Request::OpenRead(asked) => reading::open(self, &machine, asked, id).await,
            Request::OpenWrite(asked) => writing::open(self, &machine, asked, id).await,
            _ => Err(invalid("unknown request type")),
        };
        match opened {
            // Answered already, together with opening: a request that is given up leaves no file open.
            Ok(None) => "ok".to_owned(),
            Ok(Some(response)) => {
                machine.answers.say(id, &response).await;
                outcome(&response)
            }
            Err(failed) => {
                let response = Response::Error(failed);
                machine.answers.say(id, &response).await;
                outcome(&response)
            }
        }
    }

    /// Room for one more file.
    fn room(&self) -> Result<OwnedSemaphorePermit, Failed> {
        Arc::clone(&self.room)
            .try_acquire_owned()
            .map_err(|_| Failed::new(ErrorKind::Busy, format!("{FILES_MAX} files are open: close some")))
    }

    /// Gives a file its handle.
    fn enter(&self, room: OwnedSemaphorePermit) -> Result<Requests, Failed> {
        let (requests, queue) = mpsc::channel(WAITING);
        let is_spoiled = Arc::new(AtomicBool::new(false));
        let ended = || Failed::new(ErrorKind::Disconnected, "the connection has ended");
        let mut files = self.files.lock();
        let files_of = files.as_mut().ok_or_else(ended)?;
        // Random, so that a handle of an earlier connection means no file of this one; JSON numbers are exact to 2^53.
        let handle =
            getrandom::u64().map_err(|_| Failed::new(ErrorKind::Internal, "no random numbers"))? >> 12;
        if files_of.contains_key(&handle) {
            return Err(Failed::new(ErrorKind::Busy, "the handle is taken: open the file again"));
        }
        files_of.insert(handle, OpenFile { requests, is_spoiled: Arc::clone(&is_spoiled) });
        drop(files);
        Ok(Requests { files: self.clone(), handle, queue, is_spoiled, _room: room })
    }

    /// Puts a request into the queue of its file.
    ///
    /// # Errors
    /// The refusal; a file of which a piece was refused cannot be finished.
    pub(super) fn ask(&self, handle: u64, ask: Ask, slot: Slot) -> Result<(), Failed> {
        let files = self.files.lock();
        let file = files.as_ref().and_then(|files| files.get(&handle)).ok_or_else(unknown)?;
        let is_write = matches!(ask, Ask::Write(_));
        let refused = match &ask {
            Ask::Write(bytes) if bytes.len() > PIECE_BYTES => {
                Some(invalid(&format!("a piece has at most {PIECE_BYTES} bytes")))
            }
            _ => match file.requests.try_send((ask, slot)) {
                Ok(()) => None,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    let message = format!("{WAITING} requests of this file wait: wait for answers");
                    Some(Failed::new(ErrorKind::Busy, message))
                }
                Err(mpsc::error::TrySendError::Closed(_)) => Some(unknown()),
            },
        };
        let Some(refused) = refused else { return Ok(()) };
        if is_write {
            file.is_spoiled.store(true, Ordering::Release);
        }
        Err(refused)
    }

    /// Sees to it that a file is not finished.
    pub(super) fn spoil(&self, handle: u64) {
        if let Some(file) = self.files.lock().as_ref().and_then(|files| files.get(&handle)) {
            file.is_spoiled.store(true, Ordering::Release);
        }
    }

    /// Forgets a file; its task ends with the requests that wait.
    pub(super) fn close(&self, handle: u64) {
        let _closed = self.files.lock().as_mut().and_then(|files| files.remove(&handle));
    }

    pub(super) fn close_all(&self) {
        let _closed = self.files.lock().take();
    }
}

impl Requests {
    /// The next request; `None` when the file is closed, or idle for too long.
    async fn next(&mut self) -> Option<(Ask, Slot)> {
        tokio::time::timeout(IDLE, self.queue.recv()).await.ok().flatten()
    }

    /// Answers what still waits when the file is closed.
    async fn refuse_rest(mut self, machine: &Machine) {
        self.files.close(self.handle);
        self.queue.close();
        while let Some((_, slot)) = self.queue.recv().await {
            machine.answers.say(slot.id(), &Response::Error(unknown())).await;
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.files.close(self.handle);
    }
}

/// Answers and starts the task of a file with nothing in between where a request could be given up.
fn begin(
    files: &OpenFiles,
    room_out: mpsc::OwnedPermit<String>,
    id: Option<&str>,
    response: &Response,
    task: impl Future<Output = ()> + Send + 'static,
) {
    files.tasks.spawn(task);
    room_out.send(frame(id, response));
}

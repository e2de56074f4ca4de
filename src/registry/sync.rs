//! [`RegistrySync`]: keeps a registry true to the disk, on a thread of its own.
//!
//! An operation that changed publications tells which shelves, and the thread makes their rows again from the disk. It
//! does so in the order in which it is told, and reads the disk afterwards, so the last row is always the last state.
//!
//! A row that cannot be written is *owed*: a lock of another program, a full disk, a damaged file. Then the thread
//! tries again after a while, and no request waits for it. A damaged file is moved aside and everything is owed.
//!
//! Whether everything was written is told by a file, *settled*, which is there between an orderly stop and the next
//! start. A start without it makes all rows anew; the first requests are served meanwhile.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use storage::{Shelf, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::message::{Answer, Message, SETTLED};
use super::worker::{Owed, Worker};
use super::{Error, Question, Result};

/// The directory below the service's own.
const DIRECTORY: &str = "registry";
/// Messages that wait for the thread. A change that does not fit is owed.
const QUEUE_MAX: usize = 1024;
/// Those of them that ask for something: questions may not take the room of changes, which would cost making all rows
/// anew.
const ASKING_MAX: usize = 256;
/// How long a change waits for its rows before it is answered without.
const ROWS_WAIT: Duration = Duration::from_secs(1);
/// How long a question waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Keeps a registry true to the disk.
pub struct RegistrySync {
    queue: SyncSender<Message>,
    /// Room for questions in the queue.
    asking: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Set when a message found no room: its shelves are not known any more.
    is_lost: Arc<AtomicBool>,
}

/// The end of having rows made again.
#[must_use]
pub struct Synced(Option<oneshot::Receiver<()>>);

impl RegistrySync {
    /// Begins to keep the registry of `store`. With `is_mended`, the disk is another than when the registry was settled.
    ///
    /// # Errors
    /// When the directory cannot be made or the thread not started; a registry that cannot be used is no failure.
    pub fn start(store: Store, is_mended: bool) -> storage::Result<Self> {
        let dir = store.service_directory(DIRECTORY)?;
        let is_settled = match dir.remove_file(OsStr::new(SETTLED)) {
            Ok(()) => {
                // Before anything is published that a loss of power could keep from the registry.
                dir.sync()?;
                true
            }
            Err(storage::Error::NotFound(_)) => false,
            Err(other) => return Err(other),
        };
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let is_lost = Arc::new(AtomicBool::new(false));
        let place = store.root_path().join(".filesecbox").join(DIRECTORY);
        let owed = if is_settled && !is_mended { Owed::nothing() } else { Owed::Everything };
        let worker = Worker::new(store, dir, &place, is_settled, owed, Arc::clone(&is_lost));
        let thread = thread::Builder::new().name("registry".to_owned()).spawn(move || worker.work(&messages));
        let thread = thread.map_err(|source| storage::Error::from_io("thread", "registry", source))?;
        let asking = Arc::new(Semaphore::new(ASKING_MAX));
        Ok(Self { queue, asking, thread: Mutex::new(Some(thread)), is_lost })
    }

    /// Has the rows of `shelves` made again: what is published there may have changed.
    pub fn changed(&self, shelves: Vec<Shelf>) -> Synced {
        if shelves.is_empty() {
            return Synced(None);
        }
        let (done, told) = oneshot::channel();
        if self.queue.try_send(Message::Changed(shelves, done)).is_ok() {
            return Synced(Some(told));
        }
        self.is_lost.store(true, Ordering::Release);
        Synced(None)
    }

    /// Answers a question.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the registry cannot be read, or is being made anew for longer than ten seconds.
    pub async fn ask(&self, question: Question) -> Result<Answer> {
        let (sender, answer) = oneshot::channel();
        self.send(|room| Message::Ask(question, sender, room))?;
        awaited(answer).await
    }

    /// Makes all rows anew. Returns how many there are.
    ///
    /// # Errors
    /// As [`RegistrySync::ask`]; the work goes on when it takes longer.
    pub async fn rebuild(&self) -> Result<usize> {
        let (sender, answer) = oneshot::channel();
        self.send(|room| Message::Rebuild(sender, room))?;
        awaited(answer).await
    }

    fn send(&self, message: impl FnOnce(OwnedSemaphorePermit) -> Message) -> Result<()> {
        let full = || Error::Unavailable("too much waits for it".into());
        let room = Arc::clone(&self.asking).try_acquire_owned().map_err(|_| full())?;
        self.queue.try_send(message(room)).map_err(|_| full())
    }

    /// Ends the keeping, after all that it was told. It blocks. Nothing is to be published afterwards: the next start
    /// would not know.
    pub fn close(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        // Without room it still ends when the last sender has gone; then it is not settled.
        if self.queue.send(Message::Close).is_ok() && thread.join().is_err() {
            tracing::error!("the thread of the registry panicked: the next start makes the registry anew");
        }
    }
}

async fn awaited<T>(answer: oneshot::Receiver<Result<T>>) -> Result<T> {
    match tokio::time::timeout(ANSWER_WAIT, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Error::Unavailable("its keeper has ended".into())),
        Err(_) => Err(Error::Unavailable("it is being made anew".into())),
    }
}

impl Synced {
    /// Waits until the rows are made, or owed; not for long.
    pub async fn wait(self) {
        if let Some(told) = self.0 {
            let _ = tokio::time::timeout(ROWS_WAIT, told).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use policy::{AgentId, SkillId};

    use super::*;

    #[tokio::test]
    async fn questions_never_take_the_room_of_changes() {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let asking = Arc::new(Semaphore::new(ASKING_MAX));
        let keeper = RegistrySync { queue, asking, thread: Mutex::new(None), is_lost: Arc::default() };
        let mut asks: Vec<_> = (0..2 * QUEUE_MAX).map(|_| Box::pin(keeper.ask(Question::all(1)))).collect();
        let mut context = Context::from_waker(Waker::noop());
        let refused = asks
            .iter_mut()
            .map(|ask| ask.as_mut().poll(&mut context))
            .filter(std::task::Poll::is_ready)
            .count();
        assert_eq!(refused, 2 * QUEUE_MAX - ASKING_MAX);
        let (agent, skill) = (AgentId::parse("a").unwrap(), SkillId::parse("s").unwrap());
        let told = keeper.changed(vec![Shelf { agent, skill, user: None }]);
        assert!(told.0.is_some() && !keeper.is_lost.load(Ordering::Acquire));
        drop(messages);
    }
}

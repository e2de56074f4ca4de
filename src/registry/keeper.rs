//! [`Keeper`]: keeps a registry true to the disk, on a thread of its own.
//!
//! Whoever changed what is published tells which shelves, and the thread makes their rows again from the disk. It does so
//! in the order in which it is told, and reads the disk afterwards, so the last row is always the last state.
//!
//! What cannot be written is *owed*: a lock that somebody has, a full disk, a damaged file. Then the thread tries again
//! after a while, and nobody waits for it. A damaged file is moved aside and everything is owed.
//!
//! Whether everything was written is told by a file, *settled*, which is there between an orderly stop and the next
//! start. A start without it makes all rows anew; the first requests are served meanwhile.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::{Dir, Shelf, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Change, Error, Question, Registry, Result, Row, Sqlite};

/// The directory below the service's own.
const DIRECTORY: &str = "registry";
const FILE: &str = "registry.db";
/// What a damaged file is called afterwards; the last one is kept.
const ASIDE: &str = "registry.db.broken";
/// What SQLite has beside its file; in one of another file it would be taken for its own.
const BESIDE: [&str; 2] = ["registry.db-wal", "registry.db-shm"];
const SETTLED: &str = "settled";
/// Messages that wait for the thread. A change that does not fit is owed.
const QUEUE_MAX: usize = 1024;
/// Those of them that ask for something: nobody's questions take the room of changes, which would cost making all rows
/// anew.
const ASKING_MAX: usize = 256;
/// Shelves that are owed one by one; beyond it everything is.
const OWED_MAX: usize = 1024;
/// How soon it is tried again after a failure, at first and at last.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a change waits for its rows before it is answered without.
const ROWS_WAIT: Duration = Duration::from_secs(1);
/// How long a question waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Keeps a registry true to the disk.
pub struct Keeper {
    queue: SyncSender<Message>,
    /// Room for questions in the queue.
    asking: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Set when a message found no room: nobody knows which shelves were meant.
    is_lost: Arc<AtomicBool>,
}

/// Rows for a question.
#[derive(Debug)]
pub struct Answer {
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether nothing is owed: every publication that was answered is in them.
    pub is_complete: bool,
}

/// The end of having rows made again.
#[must_use]
pub struct Told(Option<oneshot::Receiver<()>>);

enum Message {
    Changed(Vec<Shelf>, oneshot::Sender<()>),
    Ask(Question, oneshot::Sender<Result<Answer>>, OwnedSemaphorePermit),
    Rebuild(oneshot::Sender<Result<usize>>, OwnedSemaphorePermit),
    Close,
}

impl Keeper {
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
        let worker = Worker {
            path: store.root_path().join(".filesecbox").join(DIRECTORY).join(FILE),
            store,
            dir,
            registry: None,
            is_checked: is_settled,
            owed: if is_settled && !is_mended { Owed::Shelves(BTreeSet::new()) } else { Owed::Everything },
            pause: None,
            is_lost: Arc::clone(&is_lost),
        };
        let thread = thread::Builder::new().name("registry".to_owned()).spawn(move || worker.work(&messages));
        let thread = thread.map_err(|source| storage::Error::from_io("thread", "registry", source))?;
        let asking = Arc::new(Semaphore::new(ASKING_MAX));
        Ok(Self { queue, asking, thread: Mutex::new(Some(thread)), is_lost })
    }

    /// Has the rows of `shelves` made again: what is published there may have changed.
    pub fn changed(&self, shelves: Vec<Shelf>) -> Told {
        if shelves.is_empty() {
            return Told(None);
        }
        let (done, told) = oneshot::channel();
        if self.queue.try_send(Message::Changed(shelves, done)).is_ok() {
            return Told(Some(told));
        }
        self.is_lost.store(true, Ordering::Release);
        Told(None)
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
    /// As [`Keeper::ask`]; the work goes on when it takes longer.
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
            tracing::error!("the keeper of the registry has panicked: the next start makes it anew");
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

impl Told {
    /// Waits until the rows are made, or owed; not for long.
    pub async fn wait(self) {
        if let Some(told) = self.0 {
            let _ = tokio::time::timeout(ROWS_WAIT, told).await;
        }
    }
}

/// The thread's part.
struct Worker {
    store: Store,
    dir: Dir,
    path: PathBuf,
    /// `None` before it is opened, and after a failure.
    registry: Option<Sqlite>,
    /// Whether the file was looked through for damage, or need not be.
    is_checked: bool,
    owed: Owed,
    pause: Option<Pause>,
    is_lost: Arc<AtomicBool>,
}

/// What the registry does not have yet.
#[derive(Debug)]
enum Owed {
    Shelves(BTreeSet<Shelf>),
    Everything,
}

/// After a failure.
struct Pause {
    until: Instant,
    length: Duration,
}

impl Owed {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Shelves(shelves) if shelves.is_empty())
    }

    fn add(&mut self, more: impl IntoIterator<Item = Shelf>) {
        if let Self::Shelves(shelves) = self {
            shelves.extend(more);
            if shelves.len() > OWED_MAX {
                *self = Self::Everything;
            }
        }
    }
}

impl Worker {
    fn work(mut self, messages: &Receiver<Message>) {
        self.settle();
        loop {
            let next = match &self.pause {
                Some(pause) => messages.recv_timeout(pause.until.saturating_duration_since(Instant::now())),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(Message::Changed(shelves, done)) => {
                    self.owed.add(shelves);
                    self.settle();
                    let _ = done.send(());
                }
                // Whoever asked has gone, or given up.
                Ok(Message::Ask(_, answer, _)) if answer.is_closed() => {}
                Ok(Message::Ask(question, answer, _room)) => {
                    self.settle();
                    let _ = answer.send(self.answer(&question));
                }
                Ok(Message::Rebuild(answer, _room)) => {
                    self.owed = Owed::Everything;
                    self.pause = None;
                    let _ = answer.send(self.pay_or_mend());
                }
                Err(RecvTimeoutError::Timeout) => self.settle(),
                Ok(Message::Close) => return self.close(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes what is owed, unless it failed a moment ago.
    fn settle(&mut self) {
        if self.is_lost.swap(false, Ordering::AcqRel) {
            self.owed = Owed::Everything;
        }
        if self.pause.as_ref().is_some_and(|pause| pause.until > Instant::now()) {
            return;
        }
        if self.owed.is_nothing() && self.registry.is_some() {
            return;
        }
        match self.pay_or_mend() {
            Ok(_) if self.owed.is_nothing() => {
                if self.pause.take().is_some() {
                    tracing::info!("the registry has everything again");
                }
            }
            Ok(_) => self.pause("some of what is published cannot be read"),
            Err(error) => self.pause(&causes(&error)),
        }
    }

    fn pause(&mut self, reason: &str) {
        let length = self.pause.as_ref().map_or(PAUSE, |pause| (pause.length * 2).min(PAUSE_MAX));
        if self.pause.is_none() {
            tracing::warn!(reason, "rows of the registry will be late");
        }
        self.pause = Some(Pause { until: Instant::now() + length, length });
    }

    /// Writes what is owed; a registry that is broken is moved aside first, once.
    fn pay_or_mend(&mut self) -> Result<usize> {
        match self.pay() {
            Err(Error::Broken(reason)) => {
                self.move_aside(&reason)?;
                self.pay()
            }
            paid => paid,
        }
    }

    /// Writes what is owed. Returns how many rows were written.
    fn pay(&mut self) -> Result<usize> {
        if self.registry.is_none() {
            let (registry, is_new) = Sqlite::open(&self.path)?;
            if is_new {
                self.owed = Owed::Everything;
            }
            if !is_new && !self.is_checked {
                registry.check()?;
            }
            self.is_checked = true;
            self.registry = Some(registry);
        }
        let Some(registry) = &mut self.registry else { return Ok(0) };
        let mut unread = BTreeSet::new();
        let written = match &self.owed {
            Owed::Shelves(shelves) => {
                let mut changes = Vec::with_capacity(shelves.len());
                for shelf in shelves {
                    match Row::read(&self.store, shelf.clone()) {
                        Ok(Some(row)) => changes.push(Change::Put(row)),
                        Ok(None) => changes.push(Change::Remove(shelf.clone())),
                        // The row stays as it is until this can be read.
                        Err(_) => late(&mut unread, shelf.clone()),
                    }
                }
                registry.apply(&changes)?;
                changes.len()
            }
            Owed::Everything => {
                let (store, began) = (&self.store, Instant::now());
                let rows = registry.replace(&mut |take| {
                    store.each_shelf(&mut |shelf| match Row::read(store, shelf.clone()) {
                        Ok(Some(row)) => take(row),
                        Ok(None) => Ok(()),
                        Err(_) => {
                            late(&mut unread, shelf);
                            Ok(())
                        }
                    })
                })?;
                tracing::info!(rows, took_ms = began.elapsed().as_millis(), "the registry was made anew");
                rows
            }
        };
        self.owed = Owed::Shelves(BTreeSet::new());
        self.owed.add(unread);
        Ok(written)
    }

    fn answer(&mut self, question: &Question) -> Result<Answer> {
        let Some(registry) = &mut self.registry else {
            return Err(Error::Unavailable("it cannot be opened".into()));
        };
        let rows = match registry.list(question) {
            Err(Error::Broken(reason)) => {
                self.move_aside(&reason)?;
                self.pay()?;
                let Some(registry) = &mut self.registry else { return Err(Error::Broken(reason)) };
                registry.list(question)?
            }
            rows => rows?,
        };
        Ok(Answer { rows, is_complete: self.owed.is_nothing() && !self.is_lost.load(Ordering::Acquire) })
    }

    /// Takes the file out of the way; everything is owed to the next one.
    fn move_aside(&mut self, reason: &str) -> Result<()> {
        tracing::warn!(reason, "the registry is broken: it is moved aside and made anew");
        self.registry = None;
        self.owed = Owed::Everything;
        for beside in BESIDE {
            absent(self.dir.remove_file(OsStr::new(beside)))?;
        }
        absent(self.dir.rename(OsStr::new(FILE), &self.dir, OsStr::new(ASIDE)))?;
        Ok(())
    }

    /// Tells the next start that nothing is owed, if so.
    fn close(mut self) {
        self.pause = None;
        self.settle();
        let Some(registry) = self.registry.take().filter(|_| self.owed.is_nothing()) else { return };
        let settled = || -> Result<()> {
            registry.close()?;
            self.dir.create_file(OsStr::new(SETTLED), 0o600)?;
            Ok(self.dir.sync()?)
        };
        if let Err(error) = settled() {
            tracing::warn!(error = %causes(&error), "the next start makes the registry anew");
        }
    }
}

/// Notes a shelf that cannot be read now.
fn late(unread: &mut BTreeSet<Shelf>, shelf: Shelf) {
    // One more than are told apart: then everything is owed.
    if unread.len() <= OWED_MAX {
        unread.insert(shelf);
    }
}

/// What is not there need not be removed.
fn absent(removed: storage::Result<()>) -> storage::Result<()> {
    match removed {
        Err(storage::Error::NotFound(_)) => Ok(()),
        other => other,
    }
}

fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
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
        let keeper = Keeper { queue, asking, thread: Mutex::new(None), is_lost: Arc::default() };
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

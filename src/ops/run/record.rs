//! [`Recorded`]: a run that can be looked at, fed, signalled and killed by its name, while it goes on and for a while
//! after.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use exec::{Feed, Signal, WindowSize};
use parking_lot::Mutex;
use policy::TreeId;
use serde_json::Value;
use storage::Store;
use tokio::sync::{mpsc, watch};

use super::control::RunControl;
use super::id::ExecId;
pub use super::log::Found;
use super::log::{Log, Reader};
use super::pending::Verdict;
use super::{Fingerprint, RunOutcome};
use crate::ops::admission::reads::Reads;
use crate::ops::{Error, Result, blocking};

/// How long bytes for standard input wait for a command that does not read.
const FEED_WAIT: Duration = Duration::from_secs(5);
/// Largest outcome that is kept in memory, in bytes; larger ones are kept in a file.
const OUTCOME_BYTES: usize = 16 * 1024;

/// The purpose of a run, which decides its permits and its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A caller waits for its end.
    Attached,
    /// It goes on by itself.
    Background,
    /// A caller has a terminal of this size.
    Terminal(WindowSize),
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a permit, or is being set up.
    Starting,
    /// Its command runs.
    Running,
    /// It is over.
    Ended,
    /// It could not be started. No request finds it any more.
    NeverBegan,
}

/// A run by its name.
pub struct Recorded {
    /// Its name.
    pub id: ExecId,
    /// Where it runs.
    pub tree: TreeId,
    /// Its purpose.
    pub purpose: Purpose,
    /// Its command, shortened, for people.
    pub command: String,
    /// When it was asked for.
    pub asked: SystemTime,
    pub(super) fingerprint: Fingerprint,
    pub(super) log: Arc<Log>,
    pub(super) reads: Reads,
    pub(super) kill: watch::Sender<bool>,
    /// How many callers have taken its terminal so far; the last has it.
    pub(super) seats: watch::Sender<u64>,
    pub(super) feed: Mutex<Option<mpsc::Sender<Feed>>>,
    /// While it runs: afterwards it would only keep descriptors.
    pub(super) control: Mutex<Option<RunControl>>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) end: OnceLock<End>,
    /// Of a run that is to be decided about and has ended.
    pub(super) verdict: Mutex<Option<Verdict>>,
}

/// How a run ended.
pub(super) struct End {
    pub(super) at: Instant,
    /// The content of the last event: all but the output, or `error` alone.
    exit: Value,
    /// Everything, or the sentence of what went wrong.
    outcome: Result<Stored, String>,
}

/// An outcome as JSON.
enum Stored {
    Memory(Vec<u8>),
    File(Arc<File>, usize),
}

impl Recorded {
    /// How far it has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// The numbers of the oldest event that is there and of the next one to come.
    #[must_use]
    pub fn events(&self) -> (u64, u64) {
        self.log.range()
    }

    /// How it ended, without its output; `None` while it goes on.
    #[must_use]
    pub fn exit(&self) -> Option<&Value> {
        self.end.get().map(|end| &end.exit)
    }

    /// Reads its events after the event `after`, 0 for all of them.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Invalid`].
    pub fn follow(self: &Arc<Self>, after: u64) -> Result<Follower> {
        Ok(Follower { recorded: Arc::clone(self), reader: self.log.reader(after)? })
    }

    /// Reads its latest events, about `bytes` of them at most, and those to come.
    ///
    /// # Errors
    /// None but those of the log.
    pub fn follow_latest(self: &Arc<Self>, bytes: u64) -> Result<Follower> {
        Ok(Follower { recorded: Arc::clone(self), reader: self.log.latest(bytes)? })
    }

    /// Waits until its command runs or will not.
    pub async fn begun(&self) -> Phase {
        let mut phase = self.phase.subscribe();
        phase.wait_for(|phase| *phase != Phase::Starting).await.map_or(Phase::NeverBegan, |phase| *phase)
    }

    /// Waits for its end and tells everything.
    ///
    /// # Errors
    /// * [`Error::RunFailed`]: its end is not known, or its changes could not be absorbed.
    /// * [`Error::NoRun`]: it could not be started.
    pub async fn outcome(&self) -> Result<RunOutcome> {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Ended | Phase::NeverBegan)).await;
        let Some(end) = self.end.get() else { return Err(Error::NoRun(self.id.to_string())) };
        let bytes = match &end.outcome {
            Err(sentence) => return Err(Error::RunFailed(sentence.clone())),
            Ok(Stored::Memory(bytes)) => bytes.clone(),
            Ok(Stored::File(file, length)) => {
                let (file, length) = (Arc::clone(file), *length);
                let read = self.reads.read(move || {
                    let mut bytes = vec![0; length];
                    file.read_exact_at(&mut bytes, 0)?;
                    Ok(serde_json::from_slice(&bytes)?)
                });
                return read.await.map_err(Error::Log);
            }
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::Log(error.into()))
    }

    /// Kills it with all its processes, if it still runs. Its end is an event like any other.
    pub fn kill(&self) {
        self.kill.send_replace(true);
    }

    /// Sends a signal to its command and the processes of its group.
    ///
    /// # Errors
    /// [`Error::NotNow`] when it has ended; [`Error::Exec`].
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let gone = Error::NotNow("the run has ended: no process is left to signal");
        let control = self.control.lock();
        let Some(control) = control.as_ref() else { return Err(gone) };
        if control.signal(signal)? { Ok(()) } else { Err(gone) }
    }

    /// The numbers that the processes of its command may have, while that runs and as far as the service may see them.
    #[must_use]
    pub fn numbers(&self) -> Vec<exec::RunNumber> {
        self.control.lock().as_ref().map(RunControl::numbers).unwrap_or_default()
    }

    /// Gives its terminal another size.
    ///
    /// # Errors
    /// [`Error::Exec`].
    pub fn resize(&self, size: WindowSize) -> Result<()> {
        match self.control.lock().as_ref() {
            Some(control) => control.resize(size),
            None => Ok(()),
        }
    }

    /// Puts bytes into its standard input, behind those that are already on their way, and closes it then when
    /// `close` says so.
    ///
    /// # Errors
    /// * [`Error::NotNow`]: its input was never open, or is closed, or the run has ended.
    /// * [`Error::Busy`]: it has not read what was sent before.
    pub async fn feed(&self, bytes: Vec<u8>, close: bool) -> Result<()> {
        const CLOSED: Error = Error::NotNow(
            "standard input of the run is closed: it has ended, or was started without `stdin_open`, or was closed",
        );
        let sender = self.feed.lock().clone();
        let Some(sender) = sender else { return Err(CLOSED) };
        let pieces = (!bytes.is_empty()).then_some(Feed::Bytes(bytes));
        let pieces: Vec<Feed> = pieces.into_iter().chain(close.then_some(Feed::End)).collect();
        // All or nothing, so that a caller that is told to come back can send the same again.
        match tokio::time::timeout(FEED_WAIT, sender.reserve_many(pieces.len())).await {
            Ok(Ok(room)) => room.zip(pieces).for_each(|(room, piece)| room.send(piece)),
            Ok(Err(_)) => return Err(CLOSED),
            Err(_) => {
                let what = "the command does not read its standard input";
                return Err(Error::Busy { what, retry_after_seconds: 5 });
            }
        }
        if close && !matches!(self.purpose, Purpose::Terminal(_)) {
            *self.feed.lock() = None;
        }
        Ok(())
    }

    /// Keeps the outcome; the log is to get its last event afterwards.
    pub(super) async fn keep(&self, store: &Store, outcome: Result<&RunOutcome, String>) {
        let stored = match outcome {
            Err(ref sentence) => Err(sentence.clone()),
            Ok(outcome) => match serde_json::to_vec(outcome) {
                Ok(bytes) => Ok(Stored::new(store, bytes).await),
                Err(error) => Err(error.to_string()),
            },
        };
        let exit = match (&stored, outcome) {
            (Err(sentence), _) => serde_json::json!({ "error": sentence }),
            (Ok(_), outcome) => outcome.map_or(Value::Null, RunOutcome::without_output),
        };
        let end = End { at: Instant::now(), exit, outcome: stored };
        drop(self.end.set(end));
        *self.feed.lock() = None;
    }
}

impl Stored {
    async fn new(store: &Store, bytes: Vec<u8>) -> Self {
        if bytes.len() <= OUTCOME_BYTES {
            return Self::Memory(bytes);
        }
        let (store, bytes) = (store.clone(), Arc::new(bytes));
        let written = {
            let bytes = Arc::clone(&bytes);
            blocking(move || {
                let file = store.unnamed_file()?;
                file.write_all_at(&bytes, 0).map_err(Error::Log)?;
                Ok(file)
            })
        };
        match written.await {
            Ok(file) => Self::File(Arc::new(file), bytes.len()),
            // Rather too much memory than no answer.
            Err(_) => Self::Memory(Arc::unwrap_or_clone(bytes)),
        }
    }
}

/// A reader that follows a run.
pub struct Follower {
    /// The run.
    pub recorded: Arc<Recorded>,
    reader: Reader,
}

impl Follower {
    /// Waits for the next events: at least one, about 64 KiB at most.
    ///
    /// # Errors
    /// [`Error::Log`].
    pub async fn next(&mut self) -> Result<Found> {
        self.reader.next().await
    }

    /// The events that are there.
    ///
    /// # Errors
    /// [`Error::Log`].
    pub async fn now(&mut self) -> Result<Found> {
        self.reader.now().await
    }
}

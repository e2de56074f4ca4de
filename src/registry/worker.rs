//! [`Worker`]: the thread that makes the rows of a registry, and what it owes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use storage::{Dir, Shelf, Store};

use super::message::{Answer, Message, SETTLED};
use super::{Change, Error, Question, Registry, Result, Row, Sqlite};

const FILE: &str = "registry.db";
/// The name of a damaged file afterwards; the last one is kept.
const ASIDE: &str = "registry.db.broken";
/// The files that SQLite has beside its file; beside another file SQLite would take them for its own.
const BESIDE: [&str; 2] = ["registry.db-wal", "registry.db-shm"];
/// Shelves that are owed one by one; beyond it everything is.
const OWED_MAX: usize = 1024;
/// How soon it is tried again after a failure, at first and at last.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The thread's part.
pub(super) struct Worker {
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

/// The rows that the registry does not have yet.
#[derive(Debug)]
pub(super) enum Owed {
    Shelves(BTreeSet<Shelf>),
    Everything,
}

/// After a failure.
struct Pause {
    until: Instant,
    length: Duration,
}

impl Owed {
    pub(super) fn nothing() -> Self {
        Self::Shelves(BTreeSet::new())
    }

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
    /// Keeps the registry in the directory `dir`, which is at `place`; `is_checked` when its file is known to be whole.
    pub(super) fn new(
        store: Store,
        dir: Dir,
        place: &Path,
        is_checked: bool,
        owed: Owed,
        is_lost: Arc<AtomicBool>,
    ) -> Self {
        Self { store, dir, path: place.join(FILE), registry: None, is_checked, owed, pause: None, is_lost }
    }

    /// Does what `messages` ask for until there are no more.
    pub(super) fn work(mut self, messages: &Receiver<Message>) {
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
                // The caller has gone, or given up.
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
                    tracing::info!("the registry has all rows again");
                }
            }
            Ok(_) => self.pause("some publications cannot be read"),
            Err(error) => self.pause(&causes(&error)),
        }
    }

    fn pause(&mut self, reason: &str) {
        let length = self.pause.as_ref().map_or(PAUSE, |pause| (pause.length * 2).min(PAUSE_MAX));
        if self.pause.is_none() {
            tracing::warn!(reason, "failed to write rows of the registry: they will be late");
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
                    store.skills().each_shelf(&mut |shelf| match Row::read(store, shelf.clone()) {
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
            tracing::warn!(
                error = %causes(&error),
                "failed to close the registry: the next start makes it anew"
            );
        }
    }
}

/// Notes a shelf that cannot be read now.
fn late(unread: &mut BTreeSet<Shelf>, shelf: Shelf) {
    // One shelf beyond the bound: then everything is owed.
    if unread.len() <= OWED_MAX {
        unread.insert(shelf);
    }
}

/// A missing file need not be removed.
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

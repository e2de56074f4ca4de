//! [`Reader`]: reading the events of a run, from anywhere, as they come.

use std::fs::File;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Log, Mark, Position};
use crate::ops::run::event::Event;
use crate::ops::run::ring::read_ring;
use crate::ops::{Error, Result};

/// How much is read at once, in bytes: one event at least.
const READ_BYTES: u64 = 64 * 1024;

/// A reader's finding.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// At least one event.
    Events(Vec<Event>),
    /// Nothing yet.
    Nothing,
    /// Everything was read, and nothing will follow.
    End,
    /// The next event is no longer there; the oldest that is has this number.
    Gone {
        /// Its number.
        first: u64,
    },
}

/// Where a stretch of a log is.
enum Source {
    File(Arc<File>),
    Memory(Vec<u8>),
}

/// A reader of a log. While there are readers, the log waits for them.
pub(crate) struct Reader {
    pub(super) log: Arc<Log>,
    pub(super) number: u64,
    pub(super) next: Mark,
    pub(super) changes: watch::Receiver<u64>,
}

impl Reader {
    /// Waits for what follows.
    ///
    /// # Errors
    /// [`Error::Log`]: the file cannot be read.
    pub(crate) async fn next(&mut self) -> Result<Found> {
        loop {
            match self.now().await? {
                Found::Nothing => {}
                found => return Ok(found),
            }
            if self.changes.changed().await.is_err() {
                return Ok(Found::End);
            }
        }
    }

    /// The next events as far as they are there: about [`READ_BYTES`] at most.
    ///
    /// # Errors
    /// [`Error::Log`]: the file cannot be read.
    pub(crate) async fn now(&mut self) -> Result<Found> {
        loop {
            self.changes.mark_unchanged();
            let (source, capacity, length) = {
                let state = self.log.state.lock();
                if self.next.at < state.first.at {
                    return Ok(Found::Gone { first: state.first.seq });
                }
                let length = (state.next.at - self.next.at).min(READ_BYTES);
                if length == 0 {
                    return Ok(if state.is_closed { Found::End } else { Found::Nothing });
                }
                let source = match &state.file {
                    Some(file) => Source::File(Arc::clone(file)),
                    None => match state.remembered(self.next.at, length) {
                        Some(bytes) => Source::Memory(bytes),
                        None => return Ok(Found::Gone { first: state.next.seq }),
                    },
                };
                (source, state.capacity, length)
            };
            let bytes = match source {
                Source::File(file) => {
                    read_ring(&self.log.reads, file, capacity, self.next.at, length).await?
                }
                Source::Memory(bytes) => bytes,
            };
            {
                // The writer may have come round meanwhile.
                let state = self.log.state.lock();
                if self.next.at < state.first.at {
                    return Ok(Found::Gone { first: state.first.seq });
                }
            }
            let mut events = Vec::new();
            let mut rest = bytes.as_slice();
            while let Some((event, after)) = Event::decode(rest) {
                self.next.at += (rest.len() - after.len()) as u64;
                rest = after;
                // The mark that was begun at may lie before the wanted event.
                if event.seq >= self.next.seq {
                    self.next.seq = event.seq + 1;
                    events.push(event);
                }
            }
            if rest.len() == bytes.len() {
                // Never, unless the file was damaged; and then no event after this one can be found.
                return Err(Error::Log(std::io::ErrorKind::InvalidData.into()));
            }
            let position = Position { at: self.next.at, waited_for: None };
            self.log.state.lock().readers.insert(self.number, position);
            self.log.taken.notify_waiters();
            if !events.is_empty() {
                return Ok(Found::Events(events));
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.log.state.lock().readers.remove(&self.number);
        self.log.taken.notify_waiters();
    }
}

//! [`Log`]: what a run did, event by event, for readers who come, go and come back.
//!
//! One task writes, any number read. Events lie in a file without a name, so that no command can reach them and no
//! crash leaves them behind; the file is used as a ring of bounded size. Memory holds a mark for every
//! [`MARK_BYTES`] of it, and of the events the first few, [`MEMORY_BYTES`] of them, until there are more.
//!
//! When the ring is full the oldest events give way. Those that an attached reader has not taken yet are waited for,
//! so that the command waits in the end, as it would for a slow pipe; but only as long as each reader takes something
//! within the patience given. One that does not is left behind and finds its next event gone.

mod reader;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::Store;
use tokio::sync::{Notify, watch};

pub use self::reader::Found;
pub(crate) use self::reader::Reader;
use super::budget::{Budget, Share};
use super::event::{Event, Kind};
use super::ring::{HEAD_BYTES, write_ring};
use crate::ops::admission::reads::Reads;
use crate::ops::{Error, Result, blocking};

/// How far apart the places are that the log remembers, in bytes.
const MARK_BYTES: u64 = 64 * 1024;
/// The bytes that a log keeps in memory before it takes a file: most runs never need one.
const MEMORY_BYTES: usize = 16 * 1024;
/// Smallest ring, in bytes.
const CAPACITY_MIN: u64 = 256 * 1024;

/// The events of one run.
pub(crate) struct Log {
    store: Store,
    state: Mutex<State>,
    /// Counts changes that readers wait for.
    changes: watch::Sender<u64>,
    /// Told when a reader has taken something or left.
    taken: Notify,
    patience: Duration,
    reads: Reads,
}

/// An event and where it lies, counted from the first byte ever written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    seq: u64,
    at: u64,
}

struct State {
    /// The first events, as long as there is no file.
    memory: Vec<u8>,
    file: Option<Arc<File>>,
    capacity: u64,
    share: Share,
    /// The oldest event that is there.
    first: Mark,
    /// Where the next one goes.
    next: Mark,
    marks: VecDeque<Mark>,
    is_closed: bool,
    readers: HashMap<u64, Position>,
    reader_next: u64,
}

/// How far a reader has come, and since when the writer waits for it to come further.
struct Position {
    at: u64,
    waited_for: Option<Instant>,
}

impl Log {
    /// An empty log of at most `capacity` bytes, which waits `patience` for a reader that takes nothing. Its readers take the
    /// permits of `reads`; its writer needs none, because a run has one.
    pub(crate) fn new(
        store: Store,
        capacity: u64,
        budget: &Arc<Budget>,
        patience: Duration,
        reads: Reads,
    ) -> Self {
        let start = Mark { seq: 1, at: 0 };
        let state = State {
            memory: Vec::new(),
            file: None,
            capacity: capacity.max(CAPACITY_MIN),
            share: budget.share(),
            first: start,
            next: start,
            marks: VecDeque::from([start]),
            is_closed: false,
            readers: HashMap::new(),
            reader_next: 0,
        };
        let (changes, _) = watch::channel(0);
        Self { store, state: Mutex::new(state), changes, taken: Notify::new(), patience, reads }
    }

    /// The numbers of the oldest event that is there and of the next one to come.
    pub(crate) fn range(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.first.seq, state.next.seq)
    }

    /// Adds one event, of at most [`PAYLOAD_BYTES_MAX`](super::event::PAYLOAD_BYTES_MAX) bytes. One task writes; events
    /// of others would be mixed up.
    ///
    /// An event that cannot be stored is lost with all before it, and readers are told so; the run goes on.
    pub(crate) async fn append(&self, kind: Kind, payload: &[u8]) {
        let (file, at, mut bytes) = {
            let mut state = self.state.lock();
            let record = Event::encode(state.next.seq, kind, payload);
            if state.remember(&record) {
                drop(state);
                self.changes.send_modify(|count| *count += 1);
                return;
            }
            match state.file.clone() {
                Some(file) => (Some(file), state.next.at, record),
                // The bytes in memory come first.
                None => {
                    (None, state.next.at - state.memory.len() as u64, [&*state.memory, &*record].concat())
                }
            }
        };
        let length = (HEAD_BYTES + payload.len()) as u64;
        self.grow(at + bytes.len() as u64);
        self.make_room(length).await;
        let capacity = self.state.lock().capacity;
        let store = self.store.clone();
        let written = blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(store.unnamed_file()?),
            };
            write_ring(&file, capacity, at, &std::mem::take(&mut bytes)).map_err(Error::Log)?;
            Ok(file)
        });
        let written = written.await;
        let mut state = self.state.lock();
        state.memory = Vec::new();
        match written {
            Ok(file) => {
                state.file = Some(file);
                state.advance(length);
            }
            Err(error) => {
                tracing::warn!(%error, "failed to keep an event of a run: the events before it are dropped");
                state.advance(length);
                state.first = state.next;
                state.marks = VecDeque::from([state.next]);
            }
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Says that nothing will follow.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changes.send_modify(|count| *count += 1);
    }

    /// Lets the file take more of the disk, or makes the ring as large as it is now.
    fn grow(&self, end: u64) {
        let mut state = self.state.lock();
        let wanted = end.min(state.capacity);
        if wanted > state.share.granted() && !state.share.grow_to(wanted) {
            // Nothing has wrapped round yet, so every place stays where it is.
            state.capacity = state.share.granted().max(CAPACITY_MIN);
        }
    }

    /// Drops the oldest events until `length` bytes fit.
    async fn make_room(&self, length: u64) {
        loop {
            // Before the look, so that nothing that happens after it is missed.
            let taken = self.taken.notified();
            let wait = {
                let mut state = self.state.lock();
                let Some(first) = state.first_after(length) else { return };
                let patience = self.patience;
                let now = Instant::now();
                let mut oldest = None;
                state.readers.retain(|_, position| {
                    if position.at >= first.at {
                        return true;
                    }
                    let since = *position.waited_for.get_or_insert(now);
                    let is_waited_for = now.duration_since(since) < patience;
                    if is_waited_for {
                        oldest = Some(oldest.map_or(since, |oldest: Instant| oldest.min(since)));
                    }
                    is_waited_for
                });
                let Some(oldest) = oldest else {
                    state.first = first;
                    while state.marks.front().is_some_and(|mark| mark.at < first.at) {
                        state.marks.pop_front();
                    }
                    return;
                };
                (oldest + patience).saturating_duration_since(now)
            };
            let _ = tokio::time::timeout(wait, taken).await;
        }
    }

    /// Reads the latest events, of at most `bytes` bytes, to the precision of the marks.
    ///
    /// # Errors
    /// As [`Log::reader`].
    pub(crate) fn latest(self: &Arc<Self>, bytes: u64) -> Result<Reader> {
        loop {
            let after = {
                let state = self.state.lock();
                let least = state.next.at.saturating_sub(bytes).max(state.first.at);
                let mark = state.marks.iter().find(|mark| mark.at >= least);
                mark.map_or(state.next, |mark| *mark).seq.max(state.first.seq) - 1
            };
            match self.reader(after) {
                // The writer was faster.
                Err(Error::Gone(_)) => {}
                reader => return reader,
            }
        }
    }

    /// Reads on after the event `after`; 0 is from the first one on.
    ///
    /// # Errors
    /// [`Error::Gone`] when what follows is no longer there; [`Error::Invalid`] when `after` has not happened.
    pub(crate) fn reader(self: &Arc<Self>, after: u64) -> Result<Reader> {
        let wanted = after.saturating_add(1);
        let changes = self.changes.subscribe();
        let mut state = self.state.lock();
        if wanted > state.next.seq {
            let last = state.next.seq - 1;
            return Err(Error::Invalid(format!("`after` is {after}, and the last event is {last}")));
        }
        if wanted < state.first.seq {
            return Err(Error::Gone(state.first.seq));
        }
        let index = state.marks.partition_point(|mark| mark.seq <= wanted);
        let mark = index.checked_sub(1).and_then(|index| state.marks.get(index)).copied();
        let at = mark.unwrap_or(state.first).at.max(state.first.at);
        let number = state.reader_next;
        state.reader_next += 1;
        state.readers.insert(number, Position { at, waited_for: None });
        drop(state);
        Ok(Reader { log: Arc::clone(self), number, next: Mark { seq: wanted, at }, changes })
    }
}

impl State {
    /// Keeps an event in memory, when all before it are there and it fits.
    fn remember(&mut self, record: &[u8]) -> bool {
        let is_whole = self.file.is_none() && self.memory.len() as u64 == self.next.at;
        let fits = is_whole && self.memory.len() + record.len() <= MEMORY_BYTES;
        if fits {
            self.memory.extend_from_slice(record);
            self.advance(record.len() as u64);
        }
        fits
    }

    /// Counts an event of `length` bytes that was kept.
    fn advance(&mut self, length: u64) {
        let this = self.next;
        self.next = Mark { seq: this.seq + 1, at: this.at + length };
        if self.marks.back().is_none_or(|mark| this.at >= mark.at + MARK_BYTES) {
            self.marks.push_back(this);
        }
    }

    /// The bytes in memory of the stretch of `length` bytes at `at`, where there is no file.
    fn remembered(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        let begin = usize::try_from(at).ok()?;
        let end = usize::try_from(at + length).ok()?;
        Some(self.memory.get(begin..end)?.to_vec())
    }

    /// The oldest event after `length` bytes have been added; `None` when all stay.
    fn first_after(&self, length: u64) -> Option<Mark> {
        let least = (self.next.at + length).checked_sub(self.capacity)?;
        if self.first.at >= least {
            return None;
        }
        Some(self.marks.iter().find(|mark| mark.at >= least).copied().unwrap_or(self.next))
    }
}

#[cfg(test)]
mod tests {
    use policy::{UserId, WorkLimits};

    use super::*;
    use crate::ops::admission::Admission;
    use crate::ops::run::event::PAYLOAD_BYTES_MAX;

    const PATIENCE: Duration = Duration::from_millis(50);

    struct Scene {
        log: Arc<Log>,
        _dir: tempfile::TempDir,
    }

    fn scene(capacity: u64, budget: &Arc<Budget>) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let options = storage::Options { durability: storage::Durability::Relaxed, ..Default::default() };
        let (store, _) = Store::open(dir.path(), options).unwrap();
        let reads = Admission::new(&WorkLimits::default()).reads_of(&UserId::parse("u").unwrap());
        Scene { log: Arc::new(Log::new(store, capacity, budget, PATIENCE, reads)), _dir: dir }
    }

    fn payload(seq: u64) -> Vec<u8> {
        let length = usize::try_from(seq * 7919 % PAYLOAD_BYTES_MAX as u64).unwrap();
        vec![u8::try_from(seq % 251).unwrap(); length]
    }

    /// Reads to the end; the number of the last event.
    async fn read(reader: &mut Reader, mut seq: u64) -> u64 {
        loop {
            match reader.next().await.unwrap() {
                Found::Events(events) => {
                    for event in events {
                        seq += 1;
                        assert_eq!((event.seq, event.payload == payload(seq)), (seq, true));
                    }
                }
                Found::End => return seq,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_attached_reader_gets_every_event_of_a_ring_that_goes_round_many_times() {
        let scene = scene(CAPACITY_MIN, &Budget::new(u64::MAX));
        let mut reader = scene.log.reader(0).unwrap();
        let log = Arc::clone(&scene.log);
        let writer = tokio::spawn(async move {
            for seq in 1..=300 {
                log.append(Kind::Stdout, &payload(seq)).await;
            }
            log.close();
        });
        assert_eq!(read(&mut reader, 0).await, 300);
        writer.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reading_can_begin_at_every_event_that_is_there_and_at_no_other() {
        let scene = scene(CAPACITY_MIN, &Budget::new(u64::MAX));
        for seq in 1..=60 {
            scene.log.append(Kind::Stderr, &payload(seq)).await;
        }
        scene.log.close();
        let (first, next) = scene.log.range();
        assert!(first > 1 && first < 60 && next == 61, "{first} {next}");
        for after in first - 1..=60 {
            assert_eq!(read(&mut scene.log.reader(after).unwrap(), after).await, 60, "after {after}");
        }
        assert!(matches!(scene.log.reader(first - 2), Err(Error::Gone(oldest)) if oldest == first));
        assert!(matches!(scene.log.reader(61), Err(Error::Invalid(_))));
        assert!(matches!(scene.log.reader(u64::MAX), Err(Error::Invalid(_))));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reader_that_takes_nothing_is_left_behind_and_told() {
        let scene = scene(CAPACITY_MIN, &Budget::new(u64::MAX));
        let mut reader = scene.log.reader(0).unwrap();
        for seq in 1..=60 {
            scene.log.append(Kind::Stdout, &payload(seq)).await;
        }
        let (first, _) = scene.log.range();
        assert_eq!(reader.next().await.unwrap(), Found::Gone { first });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_log_for_which_no_disk_is_left_keeps_what_it_has_room_for() {
        let budget = Budget::new(1024 * 1024);
        let scene = scene(u64::MAX / 2, &budget);
        for seq in 1..=300 {
            scene.log.append(Kind::Stdout, &payload(seq)).await;
        }
        scene.log.close();
        let (first, next) = scene.log.range();
        assert!(first > 1 && next == 301 && budget.used() == 1024 * 1024, "{first} {next}");
        assert_eq!(read(&mut scene.log.reader(first - 1).unwrap(), first - 1).await, 300);
    }
}

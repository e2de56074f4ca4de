//! [`History`]: the newest events of one tree, numbered.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use storage::watch::Notice;
use tokio::sync::watch;

/// Bytes of paths that one history holds; the oldest events give way.
const PATH_BYTES_MAX: usize = 1024 * 1024;

/// One event of a tree.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number, from 1 without gaps.
    pub seq: u64,
    /// The event.
    pub what: What,
}

/// An event in a tree.
#[derive(Clone, Debug)]
pub enum What {
    /// Something became of one entry.
    Entry(Notice),
    /// Any file may have changed: a listener that needs to know lists the tree.
    Rescan(Reason),
    /// The tree cannot be watched any longer. It is the last event.
    End(&'static str),
}

/// Why everything has to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The application's skill is another version.
    Baseline,
    /// More happened at once than is told one by one, or the listener was too slow.
    Overflow,
    /// The events behind the one asked for are no longer there.
    Gone,
}

impl Reason {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Overflow => "overflow",
            Self::Gone => "gone",
        }
    }
}

/// Names an event: a history by chance, and the number of an event in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub(super) history: u64,
    pub(super) seq: u64,
}

impl EventId {
    /// The event `seq` of the same history.
    #[must_use]
    pub fn with(self, seq: u64) -> Self {
        Self { seq, ..self }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{}", self.history, self.seq)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (history, seq) = text.split_once('-').ok_or(())?;
        let is_plain = history.len() == 16 && !seq.starts_with('+') && seq.len() <= 20;
        let history = u64::from_str_radix(history, 16).ok().filter(|_| is_plain).ok_or(())?;
        Ok(Self { history, seq: seq.parse().map_err(|_| ())? })
    }
}

/// The newest events of one tree.
pub(super) struct History {
    /// Tells it from the histories before and after it.
    pub(super) number: u64,
    events: Mutex<Ring>,
    events_max: usize,
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    kept: VecDeque<Arc<Event>>,
    path_bytes: usize,
    last: u64,
    has_ended: bool,
}

impl History {
    pub(super) fn new(events_max: usize) -> Self {
        let number = getrandom::u64().unwrap_or_default();
        Self { number, events: Mutex::default(), events_max, last: watch::Sender::new(0) }
    }

    /// Adds events and wakes the listeners that wait for them.
    pub(super) fn add(&self, what: impl IntoIterator<Item = What>) {
        let last = {
            let mut events = self.events.lock();
            for what in what {
                events.has_ended |= matches!(what, What::End(_));
                events.last += 1;
                events.path_bytes += path_bytes(&what);
                let event = Arc::new(Event { seq: events.last, what });
                events.kept.push_back(event);
                while events.kept.len() > self.events_max || events.path_bytes > PATH_BYTES_MAX {
                    let Some(oldest) = events.kept.pop_front() else { break };
                    events.path_bytes -= path_bytes(&oldest.what);
                }
            }
            events.last
        };
        self.last.send_replace(last);
    }

    /// The number of the newest event.
    pub(super) fn last(&self) -> u64 {
        self.events.lock().last
    }

    pub(super) fn has_ended(&self) -> bool {
        self.events.lock().has_ended
    }

    /// Tells when there are newer events.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// At most `most` events behind `seq`; `None` when some of them are not there any more.
    pub(super) fn behind(&self, seq: u64, most: usize) -> Option<Vec<Arc<Event>>> {
        let events = self.events.lock();
        let first = events.kept.front().map_or(events.last + 1, |event| event.seq);
        if seq > events.last || seq + 1 < first {
            return None;
        }
        let skip = usize::try_from(seq + 1 - first).unwrap_or(usize::MAX);
        Some(events.kept.iter().skip(skip).take(most).cloned().collect())
    }
}

fn path_bytes(what: &What) -> usize {
    match what {
        What::Entry(notice) => notice.path.as_str().len() + 64,
        What::Rescan(_) | What::End(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_tells_what_it_has_and_never_passes_over_what_it_has_not() {
        let history = History::new(3);
        let seqs = |seq, most| {
            history.behind(seq, most).map(|events| events.iter().map(|event| event.seq).collect::<Vec<_>>())
        };
        assert_eq!(seqs(0, 9), Some(vec![]));
        assert_eq!(seqs(1, 9), None);
        history.add((0..5).map(|_| What::Rescan(Reason::Overflow)));
        assert_eq!(seqs(1, 9), None);
        assert_eq!(seqs(2, 9), Some(vec![3, 4, 5]));
        assert_eq!(seqs(2, 2), Some(vec![3, 4]));
        assert_eq!(seqs(5, 9), Some(vec![]));
        assert_eq!(seqs(6, 9), None);
    }

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else_is_one() {
        let id = EventId { history: 0xAB, seq: 12 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in ["", "1", "ab-12", "00000000000000ab-", "00000000000000ab-+1", "00000000000000ab-1-1"] {
            assert!(other.parse::<EventId>().is_err(), "{other}");
        }
    }
}

//! [`Capture`]: what a run wrote, in bounded memory.
//!
//! Of each stream the first and the last half of the limit are kept; what lies between is counted and dropped. The
//! order in which the two streams arrived is kept as a list of lengths, so that they can be shown as a terminal
//! would have shown them.

use std::collections::VecDeque;
use std::ops::Range;

/// Changes between the streams that are remembered; later output is shown stream by stream.
const TURNS_MAX: usize = 65_536;

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// The output of one run.
#[derive(Debug)]
pub(crate) struct Capture {
    out: Kept,
    err: Kept,
    /// Which stream brought how many bytes, in order of arrival; neighbours differ.
    turns: Vec<(Stream, u64)>,
}

/// The kept parts of one stream.
#[derive(Debug)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes of each stream.
    pub(crate) fn new(limit: usize) -> Self {
        Self { out: Kept::new(limit), err: Kept::new(limit), turns: Vec::new() }
    }

    /// The output of a command that something else ran: of each stream the bytes that were kept, and how many are missing
    /// in their middle.
    pub(crate) fn of_kept(out: (Vec<u8>, u64), err: (Vec<u8>, u64)) -> Self {
        Self { out: Kept::of(out), err: Kept::of(err), turns: Vec::new() }
    }

    /// Takes what was read from `stream`.
    pub(crate) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.kept_mut(stream).push(bytes);
        let length = bytes.len() as u64;
        let is_full = self.turns.len() >= TURNS_MAX;
        match self.turns.last_mut() {
            Some((last, count)) if *last == stream => *count += length,
            _ if is_full => {}
            _ => self.turns.push((stream, length)),
        }
    }

    /// All bytes of `stream` that arrived, dropped ones included.
    pub(crate) fn total(&self, stream: Stream) -> u64 {
        self.kept(stream).total
    }

    /// Bytes of `stream` that arrived and are not shown.
    pub(crate) fn dropped(&self, stream: Stream) -> u64 {
        let gap = self.kept(stream).gap();
        gap.end - gap.start
    }

    /// The kept bytes of `stream`, with a line in place of what was dropped.
    ///
    /// No character of UTF-8 is cut where bytes were dropped; bytes that are no UTF-8 become U+FFFD.
    pub(crate) fn text(&self, stream: Stream) -> String {
        let mut shown = Shown::default();
        let kept = self.kept(stream);
        shown.add(kept, 0..kept.total);
        shown.text()
    }

    /// The kept bytes of `stream` as they are, the two parts joined.
    pub(crate) fn bytes(&self, stream: Stream) -> Vec<u8> {
        let kept = self.kept(stream);
        let gap = kept.gap();
        let mut bytes = kept.range(0..gap.start);
        bytes.extend(kept.range(gap.end..kept.total));
        bytes
    }

    /// The last `count` kept bytes of `stream`, as text.
    pub(crate) fn end(&self, stream: Stream, count: u64) -> String {
        let kept = self.kept(stream);
        let gap = kept.gap();
        let shown_from = if gap.is_empty() { 0 } else { gap.end };
        let start = kept.total.saturating_sub(count).max(shown_from);
        String::from_utf8_lossy(&kept.range(start..kept.total)).into_owned()
    }

    /// Both streams in order of arrival, as [`Capture::text`] shows each.
    pub(crate) fn both(&self) -> String {
        let mut shown = Shown::default();
        let (mut out, mut err) = (0, 0);
        for (stream, length) in &self.turns {
            let from = match stream {
                Stream::Out => &mut out,
                Stream::Err => &mut err,
            };
            shown.add(self.kept(*stream), *from..*from + length);
            *from += length;
        }
        // The bytes that arrived after the list of turns was full.
        shown.add(&self.out, out..self.out.total);
        shown.add(&self.err, err..self.err.total);
        shown.text()
    }

    fn kept(&self, stream: Stream) -> &Kept {
        match stream {
            Stream::Out => &self.out,
            Stream::Err => &self.err,
        }
    }

    fn kept_mut(&mut self, stream: Stream) -> &mut Kept {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: limit / 2, total: 0 }
    }

    fn of((mut head, dropped_bytes): (Vec<u8>, u64)) -> Self {
        let (half, length) = (head.len() / 2, head.len() as u64);
        let tail = if dropped_bytes == 0 { VecDeque::new() } else { head.split_off(half).into() };
        Self { head, tail, half, total: length.saturating_add(dropped_bytes) }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half.saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        // Only the last `half` bytes of the rest can stay.
        let rest = rest.get(rest.len().saturating_sub(self.half)..).unwrap_or_default();
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// The bytes that are not shown: those dropped, and pieces of characters at the edges of the gap.
    fn gap(&self) -> Range<u64> {
        let head = self.head.len() as u64;
        let tail = self.total - self.tail.len() as u64;
        if head == tail {
            return head..tail;
        }
        let torn_end = unfinished_character(&self.head) as u64;
        let torn_start = self.tail.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count() as u64;
        head - torn_end..tail + torn_start
    }

    /// The bytes of a range that touches no dropped byte.
    fn range(&self, range: Range<u64>) -> Vec<u8> {
        let head = self.head.len() as u64;
        let tail_start = self.total - self.tail.len() as u64;
        let mut bytes = Vec::new();
        let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
        if range.start < head {
            bytes.extend_from_slice(
                self.head.get(index(range.start)..index(range.end.min(head))).unwrap_or_default(),
            );
        }
        let (start, end) = (range.start.max(tail_start), range.end.max(tail_start));
        let (start, end) = (index(start - tail_start), index(end - tail_start));
        if start < end && end <= self.tail.len() {
            bytes.extend(self.tail.range(start..end));
        }
        bytes
    }
}

/// Bytes of an unfinished UTF-8 character at the end of `bytes`, 0 to 3.
#[must_use]
pub fn unfinished_character(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes.get(bytes.len().saturating_sub(3)..).unwrap_or_default()) {
        Ok(_) => 0,
        // The three last bytes may begin inside a character; only an error at the very end counts.
        Err(_) => (1..=bytes.len().min(3))
            .find(|back| {
                let piece = bytes.get(bytes.len() - back..).unwrap_or_default();
                let wanted = match piece.first() {
                    Some(0xC2..=0xDF) => 2,
                    Some(0xE0..=0xEF) => 3,
                    Some(0xF0..=0xF4) => 4,
                    _ => 0,
                };
                wanted > piece.len()
            })
            .unwrap_or(0),
    }
}

/// Text being put together, with one line for each gap.
#[derive(Default)]
struct Shown {
    bytes: Vec<u8>,
}

impl Shown {
    fn add(&mut self, kept: &Kept, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let gap = kept.gap();
        if gap.is_empty() {
            self.bytes.extend(kept.range(range));
            return;
        }
        self.bytes.extend(kept.range(range.start.min(gap.start)..range.end.min(gap.start)));
        // The line stands where the gap begins.
        if range.start <= gap.start && gap.start < range.end {
            let line = format!("\n[… {} bytes dropped …]\n", gap.end - gap.start);
            self.bytes.extend_from_slice(line.as_bytes());
        }
        self.bytes.extend(kept.range(range.start.max(gap.end)..range.end.max(gap.end)));
    }

    fn text(self) -> String {
        String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_below_the_limit_is_kept_whole_and_in_order() {
        let mut capture = Capture::new(100);
        for (stream, text) in [(Stream::Out, "a"), (Stream::Err, "b"), (Stream::Out, "c"), (Stream::Out, "d")]
        {
            capture.push(stream, text.as_bytes());
        }
        assert_eq!(capture.text(Stream::Out), "acd");
        assert_eq!(capture.text(Stream::Err), "b");
        assert_eq!(capture.both(), "abcd");
        assert_eq!(capture.dropped(Stream::Out), 0);
    }

    #[test]
    fn the_first_and_the_last_half_are_kept_and_the_rest_is_counted() {
        let mut capture = Capture::new(8);
        capture.push(Stream::Out, b"abcdefghij");
        capture.push(Stream::Out, b"klmnopqrst");
        capture.push(Stream::Err, b"!");
        assert_eq!(capture.text(Stream::Out), "abcd\n[… 12 bytes dropped …]\nqrst");
        assert_eq!(capture.both(), "abcd\n[… 12 bytes dropped …]\nqrst!");
        assert_eq!(capture.bytes(Stream::Out), b"abcdqrst");
        assert_eq!((capture.total(Stream::Out), capture.dropped(Stream::Out)), (20, 12));
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        for limit in 2..40 {
            let mut capture = Capture::new(limit);
            let text = "数据é😀".repeat(20);
            for piece in text.as_bytes().chunks(7) {
                capture.push(Stream::Out, piece);
            }
            let shown = capture.text(Stream::Out);
            assert!(!shown.contains('\u{FFFD}'), "limit {limit}: {shown}");
            let total = capture.bytes(Stream::Out).len() as u64 + capture.dropped(Stream::Out);
            assert_eq!(total, text.len() as u64, "limit {limit}");
        }
    }

    #[test]
    fn binary_output_is_text_with_replacements_and_whole_as_bytes() {
        let mut capture = Capture::new(1000);
        capture.push(Stream::Out, &[0xFF, 0x00, b'a']);
        assert_eq!(capture.text(Stream::Out), "\u{FFFD}\0a");
        assert_eq!(capture.bytes(Stream::Out), [0xFF, 0x00, b'a']);
    }

    #[test]
    fn what_something_else_kept_is_shown_as_what_was_kept_here() {
        let text = "数据é😀".repeat(20);
        for limit in [0, 2, 8, 24, 41, 1000] {
            let mut capture = Capture::new(limit);
            capture.push(Stream::Out, text.as_bytes());
            let kept = (text.len() as u64).min(limit as u64 / 2 * 2);
            let half = usize::try_from(kept / 2).unwrap();
            let bytes = if kept == text.len() as u64 {
                text.clone().into_bytes()
            } else {
                [&text.as_bytes()[..half], &text.as_bytes()[text.len() - half..]].concat()
            };
            let same = Capture::of_kept((bytes, text.len() as u64 - kept), (Vec::new(), 0));
            assert_eq!(same.text(Stream::Out), capture.text(Stream::Out), "limit {limit}");
            assert_eq!(same.dropped(Stream::Out), capture.dropped(Stream::Out), "limit {limit}");
            assert_eq!((same.total(Stream::Out), same.both()), (capture.total(Stream::Out), capture.both()));
        }
    }

    #[test]
    fn any_pieces_give_the_same_parts_as_one_piece() {
        let text: Vec<u8> = (0..200_u8).collect();
        for size in [1, 3, 16, 64, 199] {
            let mut capture = Capture::new(50);
            text.chunks(size).for_each(|piece| capture.push(Stream::Err, piece));
            assert_eq!(capture.kept(Stream::Err).head, &text[..25], "pieces of {size}");
            assert!(capture.kept(Stream::Err).tail.iter().eq(&text[175..]), "pieces of {size}");
        }
    }

    #[test]
    fn memory_is_bounded_however_often_the_streams_alternate() {
        let mut capture = Capture::new(16);
        for _ in 0..TURNS_MAX {
            capture.push(Stream::Out, b"o");
            capture.push(Stream::Err, b"e");
        }
        assert_eq!(capture.turns.len(), TURNS_MAX);
        assert_eq!(capture.total(Stream::Err), TURNS_MAX as u64);
        assert!(capture.both().len() < 200);
    }
}

//! Text as lines: what `content`, `edit` and `replace` mean. Pure but for the reader in [`read_lines`].
//!
//! A line ends with `\n`, `\r\n` or a lone `\r`; the last one may end with the text.

use std::io::Read;

use crate::error::{Error, Result};
use crate::interrupt;

/// Bytes read at once while lines are counted.
const CHUNK_BYTES: usize = 64 * 1024;

/// Memory that one line takes besides its own bytes.
const LINE_BYTES: u64 = 24;

/// Bytes that the replacements of one request may look through together. A thousand of them in the largest text would
/// take many seconds.
const REPLACED_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Some lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The lines asked for, without their ends.
    pub lines: Vec<String>,
    /// Lines in the whole text.
    pub total: u64,
    /// Whether all of the text is UTF-8, also what was not asked for.
    pub is_utf8: bool,
}

/// One replacement of a text by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The text to find, not empty.
    pub old: String,
    /// The text to put there.
    pub new: String,
    /// How often `old` must occur; occurrences do not overlap.
    pub expected: usize,
}

/// Tells whether a text that comes in pieces is UTF-8.
#[derive(Default)]
struct Utf8Check {
    is_broken: bool,
    /// The beginning of a character that the last piece cut in two.
    open: Vec<u8>,
}

impl Utf8Check {
    fn piece(&mut self, mut piece: &[u8]) {
        while !self.open.is_empty() && !self.is_broken {
            let Some((byte, rest)) = piece.split_first() else { return };
            piece = rest;
            self.open.push(*byte);
            match std::str::from_utf8(&self.open) {
                Ok(_) => self.open.clear(),
                Err(error) => self.is_broken = error.error_len().is_some(),
            }
        }
        if self.is_broken {
            return;
        }
        if let Err(error) = std::str::from_utf8(piece) {
            self.is_broken = error.error_len().is_some();
            self.open.extend_from_slice(piece.get(error.valid_up_to()..).unwrap_or_default());
        }
    }

    fn is_utf8(&self) -> bool {
        !self.is_broken && self.open.is_empty()
    }
}

/// Reads the lines `start` to `end` (1-based, inclusive) of a text of any length.
///
/// Memory is bounded by the lines asked for, which may have `limit` bytes together. Each counts as
/// [`LINE_BYTES`] more than it has, which is what keeping it takes.
///
/// # Errors
/// [`Error::NotText`] when those lines are not UTF-8, [`Error::TooLarge`].
pub fn read_lines(mut from: impl Read, path: &str, start: u64, end: u64, limit: u64) -> Result<Lines> {
    let mut wanted: Vec<u8> = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    // Lines that have ended so far; the line being read is `ended + 1`.
    let mut ended = 0_u64;
    let mut after_cr = false;
    let mut line_has_bytes = false;
    let mut check = Utf8Check::default();
    loop {
        interrupt::check()?;
        let read = from.read(&mut chunk).map_err(|error| Error::from_io("read", path, error))?;
        if read == 0 {
            break;
        }
        let mut rest = chunk.get(..read).unwrap_or_default();
        check.piece(rest);
        if after_cr {
            after_cr = false;
            if let Some(stripped) = rest.strip_prefix(b"\n") {
                // The second half of a `\r\n` that a chunk's end cut in two.
                if (start..=end).contains(&ended) {
                    wanted.push(b'\n');
                }
                rest = stripped;
            }
        }
        while !rest.is_empty() {
            let at = memchr::memchr2(b'\n', b'\r', rest);
            let mut length = at.map_or(rest.len(), |at| at + 1);
            if at.is_some() && rest.get(length - 1) == Some(&b'\r') {
                match rest.get(length) {
                    Some(b'\n') => length += 1,
                    Some(_) => {}
                    None => after_cr = true,
                }
            }
            let (line, others) = rest.split_at(length);
            if (start..=end).contains(&(ended + 1)) {
                wanted.extend_from_slice(line);
                let lines_bytes = LINE_BYTES.saturating_mul((ended + 1).saturating_sub(start));
                if u64::try_from(wanted.len()).unwrap_or(u64::MAX).saturating_add(lines_bytes) > limit {
                    return Err(Error::TooLarge { what: format!("the part of `{path}` asked for"), limit });
                }
            }
            line_has_bytes = at.is_none();
            ended += u64::from(at.is_some());
            rest = others;
        }
    }
    let total = ended + u64::from(line_has_bytes);
    let text = String::from_utf8(wanted).map_err(|_| Error::NotText(path.to_owned()))?;
    let lines = split(&text).map(|line| content(line).to_owned()).collect();
    Ok(Lines { lines, total, is_utf8: check.is_utf8() })
}

/// Counts the lines of a text.
#[must_use]
pub fn count_lines(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let ends = memchr::memchr2_iter(b'\n', b'\r', bytes);
    // The `\n` of a `\r\n` ends no second line.
    let ended = ends.filter(|at| {
        at.checked_sub(1)
            .is_none_or(|before| !(bytes.get(*at) == Some(&b'\n') && bytes.get(before) == Some(&b'\r')))
    });
    let open = !text.is_empty() && !text.ends_with(['\n', '\r']);
    ended.map(|_| 1_u64).sum::<u64>() + u64::from(open)
}

/// Splits a text into lines, each with its end.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let bytes = rest.as_bytes();
        let length = match memchr::memchr2(b'\n', b'\r', bytes) {
            None => rest.len(),
            Some(at) if bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n') => at + 2,
            Some(at) => at + 1,
        };
        let (line, others) = rest.split_at(length);
        rest = others;
        Some(line)
    })
}

/// A line without its end.
fn content(line: &str) -> &str {
    line.strip_suffix("\r\n").or_else(|| line.strip_suffix(['\n', '\r'])).unwrap_or(line)
}

/// The end of a line, empty when it has none.
fn line_end(line: &str) -> &str {
    line.get(content(line).len()..).unwrap_or_default()
}

/// Replaces the lines `start` to `end` (1-based, inclusive) of `text` by the lines of `body`.
///
/// * No `start` means from the first line, no `end` to the last; `end` beyond the text is clamped.
/// * `end = start - 1` inserts before `start`; `start = lines + 1` appends.
/// * An empty `body` deletes the lines. One final line end in `body` ends its last line and adds none, so that
///   `"\n"` is one blank line.
/// * New lines get the line end of the text around them; whether the text ends with one stays as it was.
///
/// # Errors
/// [`Error::LineRange`]: `start` is below 1 or beyond the last line + 1, or `end` is below `start - 1`.
pub fn edit_lines(
    text: &str,
    path: &str,
    start: Option<u64>,
    end: Option<u64>,
    body: &str,
) -> Result<String> {
    let total = count_lines(text);
    let start = start.unwrap_or(1);
    let end = end.unwrap_or(total.max(start.saturating_sub(1)));
    let refused = |rule| Err(Error::LineRange { path: path.to_owned(), start, end, total, rule });
    if start < 1 {
        return refused("lines are counted from 1");
    }
    if start > total + 1 {
        return refused("the first line lies beyond the end; the line after the last one appends");
    }
    if end < start - 1 {
        return refused("the last line comes before the first; `end` one below `start` inserts");
    }
    let from = start - 1;
    let to = end.min(total).max(from);
    // Found in one pass: a list of all lines would take many times what a text of short lines has.
    let (mut from_at, mut to_at, mut at) = (text.len(), text.len(), 0);
    let (mut first, mut previous, mut replaced) = (None, None, None);
    for (line, number) in split(text).zip(0_u64..) {
        if number == 0 {
            first = Some(line);
        }
        if number + 1 == from {
            previous = Some(line);
        }
        if number == from {
            (from_at, replaced) = (at, Some(line));
        }
        if number == to {
            to_at = at;
            break;
        }
        at += line.len();
    }
    let (before, after) = (text.get(..from_at).unwrap_or_default(), text.get(to_at..).unwrap_or_default());

    // The end of the first line replaced, else of its neighbours, else of any line, else `\n`.
    let neighbours = [replaced, previous, first].into_iter().flatten();
    let new_end = neighbours.map(line_end).find(|end| !end.is_empty()).unwrap_or("\n");

    let ends_open = |text: &str| !text.is_empty() && !text.ends_with(['\n', '\r']);
    let mut result = String::with_capacity(text.len() + body.len());
    for kept in [Some(before), None, Some(after)] {
        let Some(kept) = kept else {
            for line in split(body) {
                result.push_str(content(line));
                result.push_str(new_end);
            }
            continue;
        };
        result.push_str(kept);
        if ends_open(kept) {
            result.push_str(new_end);
        }
    }
    if ends_open(text) {
        let end = if result.ends_with("\r\n") { 2 } else { usize::from(result.ends_with(['\n', '\r'])) };
        result.truncate(result.len() - end);
    }
    Ok(result)
}

/// Makes every replacement in turn, or none.
///
/// In a text with `\r\n` ends, an `old` with bare `\n` that is not found is tried with `\r\n`, and `new` then gets
/// `\r\n` as well: agents see lines without their ends.
///
/// The text has at most `limit` bytes after each of them: the size is worked out before it is taken, because a few
/// kilobytes of replacements could ask for more memory than any machine has.
///
/// # Errors
/// [`Error::EditMismatch`] for the first replacement whose count differs; [`Error::TooLarge`], also for more replacements
/// in a large text than one request may make; those of [`interrupt::check`].
pub fn replace(text: &str, path: &str, replacements: &[Replacement], limit: u64) -> Result<String> {
    replace_looking_through(REPLACED_BYTES_MAX, text, path, replacements, limit)
}

/// As [`replace`], looking through `bytes_max` bytes at most.
fn replace_looking_through(
    bytes_max: usize,
    text: &str,
    path: &str,
    replacements: &[Replacement],
    limit: u64,
) -> Result<String> {
    let mut text = text.to_owned();
    let mut bytes_left = bytes_max;
    for (index, Replacement { old, new, expected }) in replacements.iter().enumerate() {
        interrupt::check()?;
        bytes_left = bytes_left.checked_sub(text.len()).ok_or_else(|| Error::TooLarge {
            what: format!("`{path}`, read again for each edit of this request,"),
            limit: u64::try_from(bytes_max).unwrap_or(u64::MAX),
        })?;
        let mut found = count(&text, old);
        let (mut old, mut new) = (old.clone(), new.clone());
        if found == 0 && text.contains("\r\n") && old.contains('\n') && !old.contains('\r') {
            old = old.replace('\n', "\r\n");
            new = new.replace("\r\n", "\n").replace('\n', "\r\n");
            found = count(&text, &old);
        }
        if found != *expected {
            let nearest = if found == 0 { nearest_line(&text, &old) } else { None };
            return Err(Error::EditMismatch {
                path: path.to_owned(),
                index,
                found,
                expected: *expected,
                nearest,
            });
        }
        let kept = text.len().saturating_sub(found.saturating_mul(old.len()));
        let bytes = kept.saturating_add(found.saturating_mul(new.len()));
        if u64::try_from(bytes).unwrap_or(u64::MAX) > limit {
            return Err(Error::TooLarge { what: format!("`{path}` after the change"), limit });
        }
        text = text.replace(&old, &new);
    }
    Ok(text)
}

fn count(text: &str, old: &str) -> usize {
    // Looking for a text begins with work on all of it.
    if old.is_empty() || old.len() > text.len() { 0 } else { text.matches(old).count() }
}

/// The line of `text` that shares the longest beginning with the first line of `old` that is not blank.
fn nearest_line(text: &str, old: &str) -> Option<u64> {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    let shared = |line: &str| {
        let line = line.trim();
        if line.contains(wanted) {
            return usize::MAX;
        }
        line.chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count()
    };
    // Fewer than three letters in common is no resemblance.
    let (number, best) = split(text)
        .map(shared)
        .zip(1..)
        .max_by_key(|(score, line)| (*score, std::cmp::Reverse(*line)))
        .map(|(a, b)| (b, a))?;
    (best >= 3).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::interrupt::Interrupt;

    #[test]
    fn counting_the_lines_of_a_long_text_ends_when_its_caller_has_left() {
        let interrupt = Interrupt::after(std::time::Duration::from_secs(600));
        interrupt.abandon();
        let read = interrupt.enter(|| read_lines(std::io::repeat(0), "f", 2, 3, 1024));
        assert!(matches!(read, Err(Error::Abandoned)), "{read:?}");
    }

    fn edit(text: &str, start: impl Into<Option<u64>>, end: impl Into<Option<u64>>, body: &str) -> String {
        edit_lines(text, "f", start.into(), end.into(), body).unwrap()
    }

    #[test]
    fn a_range_is_replaced_and_the_rest_stays_as_it_was() {
        assert_eq!(edit("1\n2\n3\n", 2, 2, "x\ny"), "1\nx\ny\n3\n");
        assert_eq!(edit("1\n2\n3\n", 2, 99, "x"), "1\nx\n");
        assert_eq!(edit("1\n2\n3\n", 2, u64::MAX, "x"), "1\nx\n");
        assert_eq!(edit("1\n2\n3\n", 2, None, "x"), "1\nx\n");
        assert_eq!(edit("1\n2\n3\n", None, 2, "x"), "x\n3\n");
        assert_eq!(edit("一\n二\n三\n", 2, 2, "改"), "一\n改\n三\n");
    }

    #[test]
    fn edits_of_a_large_text_are_refused_when_looking_through_it_for_each_takes_too_long() {
        let edit = |number: usize| Replacement { old: format!("{number};"), new: String::new(), expected: 1 };
        let edits: Vec<Replacement> = (100..200).map(edit).collect();
        let text: String = (100..200).map(|number| format!("{number};")).collect();
        // Each makes the text four bytes shorter for the next.
        let needed = (1..=100).map(|left| left * 4).sum();
        let replaced = |bytes_max| replace_looking_through(bytes_max, &text, "f", &edits, u64::MAX);
        assert_eq!(replaced(needed).unwrap(), "");
        assert!(matches!(replaced(needed - 1), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn an_inverted_range_by_one_inserts_and_duplicates_nothing() {
        assert_eq!(edit("1\n2\n3\n", 3, 2, "x"), "1\n2\nx\n3\n");
        assert_eq!(edit("1\n2\n3\n", 4, 3, "x"), "1\n2\n3\nx\n");
        assert_eq!(edit("1\n2\n3\n", 4, None, "x"), "1\n2\n3\nx\n");
        assert_eq!(edit("", 1, 0, "x"), "x\n");
        assert_eq!(edit("", None, None, "x"), "x\n");
    }

    #[test]
    fn an_empty_body_deletes_and_a_newline_is_one_blank_line() {
        assert_eq!(edit("1\n2\n3\n", 2, 2, ""), "1\n3\n");
        assert_eq!(edit("1\n2\n3\n", 2, 2, "\n"), "1\n\n3\n");
        assert_eq!(edit("1\n2\n3\n", 2, 2, "a\n\n"), "1\na\n\n3\n");
        assert_eq!(edit("1\n2\n3\n", 2, 2, "\na"), "1\n\na\n3\n");
        assert_eq!(edit("1\n", 1, 1, ""), "");
    }

    #[test]
    fn line_ends_and_the_final_newline_survive() {
        assert_eq!(edit("1\r\n2\r\n3\r\n", 2, 2, "x\ny\n"), "1\r\nx\r\ny\r\n3\r\n");
        assert_eq!(edit("1\n2", 2, 2, "x"), "1\nx");
        assert_eq!(edit("1\n2", 3, 2, "x"), "1\n2\nx");
        assert_eq!(edit("1\n2", 1, 1, "x\n"), "x\n2");
        assert_eq!(edit("1\n2", 2, 2, ""), "1");
        assert_eq!(edit("1\r2\r", 2, 2, "x"), "1\rx\r");
        assert_eq!(edit("1\n2\r\n3\n", 2, 2, "x"), "1\nx\r\n3\n");
    }

    #[test]
    fn impossible_ranges_are_named_errors() {
        for (start, end) in [(Some(0), None), (Some(5), None), (Some(3), Some(1)), (Some(4), Some(2))] {
            let edited = edit_lines("1\n2\n3\n", "f", start, end, "x");
            assert!(matches!(edited, Err(Error::LineRange { total: 3, .. })), "{start:?} {end:?}");
        }
    }

    #[test]
    fn lines_are_read_whatever_their_ends() {
        let read = |text: &str, start, end| read_lines(text.as_bytes(), "f", start, end, 1000).unwrap();
        let lines = |lines: &[&str], total| Lines {
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            total,
            is_utf8: true,
        };
        assert_eq!(read("1\n2\r\n3\r4", 2, 3), lines(&["2", "3"], 4));
        assert_eq!(read("1\n2\n", 5, 9), lines(&[], 2));
        assert_eq!(read("1\n2\n", 2, 1), lines(&[], 2));
        assert_eq!(read("", 1, 9), lines(&[], 0));
        assert_eq!(read("\n\n", 1, 9), lines(&["", ""], 2));
        for (bytes, is_utf8) in
            [(&b"a\n\xff\n"[..], false), (b"a\n\xe4\xb8", false), ("a\n中".as_bytes(), true)]
        {
            assert_eq!(
                read_lines(OneByteAtATime(bytes), "f", 1, 1, 1000).unwrap().is_utf8,
                is_utf8,
                "{bytes:?}"
            );
        }
        assert!(matches!(read_lines(&b"a\n\xff\n"[..], "f", 2, 2, 10), Err(Error::NotText(_))));
        assert!(matches!(read_lines(&b"aaaaaaaaaaaa\n"[..], "f", 1, 2, 10), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn a_count_that_differs_changes_nothing_and_names_the_nearest_line() {
        let replacement =
            |old: &str, new: &str, expected| Replacement { old: old.into(), new: new.into(), expected };
        assert_eq!(replace("a b a", "f", &[replacement("a", "c", 2)], 100).unwrap(), "c b c");
        assert_eq!(replace("a\r\nb\r\n", "f", &[replacement("a\nb", "x\ny", 1)], 100).unwrap(), "x\r\ny\r\n");
        match replace("def one():\n  pass\ndef two():\n", "f", &[replacement("def twin():", "", 1)], 100) {
            Err(Error::EditMismatch { found: 0, nearest: Some(3), .. }) => {}
            other => panic!("{other:?}"),
        }
        let mebibyte = "x".repeat(1 << 20);
        let blown_up = [replacement("a", &mebibyte, 100_000)];
        assert!(matches!(
            replace(&"a".repeat(100_000), "f", &blown_up, 1 << 25),
            Err(Error::TooLarge { .. })
        ));
        match replace("aXa", "f", &[replacement("X", "a", 1), replacement("a", "b", 1)], 100) {
            Err(Error::EditMismatch { found: 3, index: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    struct OneByteAtATime<'a>(&'a [u8]);
    impl Read for OneByteAtATime<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    proptest! {
        #[test]
        fn reading_in_pieces_and_splitting_agree(text in "[ab\r\n中]{0,40}", start in 1_u64..8, count in 0_u64..8) {
            let all: Vec<String> = split(&text).map(|line| content(line).to_owned()).collect();
            let read = read_lines(OneByteAtATime(text.as_bytes()), "f", start, start + count, 1000).unwrap();
            let expected: Vec<String> =
                all.iter().skip(start as usize - 1).take(count as usize + 1).cloned().collect();
            prop_assert_eq!(read, Lines { lines: expected, total: all.len() as u64, is_utf8: true });
            prop_assert_eq!(count_lines(&text), all.len() as u64);
        }

        #[test]
        fn replacing_lines_by_themselves_changes_nothing(text in "[ab\n中]{0,40}", start in 1_u64..8, count in 0_u64..8) {
            let all: Vec<&str> = split(&text).collect();
            if start as usize <= all.len() {
                let body: String = all.iter().skip(start as usize - 1).take(count as usize).copied().collect();
                let end = (start + count).saturating_sub(1).min(all.len() as u64);
                prop_assert_eq!(edit_lines(&text, "f", Some(start), Some(end), &body).unwrap(), text);
            }
        }
    }
}

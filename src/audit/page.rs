//! Reading a part of the log while it is written: records behind one number, as many as a bound allows.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use storage::{Dir, Error, Result};

use super::files::{self, LINE_BYTES_MAX, Segment};
use super::record::{self, Entry};

/// Bytes of the log that are looked through for one page.
const SCANNED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Bytes of lines in one page; the first line may be longer.
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a file that are read through rather than halved again.
const STRETCH_BYTES: u64 = 4 * LINE_BYTES_MAX as u64;

/// A part of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The lines of records, without their ends, oldest first. Each is a record that is whole.
    pub lines: Vec<String>,
    /// The number of the last record that was looked at: the next page begins behind it.
    pub last: u64,
    /// Whether the log went on behind it.
    pub more: bool,
}

/// The records behind number `after` that `keep` tells to keep, `most` at most.
///
/// # Errors
/// Those of reading files.
pub fn read(dir: &Dir, after: u64, most: usize, keep: &dyn Fn(&Entry) -> bool) -> Result<Page> {
    let mut reading =
        Reading { page: Page { last: after, ..Page::default() }, most, bytes: 0, scanned: 0, keep };
    let segments = files::list(dir)?;
    // Each file begins where the one before ends.
    let first = segments.iter().rposition(|segment| segment.first <= after.saturating_add(1)).unwrap_or(0);
    for segment in segments.get(first..).unwrap_or_default() {
        let failed = |source| Error::Io {
            operation: "read",
            path: segment.name.to_string_lossy().into_owned(),
            source,
        };
        let file = match dir.open_file_entry(&segment.name) {
            Ok((file, _)) => file,
            // Gone meanwhile, because the log was too large.
            Err(Error::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        if !reading.segment(segment, file).map_err(failed)? {
            reading.page.more = true;
            break;
        }
    }
    Ok(reading.page)
}

struct Reading<'a> {
    page: Page,
    most: usize,
    bytes: usize,
    scanned: u64,
    keep: &'a dyn Fn(&Entry) -> bool,
}

impl Reading<'_> {
    /// Reads one file; `false` when the page is full before its end.
    fn segment(&mut self, segment: &Segment, mut file: File) -> std::io::Result<bool> {
        let from = if segment.first > self.page.last { 0 } else { start(&mut file, self.page.last)? };
        file.seek(SeekFrom::Start(from))?;
        let mut lines = BufReader::new(file);
        while let Some(line) = next(&mut lines)? {
            let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
            let Some(record) = record::parse(&line).filter(|record| record.seq > self.page.last) else {
                self.scanned = self.scanned.saturating_add(length);
                continue;
            };
            let is_full = self.page.lines.len() >= self.most
                || self.scanned >= SCANNED_BYTES_MAX
                || (!self.page.lines.is_empty() && self.bytes + line.len() > PAGE_BYTES_MAX);
            if is_full {
                return Ok(false);
            }
            self.scanned = self.scanned.saturating_add(length);
            self.page.last = record.seq;
            if (self.keep)(&record.entry) {
                self.bytes += line.len();
                // A record that was parsed is UTF-8.
                self.page.lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        Ok(true)
    }
}

/// The next line with an end, without it; empty for one that is longer than any record. `None` at the end, or before a line
/// that is being written.
fn next(lines: &mut BufReader<File>) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    lines.by_ref().take(most).read_until(b'\n', &mut line)?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some(line));
    }
    if line.len() < LINE_BYTES_MAX {
        return Ok(None);
    }
    lines.skip_until(b'\n')?;
    Ok(Some(Vec::new()))
}

/// A place in a file, the beginning of a line, before which no record has a number beyond `after`; near the first that has.
fn start(file: &mut File, after: u64) -> std::io::Result<u64> {
    let (mut from, mut to) = (0, file.metadata()?.len());
    while to.saturating_sub(from) > STRETCH_BYTES {
        let middle = from + (to - from) / 2;
        match record_behind(file, middle)? {
            Some((begin, seq)) if seq <= after && begin > from => from = begin,
            _ => to = middle,
        }
    }
    Ok(from)
}

/// Where the first whole record begins whose line begins behind `place`, not far from it, and its number.
fn record_behind(file: &mut File, place: u64) -> std::io::Result<Option<(u64, u64)>> {
    file.seek(SeekFrom::Start(place))?;
    let mut bytes = Vec::new();
    file.take(2 * LINE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let mut begin = place;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if begin > place
            && let Some(record) = line.strip_suffix(b"\n").and_then(record::parse)
        {
            return Ok(Some((begin, record.seq)));
        }
        begin = begin.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::audit::record::{Head, line};

    /// A log of two files, with garbage in it and an end that is being written.
    fn log(records: u64) -> (tempfile::TempDir, Dir) {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(place.path()).unwrap();
        let mut head = Head::default();
        let mut file = dir.create_file(&files::name(1), 0o600).unwrap();
        for seq in 1..=records {
            if seq == records / 2 {
                writeln!(file, "no record").unwrap();
                file = dir.create_file(&files::name(seq), 0o600).unwrap();
            }
            let user = Some(format!("u{}", seq % 3));
            let entry = Entry { user, action: "x".repeat(seq as usize % 700), ..Entry::default() };
            let (text, next) = line(&head, entry);
            file.write_all(text.as_bytes()).unwrap();
            head = next;
        }
        write!(file, "{{\"seq\":").unwrap();
        (place, dir)
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.lines.iter().map(|line| record::parse(line.as_bytes()).unwrap().seq).collect()
    }

    #[test]
    fn pages_give_every_record_once_and_in_order_from_any_number_on() {
        let (_place, dir) = log(5000);
        for begin in [0, 1, 7, 2498, 2499, 2500, 2501, 4999] {
            let (mut after, mut seen) = (begin, Vec::new());
            loop {
                let page = read(&dir, after, 300, &|_| true).unwrap();
                seen.extend(numbers(&page));
                assert!(page.last > after || !page.more, "a page goes on");
                after = page.last;
                if !page.more {
                    break;
                }
            }
            assert_eq!(seen, (begin + 1..=5000).collect::<Vec<_>>());
        }
        let end = read(&dir, 5000, 300, &|_| true).unwrap();
        assert_eq!(end, Page { lines: Vec::new(), last: 5000, more: false });
        let beyond = read(&dir, 9_000_000, 300, &|_| true).unwrap();
        assert_eq!(beyond, Page { lines: Vec::new(), last: 9_000_000, more: false });
    }

    #[test]
    fn what_is_not_kept_is_looked_at_within_the_bound() {
        let (_place, dir) = log(3000);
        let keep = |entry: &Entry| entry.user.as_deref() == Some("u1");
        let page = read(&dir, 0, 100, &keep).unwrap();
        assert_eq!(numbers(&page), (0..100).map(|number| 3 * number + 1).collect::<Vec<_>>());
        assert!(page.more);
        let none = read(&dir, 0, 100, &|_| false).unwrap();
        assert_eq!((none.lines.len(), none.last, none.more), (0, 3000, false));
    }
}

//! Reading the whole log: whether every record is there and is what it was, and whether every file is.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use sha2::{Digest, Sha256};
use storage::{Dir, Result};

use super::files::{self, DAMAGED, LINE_BYTES_MAX, Segment};
use super::key::Key;
use super::record::{self, FIRST, Head, Record, Torn};
use super::seals::{self, Found, Removed, Seals};

/// The findings of reading the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that are whole and in their place.
    pub records: u64,
    /// Files.
    pub files: usize,
    /// The number of the first record; more than 1 when older files are gone.
    pub first: u64,
    /// The findings of the seals; `None` without a key to read them with, or before there were any.
    pub sealing: Option<Sealing>,
    /// The last record.
    pub head: Head,
    /// Ends of files that a crash tore and a later start told of.
    pub sealed: Vec<Torn>,
    /// A line without an end behind the last record: being written at this moment, or torn by a crash.
    pub open_end_bytes: u64,
    /// The contradictions, in words; without any, the log is whole.
    pub broken: Vec<String>,
    /// Whether the record that was asked for is in the chain; `None` when none was.
    pub contains: Option<bool>,
}

/// The findings of the seals of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealing {
    /// The first record that was written under seals.
    pub since: u64,
    /// Files that are sealed.
    pub files: usize,
    /// The files that the service removed.
    pub removed: Removed,
}

/// Reads every file, hands each good record to `see`, and checks the chain, and with `key` the seals. With `known`,
/// tells whether that record is in it: an operator who keeps a head elsewhere finds out whether the end of the log was
/// cut off and written anew.
///
/// # Errors
/// Those of reading files.
pub fn read(
    dir: &Dir,
    key: Option<&Key>,
    known: Option<&Head>,
    see: &mut dyn FnMut(&Record),
) -> Result<Report> {
    let ends = HashMap::new();
    let mut reading = Reading { report: Report::default(), unexplained: None, last: None, ends, known, see };
    let before = key.map(|key| Seals::read(dir, key)).transpose()?;
    reading.report.contains = known.map(|_| false);
    for entry in dir.entries()?.iter().filter(|entry| entry.name.to_string_lossy().ends_with(DAMAGED)) {
        let name = entry.name.to_string_lossy();
        let problem = if name.starts_with(seals::NAME) {
            "was found at a start and is not the service's own"
        } else {
            "was found without a single record at a start"
        };
        reading.report.broken.push(format!("`{name}` {problem}"));
    }
    let segments = files::list(dir)?;
    reading.report.files = segments.len();
    for segment in &segments {
        let (file, _) = dir.open_file_entry(&segment.name)?;
        let rest = reading.segment(segment, BufReader::new(file)).map_err(|source| storage::Error::Io {
            operation: "read",
            path: segment.name.to_string_lossy().into_owned(),
            source,
        })?;
        reading.unexplained = rest;
        reading.ends.extend(reading.last.clone().map(|last| (segment.first, last)));
    }
    if let Some(torn) = reading.unexplained.take() {
        if torn.is_damage {
            reading.report.broken.push(format!("{} bytes behind the last record are no records", torn.bytes));
        } else {
            reading.report.open_end_bytes = torn.bytes;
        }
    }
    if let (Some(key), Some(before)) = (key, before) {
        // The service may have sealed or removed a file meanwhile.
        let after = Seals::read(dir, key)?;
        reading.check_seals(&segments, &before, &after);
    }
    reading.report.head = reading.last.unwrap_or_default();
    Ok(reading.report)
}

struct Reading<'a> {
    report: Report,
    /// The end of the file before, which the next start has to tell of.
    unexplained: Option<Torn>,
    last: Option<Head>,
    /// The last record of each file, by the number of its first.
    ends: HashMap<u64, Head>,
    known: Option<&'a Head>,
    see: &'a mut dyn FnMut(&Record),
}

impl Reading<'_> {
    /// Reads one file up to the first line that is no record. Returns what lies behind it.
    fn segment(&mut self, segment: &Segment, mut from: impl BufRead) -> std::io::Result<Option<Torn>> {
        let mut is_first = true;
        loop {
            let mut line = Vec::new();
            let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            from.by_ref().take(most).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            let record = line.strip_suffix(b"\n").and_then(record::parse);
            let Some(record) = record else { return rest(&line, from).map(Some) };
            if is_first {
                self.begin(segment, &record);
            }
            is_first = false;
            self.take(record, segment);
        }
    }

    /// Compares the files with the seals of before and after they were read.
    fn check_seals(&mut self, segments: &[Segment], before: &Found, after: &Found) {
        let broken = &mut self.report.broken;
        let (before, after) = match (before, after) {
            (Found::Genuine(before), Found::Genuine(after)) => (before, after),
            (Found::None, Found::None) if segments.is_empty() => return,
            (Found::Forged, _) | (_, Found::Forged) => {
                broken.push("the seals of the files are not the service's own".to_owned());
                return;
            }
            _ => {
                broken.push("the seals of the files are missing".to_owned());
                return;
            }
        };
        for sealed in before.files.iter().filter(|sealed| sealed.last.seq > after.removed.last.seq) {
            let (first, last) = (sealed.first, sealed.last.seq);
            match self.ends.get(&first) {
                Some(end) if *end == sealed.last => {}
                Some(_) => broken.push(format!("the file of the records {first} to {last} ends otherwise")),
                None => broken.push(format!("the file of the records {first} to {last} is missing")),
            }
        }
        let newest = segments.last().map(|segment| segment.first);
        for segment in segments.iter().filter(|segment| Some(segment.first) != newest) {
            if segment.first > after.removed.last.seq && !after.has(segment.first) {
                broken.push(format!("`{}` has no seal", segment.name.to_string_lossy()));
            }
        }
        let begins_after = |seals: &Seals| self.report.first == seals.removed.last.seq + 1;
        let is_known = self.report.first > 1 && self.report.first >= before.since;
        if is_known && !begins_after(before) && !begins_after(after) {
            let (missing, removed) = (self.report.first - 1, after.removed.last.seq);
            broken.push(format!(
                "the records 1 to {missing} are missing, and the service removed those up to {removed}"
            ));
        }
        let Seals { since, removed, files } = after.clone();
        self.report.sealing = Some(Sealing { since, files: files.len(), removed });
    }

    /// Looks at the first record of a file, which tells how the file before ended.
    fn begin(&mut self, segment: &Segment, record: &Record) {
        let name = segment.name.to_string_lossy();
        if let Some(problem) = &record.entry.broken {
            self.report.broken.push(format!("the start with record {} found: {problem}", record.seq));
        }
        if record.seq != segment.first {
            self.report.broken.push(format!("`{name}` begins with record {}", record.seq));
        }
        match (self.unexplained.take(), &record.entry.torn) {
            (None, None) => {}
            (Some(found), Some(told)) if found == *told && !found.is_damage => self.report.sealed.push(found),
            (Some(found), _) => {
                let bytes = found.bytes;
                self.report
                    .broken
                    .push(format!("{bytes} bytes at the end of the file before `{name}` are no records"));
            }
            (None, Some(told)) if self.last.is_some() => {
                let bytes = told.bytes;
                self.report
                    .broken
                    .push(format!("`{name}` tells of {bytes} torn bytes that are not there any more"));
            }
            // The file that was torn is gone with the older ones.
            (None, Some(_)) => {}
        }
    }

    fn take(&mut self, record: Record, segment: &Segment) {
        let (seq, name) = (record.seq, segment.name.to_string_lossy());
        match &self.last {
            None => {
                self.report.first = seq;
                if (seq == 1) != (record.prev == FIRST) {
                    self.report
                        .broken
                        .push(format!("record {seq} in `{name}` does not say what came before it"));
                }
            }
            Some(last) if seq == last.seq + 1 && record.prev == last.hash => {}
            Some(last) => {
                let before = last.seq;
                self.report.broken.push(format!("record {seq} in `{name}` does not follow record {before}"));
            }
        }
        (self.see)(&record);
        self.report.records += 1;
        let head = Head { seq, hash: record.hash };
        if self.known == Some(&head) {
            self.report.contains = Some(true);
        }
        self.last = Some(head);
    }
}

/// Describes a file from a line that is no record to its end.
fn rest(line: &[u8], mut from: impl Read) -> std::io::Result<Torn> {
    let mut digest = Sha256::new_with_prefix(line);
    let mut bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let mut is_damage = line.contains(&b'\n');
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut piece)?;
        let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else { break };
        digest.update(piece);
        is_damage |= piece.contains(&b'\n');
        bytes = bytes.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
    Ok(Torn { bytes, sha256: hex::encode(digest.finalize()), is_damage })
}

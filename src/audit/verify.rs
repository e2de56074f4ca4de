//! Reading the whole log: whether every record is there and is what it was.

use std::io::{BufRead, BufReader, Read};

use sha2::{Digest, Sha256};
use storage::{Dir, Result};

use super::files::{self, DAMAGED, LINE_BYTES_MAX, Segment};
use super::record::{self, FIRST, Head, Record, Torn, hex};

/// What reading the log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that are whole and in their place.
    pub records: u64,
    /// Files.
    pub files: usize,
    /// The number of the first record; more than 1 when older files are gone.
    pub first: u64,
    /// The last record.
    pub head: Head,
    /// Ends of files that a crash tore and a later start told of.
    pub sealed: Vec<Torn>,
    /// A line without an end behind the last record: being written at this moment, or torn by a crash.
    pub open_end_bytes: u64,
    /// What cannot be explained, in words; without any, the log is whole.
    pub broken: Vec<String>,
    /// Whether the record that was asked for is in the chain; `None` when none was.
    pub contains: Option<bool>,
}

/// Reads every file, hands each good record to `see`, and checks the chain. With `known`, tells whether that record
/// is in it: who keeps a head elsewhere finds out whether the end of the log was cut off and written anew.
///
/// # Errors
/// Those of reading files.
pub fn read(dir: &Dir, known: Option<&Head>, see: &mut dyn FnMut(&Record)) -> Result<Report> {
    let mut reading = Reading { report: Report::default(), unexplained: None, last: None, known, see };
    reading.report.contains = known.map(|_| false);
    for entry in dir.entries()?.iter().filter(|entry| entry.name.to_string_lossy().ends_with(DAMAGED)) {
        let name = entry.name.to_string_lossy();
        reading.report.broken.push(format!("`{name}` was found without a single record at a start"));
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
    }
    if let Some(torn) = reading.unexplained.take() {
        if torn.is_damage {
            reading.report.broken.push(format!("{} bytes behind the last record are no records", torn.bytes));
        } else {
            reading.report.open_end_bytes = torn.bytes;
        }
    }
    reading.report.head = reading.last.unwrap_or_default();
    Ok(reading.report)
}

struct Reading<'a> {
    report: Report,
    /// The end of the file before, which the next start has to tell of.
    unexplained: Option<Torn>,
    last: Option<Head>,
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

    /// Looks at the first record of a file, which tells how the file before ended.
    fn begin(&mut self, segment: &Segment, record: &Record) {
        let name = segment.name.to_string_lossy();
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
    Ok(Torn { bytes, sha256: hex(&digest.finalize()), is_damage })
}

//! The files of the audit log: their names, their order, and where the last record is.
//!
//! A file is called by the number of its first record, `0000000000000001.jsonl`, and is written by the process that
//! made it alone. What a crash tore is behind the last line of a file for ever; the record of the next start tells it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use sha2::{Digest, Sha256};
use storage::{Dir, Error, Kind, Result};

use super::record::{self, Head, Record, Torn};
use super::seals::Sealed;

/// Behind a name.
const SUFFIX: &str = ".jsonl";
/// Behind the name of a file that was set aside.
pub const DAMAGED: &str = ".damaged";
/// Digits of a name.
const DIGITS: usize = 16;
/// Longest line that is read, in bytes. Lines are written shorter: texts are bounded ([`super::text`]).
pub const LINE_BYTES_MAX: usize = 96 * 1024;
/// How far behind the end the last whole line is looked for, in bytes: a torn batch is no longer than this.
const TAIL_BYTES: u64 = 1024 * 1024;

/// One file of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// The number of its first record.
    pub first: u64,
    /// Its name.
    pub name: OsString,
}

/// The name of a file whose first record has this number.
#[must_use]
pub fn name(first: u64) -> OsString {
    format!("{first:0DIGITS$}{SUFFIX}").into()
}

/// All files, oldest first.
///
/// # Errors
/// Those of reading a directory.
pub fn list(dir: &Dir) -> Result<Vec<Segment>> {
    let entries = dir.entries()?.into_iter().filter(|entry| entry.kind == Kind::File);
    let mut segments: Vec<Segment> = entries
        .filter_map(|entry| Some(Segment { first: first_of(&entry.name)?, name: entry.name }))
        .collect();
    segments.sort();
    Ok(segments)
}

fn first_of(name: &OsStr) -> Option<u64> {
    let digits = name.to_str()?.strip_suffix(SUFFIX)?;
    (digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// Where the log ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The last record.
    pub head: Head,
    /// The bytes behind it in its file.
    pub torn: Option<Torn>,
    /// Newer files that have no record, and whether that is damage: a crash leaves one that is empty, or has the
    /// beginning of a line.
    pub hollow: Vec<(OsString, bool)>,
}

/// Finds the end of the log.
///
/// # Errors
/// Those of reading files.
pub fn end(dir: &Dir) -> Result<End> {
    let mut end = End::default();
    for segment in list(dir)?.iter().rev() {
        let (file, stat) = dir.open_file_entry(&segment.name)?;
        let (last, torn) = tail(file, stat.size, &segment.name)?;
        if let Some(last) = last {
            (end.head, end.torn) = (Head { seq: last.seq, hash: last.hash }, torn);
            break;
        }
        let is_damage = torn.is_some_and(|torn| torn.is_damage);
        end.hollow.push((segment.name.clone(), is_damage));
    }
    Ok(end)
}

/// Makes way for new files: removes those without a record, and sets damaged ones aside under another name.
///
/// # Errors
/// Those of removing and renaming.
pub fn clear(dir: &Dir, end: &End) -> Result<()> {
    for (name, is_damage) in &end.hollow {
        if *is_damage {
            let mut aside = name.clone();
            aside.push(DAMAGED);
            dir.rename(name, dir, &aside)?;
        } else {
            dir.remove_file(name)?;
        }
    }
    Ok(())
}

/// The seal of a file as it lies there; `None` when it has no record.
///
/// # Errors
/// Those of reading files.
pub(super) fn seal(dir: &Dir, segment: &Segment) -> Result<Option<Sealed>> {
    let (file, stat) = dir.open_file_entry(&segment.name)?;
    let (last, _) = tail(file, stat.size, &segment.name)?;
    Ok(last.map(|last| Sealed {
        first: segment.first,
        last: Head { seq: last.seq, hash: last.hash },
        bytes: stat.size,
        ended: last.entry.time,
    }))
}

/// The last record of a file, and what lies behind it.
fn tail(mut file: File, size: u64, name: &OsStr) -> Result<(Option<Record>, Option<Torn>)> {
    let failed = |source| Error::Io { operation: "read", path: name.to_string_lossy().into_owned(), source };
    let from = size.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let mut end = bytes.len();
    let (last, whole) = loop {
        let Some(line_end) = bytes.get(..end).and_then(|bytes| bytes.iter().rposition(|byte| *byte == b'\n'))
        else {
            break (None, 0);
        };
        let line = bytes.get(..line_end).unwrap_or_default();
        let start = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        if let Some(record) = record::parse(line.get(start..).unwrap_or_default()) {
            break (Some(record), line_end + 1);
        }
        end = line_end;
    };
    let rest = bytes.get(whole..).unwrap_or_default();
    let torn = (!rest.is_empty()).then(|| torn(rest, from > 0 && last.is_none()));
    Ok((last, torn))
}

/// Describes what lies behind the last whole line.
#[must_use]
pub fn torn(rest: &[u8], is_damage: bool) -> Torn {
    Torn {
        bytes: u64::try_from(rest.len()).unwrap_or(u64::MAX),
        sha256: hex::encode(Sha256::digest(rest)),
        // A crash tears the end of what was being written: one line without an end.
        is_damage: is_damage || rest.contains(&b'\n'),
    }
}

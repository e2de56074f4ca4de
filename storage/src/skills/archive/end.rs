//! Finds the end record, the one place from which everything else in a ZIP is found.
//!
//! A reader that searches from the back, one that searches from the front and one that trusts the zip64 locator
//! must all come to the same table of contents, or the archive shows different files to different programs. So
//! there must be exactly one candidate, nothing but zeros may follow it, and the table must end where the records begin.

use super::source::Source;
use super::wire::{
    END, END_64, END_64_BYTES, END_BYTES, Fields, LOCAL, LOCATOR_64, LOCATOR_64_BYTES, SATURATED_16,
    SATURATED_32,
};
use crate::error::ArchiveError;
use crate::error::Result;

/// Where the table of contents is and how many entries it says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    /// Offset of the first central header; also the end of the entries' data.
    pub(super) start: u64,
    /// Bytes of all central headers.
    pub(super) bytes: u64,
    /// Entries declared.
    pub(super) entries: u64,
}

/// The numbers of an end record, of either width.
#[derive(Clone, Copy, Debug)]
struct EndRecord {
    disk: u32,
    directory_disk: u32,
    entries_here: u64,
    entries: u64,
    bytes: u64,
    start: u64,
}

/// Finds the end record and the table of contents it points to.
///
/// # Errors
/// [`ArchiveError`]: `NotZip`, `Truncated`, `SeveralEndRecords`, `TrailingBytes`, `MultiVolume`, `Zip64`,
/// `CountMismatch`, `MisplacedDirectory`.
pub(super) fn find(source: &mut Source<'_>) -> Result<Directory> {
    let record_at = locate(source)?;
    let Some(short) = source.bytes(record_at, END_BYTES)?.and_then(parse_short) else {
        return Err(ArchiveError::Truncated.into());
    };
    let (record, records_start) = match long(source, record_at)? {
        Some((long, long_at)) => {
            agree(&short, &long)?;
            (long, long_at)
        }
        None if is_saturated(&short) => return Err(zip64("the end record").into()),
        None => (short, record_at),
    };
    if record.disk != 0 || record.directory_disk != 0 {
        return Err(ArchiveError::MultiVolume.into());
    }
    if record.entries_here != record.entries {
        let (declared, found) = (record.entries, record.entries_here);
        return Err(ArchiveError::CountMismatch { declared, found }.into());
    }
    if record.start.checked_add(record.bytes) != Some(records_start) {
        return Err(ArchiveError::MisplacedDirectory.into());
    }
    Ok(Directory { start: record.start, bytes: record.bytes, entries: record.entries })
}

/// The offset of the one end record.
fn locate(source: &mut Source<'_>) -> Result<u64> {
    let length = source.length();
    // The comment has a 16-bit length, so the record begins within this distance of the end.
    let tail_bytes = length.min((END_BYTES + usize::from(u16::MAX)) as u64);
    let tail_start = length - tail_bytes;
    let begins_as_zip = source.bytes(0, 4)?.and_then(|bytes| Fields(bytes).u32()) == Some(LOCAL);
    let tail = usize::try_from(tail_bytes).unwrap_or(0);
    let tail = source.bytes(tail_start, tail)?.unwrap_or_default();

    // Zeros after the record are the padding of a program that writes tape blocks (bsdtar into a pipe).
    let zeros_start = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let signature = END.to_le_bytes();
    let mut ending = Vec::new();
    let mut last = None;
    for (offset, bytes) in tail.windows(END_BYTES).enumerate() {
        if !bytes.starts_with(&signature) {
            continue;
        }
        let mut comment = Fields(bytes);
        let comment_bytes = comment.take(END_BYTES - 2).and_then(|_| comment.u16()).unwrap_or(0);
        let end = offset + END_BYTES + usize::from(comment_bytes);
        if (zeros_start..=tail.len()).contains(&end) {
            ending.push(offset);
        }
        last = Some((offset, end));
    }
    match (ending.as_slice(), last) {
        // A signature inside the comment is what a reader that searches from the back would take.
        ([record], Some((last, _))) if *record == last => Ok(tail_start + *record as u64),
        ([_, ..], _) => Err(ArchiveError::SeveralEndRecords.into()),
        ([], Some((_, end))) if end < tail.len() && begins_as_zip => {
            Err(ArchiveError::TrailingBytes { bytes: (tail.len() - end) as u64 }.into())
        }
        ([], _) if begins_as_zip || last.is_some() => Err(ArchiveError::Truncated.into()),
        ([], _) => Err(ArchiveError::NotZip.into()),
    }
}

fn parse_short(bytes: &[u8]) -> Option<EndRecord> {
    let mut fields = Fields(bytes);
    fields.u32().filter(|signature| *signature == END)?;
    Some(EndRecord {
        disk: fields.u16()?.into(),
        directory_disk: fields.u16()?.into(),
        entries_here: fields.u16()?.into(),
        entries: fields.u16()?.into(),
        bytes: fields.u32()?.into(),
        start: fields.u32()?.into(),
    })
}

/// The zip64 end record and its offset, when a locator stands before the end record at `record_at`.
fn long(source: &mut Source<'_>, record_at: u64) -> Result<Option<(EndRecord, u64)>> {
    let Some(locator_at) = record_at.checked_sub(LOCATOR_64_BYTES as u64) else { return Ok(None) };
    let Some(locator) = source.bytes(locator_at, LOCATOR_64_BYTES)? else { return Ok(None) };
    let mut fields = Fields(locator);
    if fields.u32() != Some(LOCATOR_64) {
        return Ok(None);
    }
    let (Some(disk), Some(long_at), Some(disks)) = (fields.u32(), fields.u64(), fields.u32()) else {
        return Ok(None);
    };
    if disk != 0 || disks > 1 {
        return Err(ArchiveError::MultiVolume.into());
    }
    let record =
        source.bytes(long_at, END_64_BYTES)?.and_then(|bytes| parse_long(bytes, long_at, locator_at));
    record.map(|record| Some((record, long_at))).ok_or_else(|| zip64("the end record").into())
}

/// Reads a zip64 end record, which must reach exactly to its locator.
fn parse_long(bytes: &[u8], long_at: u64, locator_at: u64) -> Option<EndRecord> {
    let mut fields = Fields(bytes);
    fields.u32().filter(|signature| *signature == END_64)?;
    // The size counts what follows the size field itself (4.3.14.1).
    let size = fields.u64().filter(|size| *size >= END_64_BYTES as u64 - 12)?;
    let end = long_at.checked_add(12)?.checked_add(size)?;
    if end != locator_at {
        return None;
    }
    fields.take(4)?;
    Some(EndRecord {
        disk: fields.u32()?,
        directory_disk: fields.u32()?,
        entries_here: fields.u64()?,
        entries: fields.u64()?,
        bytes: fields.u64()?,
        start: fields.u64()?,
    })
}

fn is_saturated(record: &EndRecord) -> bool {
    let short = u64::from(SATURATED_16);
    let long = u64::from(SATURATED_32);
    record.start == long || record.bytes == long || record.entries == short || record.entries_here == short
}

/// Every field of the end record that is not saturated must repeat the zip64 record's.
fn agree(short: &EndRecord, long: &EndRecord) -> Result<(), ArchiveError> {
    let fits = |short: u64, long: u64, saturated: u64| short == saturated || short == long;
    let (narrow, wide) = (u64::from(SATURATED_16), u64::from(SATURATED_32));
    let agrees = fits(short.disk.into(), long.disk.into(), narrow)
        && fits(short.directory_disk.into(), long.directory_disk.into(), narrow)
        && fits(short.entries_here, long.entries_here, narrow)
        && fits(short.entries, long.entries, narrow)
        && fits(short.bytes, long.bytes, wide)
        && fits(short.start, long.start, wide);
    if agrees { Ok(()) } else { Err(zip64("the end record")) }
}

fn zip64(place: &str) -> ArchiveError {
    ArchiveError::Zip64 { place: place.to_owned() }
}

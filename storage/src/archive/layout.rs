//! Checks that local headers and data fill the file exactly as the table of contents says.
//!
//! Sorted by offset, the entries must stand one directly after another from the first byte to the table of
//! contents: what overlaps is a bomb, what lies between is seen by programs that read from the front and by no
//! other. Self-extracting programs are refused for the same reason.

use super::end::Directory;
use super::entry::{RawEntry, flag};
use super::error::ArchiveError;
use super::source::Source;
use super::wire::{DESCRIPTOR, Extra, Fields, LOCAL, LOCAL_BYTES, SATURATED_32};
use crate::error::Result;

/// Flags that change what a program reads and so must be the same in both headers.
const MEANINGFUL_FLAGS: u16 = flag::ENCRYPTED | flag::PATCH | flag::UTF_8;

/// Bytes of the data descriptors that exist: with or without signature, with short or long sizes.
const DESCRIPTOR_BYTES: [usize; 4] = [12, 16, 20, 24];

/// Compares each local header with its entry and returns where each entry's data begins, in the order of
/// `entries`.
///
/// # Errors
/// [`ArchiveError`]: `PastEnd`, `Overlap`, `LeadingBytes`, `Unlisted`, `HeadersDisagree`, `Zip64`, `BadExtra`.
pub(super) fn check(source: &mut Source<'_>, directory: Directory, entries: &[RawEntry]) -> Result<Vec<u64>> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|index| entries.get(*index).map(|entry| entry.header_at));
    let in_order: Vec<(usize, &RawEntry)> =
        order.into_iter().filter_map(|index| Some((index, entries.get(index)?))).collect();

    let mut data_starts = vec![0; entries.len()];
    let mut previous: Option<&RawEntry> = None;
    let mut expected = 0;
    for (position, &(index, entry)) in in_order.iter().enumerate() {
        let room_end = match in_order.get(position + 1) {
            Some((_, next)) => next.header_at.min(directory.start),
            None => directory.start,
        };
        if entry.header_at < expected {
            return Err(ArchiveError::Overlap { name: entry.shown() }.into());
        }
        if entry.header_at > expected && entry.header_at < directory.start {
            let bytes = entry.header_at - expected;
            return Err(unlisted(previous, bytes).into());
        }
        let local = Local::read(source, entry, directory)?;
        local.compare(entry)?;
        let data_end = local.data_at.checked_add(entry.packed).filter(|end| *end <= directory.start);
        let Some(data_end) = data_end else {
            return Err(ArchiveError::PastEnd { name: entry.shown() }.into());
        };
        let Some(gap) = room_end.checked_sub(data_end) else {
            let name = in_order.get(position + 1).map_or_else(|| entry.shown(), |(_, next)| next.shown());
            return Err(ArchiveError::Overlap { name }.into());
        };
        let descriptor_bytes = local.descriptor(source, entry, data_end, gap)?;
        if let Some(start) = data_starts.get_mut(index) {
            *start = local.data_at;
        }
        expected = data_end + descriptor_bytes;
        previous = Some(entry);
    }
    if expected == directory.start {
        Ok(data_starts)
    } else {
        Err(unlisted(previous, directory.start - expected).into())
    }
}

fn unlisted(previous: Option<&RawEntry>, bytes: u64) -> ArchiveError {
    match previous {
        Some(entry) => ArchiveError::Unlisted { after: entry.shown(), bytes },
        None => ArchiveError::LeadingBytes { bytes },
    }
}

/// A local header, as far as it repeats the central one.
struct Local {
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    has_name: bool,
    has_unicode_name: bool,
    data_at: u64,
}

impl Local {
    fn read(source: &mut Source<'_>, entry: &RawEntry, directory: Directory) -> Result<Self> {
        let past_end = || ArchiveError::PastEnd { name: entry.shown() };
        let at = entry.header_at;
        let fixed = source.bytes(at, LOCAL_BYTES)?.filter(|_| at < directory.start).ok_or_else(past_end)?;
        let Some(lengths) = fixed.get(26..).map(Fields) else { return Err(past_end().into()) };
        let mut fields = lengths;
        let (name_bytes, extra_bytes) = (fields.u16().unwrap_or(0), fields.u16().unwrap_or(0));
        if Fields(fixed).u32() != Some(LOCAL) {
            return Err(disagree(entry, "place").into());
        }
        let length = LOCAL_BYTES + usize::from(name_bytes) + usize::from(extra_bytes);
        let header = source.bytes(at, length)?.ok_or_else(past_end)?;
        let data_at = at + length as u64;
        Self::parse(header, entry, name_bytes, data_at)
            .map_err(Into::into)
            .and_then(|local| local.ok_or_else(|| past_end().into()))
    }

    fn parse(
        header: &[u8],
        entry: &RawEntry,
        name_bytes: u16,
        data_at: u64,
    ) -> Result<Option<Self>, ArchiveError> {
        let zip64 = || ArchiveError::Zip64 { place: format!("`{}`", entry.shown()) };
        let mut fields = Fields(header);
        let mut fixed = || {
            fields.take(6)?;
            let (flags, method) = (fields.u16()?, fields.u16()?);
            fields.take(4)?;
            let numbers = (flags, method, fields.u32()?, fields.u32()?, fields.u32()?);
            fields.take(4)?;
            Some((numbers, fields.take(name_bytes.into())?))
        };
        let Some(((flags, method, crc, packed, size), name)) = fixed() else { return Ok(None) };
        let extra = Extra::parse(fields.0).map_err(|_| ArchiveError::BadExtra { name: entry.shown() })?;
        let mut wide = Fields(extra.zip64.unwrap_or_default());
        let mut widen = |short: u32| {
            if short == SATURATED_32 { wide.u64() } else { Some(u64::from(short)) }
        };
        let (Some(size), Some(packed)) = (widen(size), widen(packed)) else { return Err(zip64()) };
        // The name in 0x7075 begins after the version and the checksum.
        let unicode = extra.unicode_path.and_then(|data| data.get(5..));
        let expected = entry.unicode_name.as_deref().map(str::as_bytes);
        Ok(Some(Self {
            flags,
            method,
            crc,
            packed,
            size,
            has_name: name == entry.name,
            has_unicode_name: unicode.is_none() || expected.is_none() || unicode == expected,
            data_at,
        }))
    }

    /// Compares what both headers say. Where a descriptor follows the data, sizes and checksum may be zero here.
    fn compare(&self, entry: &RawEntry) -> Result<(), ArchiveError> {
        let deferred = self.flags & flag::DESCRIPTOR != 0;
        let same = |here: u64, there: u64| here == there || (deferred && here == 0);
        let fields = [
            (self.has_name && self.has_unicode_name, "name"),
            ((self.flags ^ entry.flags) & MEANINGFUL_FLAGS == 0, "flags"),
            (self.method == entry.method.number(), "method"),
            (same(self.packed, entry.packed), "packed size"),
            (same(self.size, entry.size), "size"),
            (same(self.crc.into(), entry.crc.into()), "checksum"),
        ];
        match fields.into_iter().find(|(agrees, _)| !agrees) {
            Some((_, field)) => Err(disagree(entry, field)),
            None => Ok(()),
        }
    }

    /// The length of the data descriptor in the `gap` bytes between the data and what comes next.
    ///
    /// It has four forms and none is marked, so the one that fills the gap counts; it must repeat the entry.
    /// A header that is complete by itself may announce a descriptor and lack it: some programs do so for
    /// directories.
    fn descriptor(&self, source: &mut Source<'_>, entry: &RawEntry, at: u64, gap: u64) -> Result<u64> {
        if self.flags & flag::DESCRIPTOR == 0 {
            return Ok(0);
        }
        let is_complete = self.crc == entry.crc && self.packed == entry.packed && self.size == entry.size;
        let length = usize::try_from(gap).ok().filter(|gap| DESCRIPTOR_BYTES.contains(gap));
        let Some(length) = length else {
            return if is_complete { Ok(0) } else { Err(disagree(entry, "data descriptor").into()) };
        };
        let bytes = source.bytes(at, length)?.unwrap_or_default();
        if describes(bytes, entry) { Ok(gap) } else { Err(disagree(entry, "data descriptor").into()) }
    }
}

/// Tells whether `bytes` is a data descriptor (APPNOTE.TXT 4.3.9) of `entry`.
fn describes(bytes: &[u8], entry: &RawEntry) -> bool {
    let mut fields = Fields(bytes);
    if matches!(bytes.len(), 16 | 24) && fields.u32() != Some(DESCRIPTOR) {
        return false;
    }
    let crc = fields.u32();
    let mut size = || if bytes.len() < 20 { fields.u32().map(u64::from) } else { fields.u64() };
    crc == Some(entry.crc) && size() == Some(entry.packed) && size() == Some(entry.size)
}

fn disagree(entry: &RawEntry, field: &'static str) -> ArchiveError {
    ArchiveError::HeadersDisagree { name: entry.shown(), field }
}

//! Checks that local headers and data fill the file exactly as the table of contents says.
//!
//! Sorted by offset, the entries must stand one directly after another from the first byte to the table of
//! contents: what overlaps is a bomb, what lies between is seen by programs that read from the front and by no
//! other. Self-extracting programs are refused for the same reason.

use super::end::Directory;
use super::entry::{RawEntry, flag, unicode_name};
use super::source::Source;
use super::wire::{DESCRIPTOR, Extra, Fields, LOCAL, LOCAL_BYTES, SATURATED_32};
use crate::error::ArchiveError;
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
    fixed: Fixed,
    packed: u64,
    size: u64,
    has_name: bool,
    data_at: u64,
}

impl Local {
    fn read(source: &mut Source<'_>, entry: &RawEntry, directory: Directory) -> Result<Self> {
        let past_end = || ArchiveError::PastEnd { name: entry.shown() };
        let at = entry.header_at;
        if at >= directory.start {
            return Err(past_end().into());
        }
        let fixed = source.bytes(at, LOCAL_BYTES)?.ok_or_else(past_end)?;
        let fixed = Fixed::parse(fixed).ok_or_else(|| disagree(entry, "place"))?;
        let variable_at = at + LOCAL_BYTES as u64;
        let variable_bytes = usize::from(fixed.name_bytes) + usize::from(fixed.extra_bytes);
        let variable = source.bytes(variable_at, variable_bytes)?.ok_or_else(past_end)?;
        let (name, area) = variable.split_at_checked(fixed.name_bytes.into()).unwrap_or_default();
        let extra = Extra::parse(area).map_err(|_| ArchiveError::BadExtra { name: entry.shown() })?;

        let mut zip64 = Fields(extra.zip64.unwrap_or_default());
        let mut wide = |short: u32| {
            let number = if short == SATURATED_32 { zip64.u64() } else { Some(u64::from(short)) };
            number.ok_or_else(|| ArchiveError::Zip64 { place: format!("`{}`", entry.shown()) })
        };
        let (size, packed) = (wide(fixed.size)?, wide(fixed.packed)?);
        let unicode_name = extra.unicode_path.and_then(|data| unicode_name(data, name));
        let has_name = name == entry.name && (unicode_name.is_none() || unicode_name == entry.unicode_name);
        Ok(Self { fixed, packed, size, has_name, data_at: variable_at + variable_bytes as u64 })
    }

    /// Compares what both headers say. Where a descriptor follows the data, sizes and checksum may be zero here.
    fn compare(&self, entry: &RawEntry) -> Result<(), ArchiveError> {
        let deferred = self.fixed.flags & flag::DESCRIPTOR != 0;
        let same = |here: u64, there: u64| here == there || (deferred && here == 0);
        let fields = [
            (self.has_name, "name"),
            ((self.fixed.flags ^ entry.flags) & MEANINGFUL_FLAGS == 0, "flags"),
            (self.fixed.method == entry.method.number(), "method"),
            (same(self.packed, entry.packed), "packed size"),
            (same(self.size, entry.size), "size"),
            (same(self.fixed.crc.into(), entry.crc.into()), "checksum"),
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
        if self.fixed.flags & flag::DESCRIPTOR == 0 {
            return Ok(0);
        }
        let is_complete =
            self.fixed.crc == entry.crc && self.packed == entry.packed && self.size == entry.size;
        let length = usize::try_from(gap).ok().filter(|gap| DESCRIPTOR_BYTES.contains(gap));
        let Some(length) = length else {
            return if is_complete { Ok(0) } else { Err(disagree(entry, "data descriptor").into()) };
        };
        let bytes = source.bytes(at, length)?.unwrap_or_default();
        if describes(bytes, entry) { Ok(gap) } else { Err(disagree(entry, "data descriptor").into()) }
    }
}

/// The part of a local header that every entry has (APPNOTE.TXT 4.3.7).
struct Fixed {
    flags: u16,
    method: u16,
    crc: u32,
    packed: u32,
    size: u32,
    name_bytes: u16,
    extra_bytes: u16,
}

impl Fixed {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        fields.u32().filter(|signature| *signature == LOCAL)?;
        fields.u16()?;
        let (flags, method) = (fields.u16()?, fields.u16()?);
        fields.u32()?;
        let (crc, packed, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (name_bytes, extra_bytes) = (fields.u16()?, fields.u16()?);
        Some(Self { flags, method, crc, packed, size, name_bytes, extra_bytes })
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

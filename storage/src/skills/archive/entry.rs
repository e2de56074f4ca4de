//! [`RawEntry`]: one line of the table of contents, as the archive tells it.

use policy::ArchiveLimits;

use super::end::Directory;
use super::source::Source;
use super::time;
use super::wire::{CENTRAL, CENTRAL_BYTES, Extra, ExtraFault, Fields, SATURATED_16, SATURATED_32};
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};

/// Bytes of an encoded name per byte of the longest path: no encoding read here is twice as long as UTF-8.
const ENCODED_NAME_FACTOR: usize = 2;

/// General purpose flags (APPNOTE.TXT 4.4.4).
pub(super) mod flag {
    /// The data is encrypted (bit 0), strongly (bit 6), or the headers are masked (bit 13).
    pub(in super::super) const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
    /// The data is a patch to another archive.
    pub(in super::super) const PATCH: u16 = 1 << 5;
    /// Sizes and checksum follow the data.
    pub(in super::super) const DESCRIPTOR: u16 = 1 << 3;
    /// The name is UTF-8.
    pub(in super::super) const UTF_8: u16 = 1 << 11;
}

/// How an entry's data is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// As it is.
    Store,
    /// Raw deflate (RFC 1951).
    Deflate,
}

impl Method {
    pub(super) fn number(self) -> u16 {
        match self {
            Self::Store => 0,
            Self::Deflate => 8,
        }
    }
}

/// One entry of the central directory, checked for itself; its relation to others is checked in `layout`.
#[derive(Clone, Debug)]
pub(super) struct RawEntry {
    /// The name's bytes, in any encoding.
    pub(super) name: Vec<u8>,
    /// The name from extra field 0x7075, when its checksum fits and it is UTF-8.
    pub(super) unicode_name: Option<String>,
    /// System of the program that packed it (APPNOTE.TXT 4.4.2).
    pub(super) host: u8,
    pub(super) flags: u16,
    pub(super) method: Method,
    pub(super) crc: u32,
    /// Bytes of packed data.
    pub(super) packed: u64,
    /// Bytes of unpacked data.
    pub(super) size: u64,
    /// Offset of the local header.
    pub(super) header_at: u64,
    /// External attributes: Unix mode above, MS-DOS attributes below.
    pub(super) attributes: u32,
    /// Seconds since 1970, when the archive has a moment that exists.
    pub(super) modified: Option<i64>,
}

impl RawEntry {
    /// The name for messages.
    pub(super) fn shown(&self) -> String {
        self.unicode_name.as_ref().map_or_else(|| excerpt(&self.name), |name| excerpt(name.as_bytes()))
    }
}

/// Reads the whole table of contents.
///
/// # Errors
/// [`ArchiveError`]: `TooManyEntries`, `BadDirectory`, `CountMismatch`, and what one entry can be refused for.
pub(super) fn read_all(
    source: &mut Source<'_>,
    directory: Directory,
    limits: &ArchiveLimits,
) -> Result<Vec<RawEntry>> {
    let limit = limits.entries;
    if directory.entries > limit as u64 {
        return Err(ArchiveError::TooManyEntries { limit }.into());
    }
    let end = directory.start + directory.bytes;
    let mut entries = Vec::new();
    let mut at = directory.start;
    while at < end {
        let index = entries.len() as u64;
        if index >= directory.entries {
            return Err(ArchiveError::CountMismatch { declared: directory.entries, found: index + 1 }.into());
        }
        let bad = || ArchiveError::BadDirectory { index };
        let fixed = source.bytes(at, CENTRAL_BYTES)?.and_then(Fixed::parse).ok_or_else(bad)?;
        let length = CENTRAL_BYTES + fixed.variable_bytes();
        if at + length as u64 > end {
            return Err(bad().into());
        }
        let header = source.bytes(at, length)?.ok_or_else(bad)?;
        let (_, variable) = header.split_at_checked(CENTRAL_BYTES).ok_or_else(bad)?;
        entries.push(fixed.complete(variable, limits)?);
        at += length as u64;
    }
    let found = entries.len() as u64;
    if found != directory.entries {
        return Err(ArchiveError::CountMismatch { declared: directory.entries, found }.into());
    }
    Ok(entries)
}

/// The part of a central header that every entry has.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    host: u8,
    flags: u16,
    method: u16,
    time: u16,
    date: u16,
    crc: u32,
    packed: u32,
    size: u32,
    name_bytes: u16,
    extra_bytes: u16,
    comment_bytes: u16,
    disk: u16,
    attributes: u32,
    header_at: u32,
}

impl Fixed {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        fields.u32().filter(|signature| *signature == CENTRAL)?;
        let [_version, host] = fields.u16()?.to_le_bytes();
        fields.u16()?;
        let (flags, method, time, date) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
        let (crc, packed, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (name_bytes, extra_bytes, comment_bytes) = (fields.u16()?, fields.u16()?, fields.u16()?);
        let disk = fields.u16()?;
        fields.u16()?;
        let (attributes, header_at) = (fields.u32()?, fields.u32()?);
        Some(Self {
            host,
            flags,
            method,
            time,
            date,
            crc,
            packed,
            size,
            name_bytes,
            extra_bytes,
            comment_bytes,
            disk,
            attributes,
            header_at,
        })
    }

    fn variable_bytes(&self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.extra_bytes) + usize::from(self.comment_bytes)
    }

    /// Joins the fixed part with the name and extra fields that follow it.
    fn complete(self, variable: &[u8], limits: &ArchiveLimits) -> Result<RawEntry, ArchiveError> {
        let mut fields = Fields(variable);
        let name = fields.take(self.name_bytes.into()).unwrap_or_default();
        let area = fields.take(self.extra_bytes.into()).unwrap_or_default();
        let shown = || excerpt(name);
        let zip64 = || ArchiveError::Zip64 { place: format!("`{}`", shown()) };

        let encoded_bytes_max = limits.path_bytes.saturating_mul(ENCODED_NAME_FACTOR);
        if name.len() > encoded_bytes_max {
            return Err(ArchiveError::PathTooLong { name: shown(), limit: limits.path_bytes });
        }
        let extra = Extra::parse(area).map_err(|fault| match fault {
            ExtraFault::Overrun => ArchiveError::BadExtra { name: shown() },
            ExtraFault::Doubled => zip64(),
        })?;
        let wide = self.wide(extra.zip64).ok_or_else(zip64)?;
        if wide.disk != 0 {
            return Err(ArchiveError::MultiVolume);
        }
        if self.flags & flag::ENCRYPTED != 0 || self.method == 99 {
            return Err(ArchiveError::Encrypted { name: shown() });
        }
        let method = match self.method {
            _ if self.flags & flag::PATCH != 0 => return Err(ArchiveError::Patch { name: shown() }),
            0 => Method::Store,
            8 => Method::Deflate,
            method => return Err(ArchiveError::Method { name: shown(), method }),
        };
        if method == Method::Store && wide.packed != wide.size {
            return Err(ArchiveError::WrongSize { name: shown(), declared: wide.size });
        }
        let unicode_name = extra.unicode_path.and_then(|data| unicode_name(data, name));
        if unicode_name.as_ref().is_some_and(|name| name.len() > limits.path_bytes) {
            return Err(ArchiveError::PathTooLong { name: shown(), limit: limits.path_bytes });
        }
        let modified = extra
            .timestamp
            .and_then(time::from_timestamp_field)
            .or_else(|| time::from_dos(self.time, self.date));
        Ok(RawEntry {
            name: name.to_vec(),
            unicode_name,
            host: self.host,
            flags: self.flags,
            method,
            crc: self.crc,
            packed: wide.packed,
            size: wide.size,
            header_at: wide.header_at,
            attributes: self.attributes,
            modified,
        })
    }

    /// The sizes, offset and volume, each from the zip64 field where the short one is saturated (4.5.3).
    fn wide(self, zip64: Option<&[u8]>) -> Option<Wide> {
        let mut fields = Fields(zip64.unwrap_or_default());
        let mut wide = |short: u32| {
            if short == SATURATED_32 { fields.u64() } else { Some(u64::from(short)) }
        };
        let (size, packed, header_at) = (wide(self.size)?, wide(self.packed)?, wide(self.header_at)?);
        let disk = if self.disk == SATURATED_16 { fields.u32()? } else { u32::from(self.disk) };
        Some(Wide { size, packed, header_at, disk })
    }
}

/// The fields that a zip64 field may widen.
struct Wide {
    size: u64,
    packed: u64,
    header_at: u64,
    disk: u32,
}

/// The name in extra field 0x7075: version 1, the CRC-32 of the ordinary name, the name (APPNOTE.TXT 4.6.9).
///
/// A checksum that does not fit means that a program renamed the entry without knowing the field.
pub(super) fn unicode_name(data: &[u8], name: &[u8]) -> Option<String> {
    let mut fields = Fields(data);
    let version = fields.u8()?;
    let checksum = fields.u32()?;
    let mut crc = flate2::Crc::new();
    crc.update(name);
    (version == 1 && crc.sum() == checksum).then(|| String::from_utf8(fields.0.to_vec()).ok()).flatten()
}

//! The records of a ZIP file as they lie in it: signatures, little-endian fields, extra fields.
//!
//! # References
//! * PKWARE, `APPNOTE.TXT` 6.3.10, sections 4.3 (records) and 4.5 (extra fields);
//! * Info-ZIP, `proginfo/extrafld.txt` (0x5455 timestamps, 0x7075 names).

/// `PK\3\4`, before each entry's data (4.3.7).
pub(super) const LOCAL: u32 = 0x0403_4B50;
/// `PK\1\2`, one for each entry in the central directory (4.3.12).
pub(super) const CENTRAL: u32 = 0x0201_4B50;
/// `PK\5\6`, the end record (4.3.16).
pub(super) const END: u32 = 0x0605_4B50;
/// `PK\6\6`, the zip64 end record (4.3.14).
pub(super) const END_64: u32 = 0x0606_4B50;
/// `PK\6\7`, the locator of the zip64 end record (4.3.15).
pub(super) const LOCATOR_64: u32 = 0x0706_4B50;
/// `PK\7\8`, which may stand before a data descriptor (4.3.9.3).
pub(super) const DESCRIPTOR: u32 = 0x0807_4B50;

/// Bytes of the end record without its comment.
pub(super) const END_BYTES: usize = 22;
/// Bytes of the zip64 end record without its extensible part.
pub(super) const END_64_BYTES: usize = 56;
/// Bytes of the zip64 locator.
pub(super) const LOCATOR_64_BYTES: usize = 20;
/// Bytes of a central header without its variable part.
pub(super) const CENTRAL_BYTES: usize = 46;
/// Bytes of a local header without its variable part.
pub(super) const LOCAL_BYTES: usize = 30;

/// A 16-bit field that says "see zip64".
pub(super) const SATURATED_16: u16 = u16::MAX;
/// A 32-bit field that says "see zip64".
pub(super) const SATURATED_32: u32 = u32::MAX;

/// Extra field: 64-bit sizes and offset (4.5.3).
pub(super) const EXTRA_ZIP64: u16 = 0x0001;
/// Extra field: modification time in seconds since 1970 (Info-ZIP).
pub(super) const EXTRA_TIMESTAMP: u16 = 0x5455;
/// Extra field: the name in UTF-8 (4.6.9).
pub(super) const EXTRA_UNICODE_PATH: u16 = 0x7075;

/// Fields read one after another; `None` when the bytes run out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'bytes>(pub(super) &'bytes [u8]);

impl<'bytes> Fields<'bytes> {
    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Option<&'bytes [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next byte.
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// The next 16-bit number.
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    /// The next 32-bit number.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// The next 64-bit number.
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// The extra fields this crate reads, out of those an entry has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra<'bytes> {
    pub(super) zip64: Option<&'bytes [u8]>,
    pub(super) timestamp: Option<&'bytes [u8]>,
    pub(super) unicode_path: Option<&'bytes [u8]>,
}

/// Why extra fields were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtraFault {
    /// A field is longer than what is left.
    Overrun,
    /// Two zip64 fields, or two names: readers differ in which one counts.
    Doubled,
}

impl<'bytes> Extra<'bytes> {
    /// Splits an extra area; up to three bytes of padding at its end are passed over.
    pub(super) fn parse(area: &'bytes [u8]) -> Result<Self, ExtraFault> {
        let mut extra = Self::default();
        let mut fields = Fields(area);
        while fields.0.len() >= 4 {
            let (Some(id), Some(length)) = (fields.u16(), fields.u16()) else { break };
            let Some(data) = fields.take(usize::from(length)) else { return Err(ExtraFault::Overrun) };
            let slot = match id {
                EXTRA_ZIP64 => &mut extra.zip64,
                EXTRA_UNICODE_PATH => &mut extra.unicode_path,
                EXTRA_TIMESTAMP => {
                    extra.timestamp = Some(data);
                    continue;
                }
                _ => continue,
            };
            if slot.replace(data).is_some() {
                return Err(ExtraFault::Doubled);
            }
        }
        Ok(extra)
    }
}

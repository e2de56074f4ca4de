//! The table of contents of a tar: one header before each file, and nothing that says where they end.
//!
//! Readers of tar differ in much: in which of two names or sizes counts, in what follows the end, in sparse files. What
//! they could read differently is refused: an entry twice, two names for one entry, a size that a PAX record contradicts,
//! data of an entry that has none, anything but zeros after the end. Long names are read as GNU (`L`, `K`) and PAX (`x`)
//! write them. A hard link is the file that it was made of, which must stand before it.
//!
//! # References
//! * POSIX.1-2017, `pax`, "ustar Interchange Format" and "pax Extended Header";
//! * GNU tar manual, "Basic Tar Format"; libarchive, `tar(5)`.

use std::collections::HashMap;

use policy::ArchiveLimits;
use tar::{EntryType, Header, PaxExtensions};

use super::entry::{Method, RawEntry, flag};
use super::source::Source;
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};
use crate::interrupt;

/// Headers and data begin at multiples of it.
const BLOCK_BYTES: usize = 512;
/// The longest PAX header that is read, in bytes.
const PAX_BYTES_MAX: u64 = 64 * 1024;
/// The latest modification time that is kept: the end of the year 9999.
const SECONDS_MAX: i64 = 253_402_300_799;
/// The system of every entry: Unix, as a ZIP numbers it.
const HOST_UNIX: u8 = 3;

/// What a tar lists.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<RawEntry>,
    /// Where the data of each begins.
    pub(super) starts: Vec<u64>,
    /// Where each leads, when it is a link.
    pub(super) targets: Vec<Option<Vec<u8>>>,
}

/// Tells whether the file begins as a tar.
pub(super) fn is_tar(source: &mut Source<'_>) -> Result<bool> {
    let block = source.bytes(0, BLOCK_BYTES)?;
    Ok(block.is_some_and(is_header))
}

/// Reads all headers.
///
/// # Errors
/// [`ArchiveError`]: `Truncated`, `TrailingBytes`, `MultiVolume`, `TooManyEntries`, `PathTooLong`, `BadTar`, `Sparse`,
/// `Device`; those of [`interrupt::check`].
pub(super) fn read_all(source: &mut Source<'_>, limits: &ArchiveLimits) -> Result<Listing> {
    let mut reader = Reader { limits, listing: Listing::default(), files: HashMap::new() };
    let mut next = Extension::default();
    let mut at = 0;
    loop {
        interrupt::check()?;
        let block = source.bytes(at, BLOCK_BYTES)?.ok_or(ArchiveError::Truncated)?;
        if is_zero(block) {
            break;
        }
        let index = reader.listing.entries.len();
        let bad = |fault| ArchiveError::BadTar { index, fault };
        if !is_header(block) {
            return Err(bad("its header is damaged").into());
        }
        let header = Header::from_byte_slice(block).clone();
        let size = header.entry_size().map_err(|_| bad("its size is no number"))?;
        let data_at = at + BLOCK_BYTES as u64;
        let end = data_at.checked_add(size).filter(|end| *end <= source.length());
        let end = end.ok_or(ArchiveError::Truncated)?;
        match header.entry_type() {
            EntryType::GNULongName | EntryType::GNULongLink => {
                let longest = limits.path_bytes as u64 * 2 + 1;
                let long = read_data(source, data_at, size, longest).ok_or_else(|| {
                    let name = excerpt(&header.path_bytes());
                    ArchiveError::PathTooLong { name, limit: limits.path_bytes }
                })?;
                let is_name = header.entry_type() == EntryType::GNULongName;
                let slot = if is_name { &mut next.name } else { &mut next.target };
                let text: Vec<u8> = long.into_iter().take_while(|byte| *byte != 0).collect();
                if slot.replace((text, false)).is_some() {
                    return Err(bad("it has two names").into());
                }
            }
            EntryType::XHeader => {
                let records = read_data(source, data_at, size, PAX_BYTES_MAX);
                let records = records.ok_or_else(|| bad("its PAX header is too long"))?;
                next.read_pax(&records).map_err(bad)?;
            }
            EntryType::XGlobalHeader => {
                let records = read_data(source, data_at, size, PAX_BYTES_MAX);
                let records = records.ok_or_else(|| bad("a global PAX header is too long"))?;
                let mut global = Extension::default();
                global.read_pax(&records).map_err(bad)?;
                // For all entries: each reader applies them differently.
                if global.name.is_some() || global.target.is_some() || global.size.is_some() {
                    return Err(bad("a global PAX header names it").into());
                }
            }
            _ => reader.entry(&header, size, data_at, std::mem::take(&mut next))?,
        }
        let padding = (BLOCK_BYTES as u64 - end % BLOCK_BYTES as u64) % BLOCK_BYTES as u64;
        at = end + padding;
    }
    if !next.is_empty() {
        return Err(ArchiveError::Truncated.into());
    }
    check_end(source, at)?;
    Ok(reader.listing)
}

/// What headers before an entry say of it; each name with whether it is marked as UTF-8.
#[derive(Debug, Default)]
struct Extension {
    name: Option<(Vec<u8>, bool)>,
    target: Option<(Vec<u8>, bool)>,
    size: Option<u64>,
    modified: Option<i64>,
    is_sparse: bool,
}

impl Extension {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.target.is_none() && self.size.is_none() && !self.is_sparse
    }

    /// Takes the records of a PAX header in; the fault where it cannot be read in one way only.
    fn read_pax(&mut self, records: &[u8]) -> Result<(), &'static str> {
        const DAMAGED: &str = "its PAX header is damaged";
        // Some programs say that their names are in no encoding.
        let is_binary = |record: &tar::PaxExtension<'_>| {
            record.key_bytes() == b"hdrcharset" && record.value_bytes() == b"BINARY"
        };
        let is_utf_8 = !PaxExtensions::new(records).flatten().any(|record| is_binary(&record));
        for record in PaxExtensions::new(records) {
            let record = record.map_err(|_| DAMAGED)?;
            let value = record.value_bytes();
            let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            let is_second = match record.key_bytes() {
                b"path" => self.name.replace((value.to_vec(), is_utf_8)).is_some(),
                b"linkpath" => self.target.replace((value.to_vec(), is_utf_8)).is_some(),
                b"size" => self.size.replace(number().ok_or(DAMAGED)?).is_some(),
                b"mtime" => {
                    let seconds = std::str::from_utf8(value).ok().and_then(|text| text.split('.').next());
                    self.modified = seconds.and_then(|seconds| seconds.parse().ok());
                    false
                }
                key => {
                    self.is_sparse |= key.starts_with(b"GNU.sparse.");
                    false
                }
            };
            if is_second {
                return Err("it has two names or two sizes");
            }
        }
        Ok(())
    }
}

struct Reader<'limits> {
    limits: &'limits ArchiveLimits,
    listing: Listing,
    /// The files so far, for hard links: by name, as it is written.
    files: HashMap<Vec<u8>, usize>,
}

impl Reader<'_> {
    fn entry(
        &mut self,
        header: &Header,
        size: u64,
        data_at: u64,
        extension: Extension,
    ) -> Result<(), ArchiveError> {
        let limits = self.limits;
        let index = self.listing.entries.len();
        let bad = |fault| ArchiveError::BadTar { index, fault };
        if index >= limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        let (name, is_utf_8) = extension.name.unwrap_or_else(|| (header.path_bytes().into_owned(), false));
        let shown = || excerpt(&name);
        if name.len() > limits.path_bytes * 2 {
            return Err(ArchiveError::PathTooLong { name: shown(), limit: limits.path_bytes });
        }
        if extension.size.is_some_and(|other| other != size) {
            return Err(bad("it has two sizes"));
        }
        let kind = header.entry_type();
        if extension.is_sparse || kind == EntryType::GNUSparse {
            return Err(ArchiveError::Sparse { name: shown() });
        }
        let type_bits = match kind {
            // A label of the whole archive is no file.
            EntryType::__Nonexhaustive(b'V') if size == 0 => return Ok(()),
            EntryType::Regular | EntryType::Continuous | EntryType::Link => 0o100_000,
            EntryType::Directory => 0o040_000,
            EntryType::Symlink => 0o120_000,
            EntryType::__Nonexhaustive(b'M') => return Err(ArchiveError::MultiVolume),
            _ => return Err(ArchiveError::Device { name: shown() }),
        };
        let is_link = matches!(kind, EntryType::Link | EntryType::Symlink);
        if is_link && size > 0 {
            return Err(bad("it is a link with data"));
        }
        let mut target = if is_link {
            let written = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
            let target = extension.target.map(|(target, _)| target).or_else(written);
            Some(target.ok_or_else(|| bad("it is a link to nothing"))?)
        } else {
            None
        };
        if target.as_ref().is_some_and(|target| target.len() > limits.path_bytes * 2) {
            return Err(ArchiveError::PathTooLong { name: shown(), limit: limits.path_bytes });
        }
        let (mut start, mut bytes, mut type_bits) = (data_at, size, type_bits);
        if kind == EntryType::Link {
            let of = target.as_deref().and_then(|name| self.files.get(undotted(name)));
            match of.and_then(|of| Some((self.listing.entries.get(*of)?, self.listing.starts.get(*of)?, of)))
            {
                Some((entry, first, of)) => {
                    (start, bytes) = (*first, entry.size);
                    target = self.listing.targets.get(*of).cloned().flatten();
                    type_bits = if target.is_some() { 0o120_000 } else { type_bits };
                }
                // Of no file before it: it leads out of every skill.
                None => {
                    type_bits = 0o120_000;
                    target = target.map(|name| [b"/", name.as_slice()].concat());
                }
            }
        }
        let seconds =
            extension.modified.or_else(|| header.mtime().ok().and_then(|at| i64::try_from(at).ok()));
        if type_bits != 0o040_000 {
            self.files.insert(undotted(&name).to_vec(), index);
        }
        let mode = header.mode().map_err(|_| bad("its mode is no number"))?;
        self.listing.entries.push(RawEntry {
            name,
            unicode_name: None,
            host: HOST_UNIX,
            flags: if is_utf_8 { flag::UTF_8 } else { 0 },
            method: Method::Store,
            crc: 0,
            packed: bytes,
            size: bytes,
            header_at: data_at,
            attributes: (type_bits | (mode & 0o777)) << 16,
            modified: seconds.filter(|at| (0..=SECONDS_MAX).contains(at)),
        });
        self.listing.starts.push(start);
        self.listing.targets.push(target);
        Ok(())
    }
}

/// A name without the `./` before it.
fn undotted(name: &[u8]) -> &[u8] {
    let mut rest = name;
    while let Some(shorter) = rest.strip_prefix(b"./") {
        rest = shorter;
    }
    rest
}

/// The data of a header; `None` when it is longer than `most`.
fn read_data(source: &mut Source<'_>, at: u64, size: u64, most: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(size).ok().filter(|_| size <= most)?;
    source.bytes(at, length).ok().flatten().map(<[u8]>::to_vec)
}

/// Refuses anything but zeros from `at` on.
fn check_end(source: &mut Source<'_>, mut at: u64) -> Result<()> {
    let length = source.length();
    while at < length {
        interrupt::check()?;
        let chunk = source.chunk(at, length - at)?;
        if chunk.is_empty() {
            return Err(ArchiveError::Changed.into());
        }
        if !is_zero(chunk) {
            return Err(ArchiveError::TrailingBytes { bytes: length - at }.into());
        }
        at += chunk.len() as u64;
    }
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Tells whether the checksum of a block is that of a header, which counts its own field as spaces.
fn is_header(block: &[u8]) -> bool {
    let field = 148..156;
    let sum = block.iter().enumerate().fold(0_u32, |sum, (at, byte)| {
        sum + if field.contains(&at) { u32::from(b' ') } else { u32::from(*byte) }
    });
    block.len() == BLOCK_BYTES && Header::from_byte_slice(block).cksum().is_ok_and(|declared| declared == sum)
}

//! Archives byte by byte, so that each field can lie.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// How an entry announces its sizes after the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// Not at all.
    Absent,
    /// Signature and 32-bit sizes, as nearly every program writes.
    Marked,
    /// No signature.
    Bare,
    /// Signature and 64-bit sizes.
    MarkedWide,
    /// No signature, 64-bit sizes.
    BareWide,
    /// Announced in the flags and not there.
    Announced,
}

/// One entry; every field as it will be written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) host: u8,
    pub(crate) attributes: u32,
    pub(crate) time: u16,
    pub(crate) date: u16,
    pub(crate) crc: u32,
    pub(crate) size: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) packed: u32,
    pub(crate) extra: Vec<u8>,
    pub(crate) descriptor: Descriptor,
    pub(crate) disk: u16,
    /// What the local header says instead.
    pub(crate) local_name: Option<Vec<u8>>,
    pub(crate) local_flags: Option<u16>,
    pub(crate) local_method: Option<u16>,
    pub(crate) local_size: Option<u32>,
    pub(crate) local_packed: Option<u32>,
    pub(crate) local_crc: Option<u32>,
    pub(crate) local_extra: Option<Vec<u8>>,
    /// What the central header says instead of the true offset.
    pub(crate) offset: Option<u32>,
    /// Leaves the local header and data out.
    pub(crate) is_listed_only: bool,
    /// Leaves the central header out.
    pub(crate) is_unlisted: bool,
    /// Bytes put after the data.
    pub(crate) after: Vec<u8>,
}

/// A deflated file of a Unix host.
pub(crate) fn file(name: impl AsRef<[u8]>, content: &[u8]) -> Entry {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    let data = encoder.finish().unwrap();
    Entry { method: 8, packed: u32::try_from(data.len()).unwrap(), data, ..stored(name, content) }
}

/// A stored file of a Unix host.
pub(crate) fn stored(name: impl AsRef<[u8]>, content: &[u8]) -> Entry {
    let size = u32::try_from(content.len()).unwrap();
    Entry {
        name: name.as_ref().to_vec(),
        flags: 0,
        method: 0,
        host: 3,
        attributes: 0o100_644 << 16,
        time: 12 << 11,
        date: 44 << 9 | 2 << 5 | 29,
        crc: crc(content),
        size,
        data: content.to_vec(),
        packed: size,
        extra: Vec::new(),
        descriptor: Descriptor::Absent,
        disk: 0,
        local_name: None,
        local_flags: None,
        local_method: None,
        local_size: None,
        local_packed: None,
        local_crc: None,
        local_extra: None,
        offset: None,
        is_listed_only: false,
        is_unlisted: false,
        after: Vec::new(),
    }
}

/// A directory of a Unix host; `name` ends in `/`.
pub(crate) fn directory(name: impl AsRef<[u8]>) -> Entry {
    Entry { attributes: 0o040_755 << 16 | 0x10, ..stored(name, b"") }
}

/// A deflated file as Windows programs write it: host FAT, no mode.
pub(crate) fn dos(name: impl AsRef<[u8]>, content: &[u8]) -> Entry {
    Entry { host: 0, attributes: 0x20, ..file(name, content) }
}

/// An archive and what its end records say.
#[derive(Clone, Default)]
pub(crate) struct Archive {
    pub(crate) entries: Vec<Entry>,
    pub(crate) comment: Vec<u8>,
    /// Before the first entry; offsets count from its beginning.
    pub(crate) prefix: Vec<u8>,
    /// Before the first entry; offsets do not know of it.
    pub(crate) hidden_prefix: Vec<u8>,
    pub(crate) suffix: Vec<u8>,
    pub(crate) entries_declared: Option<u16>,
    pub(crate) start_declared: Option<u32>,
    pub(crate) disk: u16,
    /// The zip64 end record, when there is one: entries, directory size, directory offset; `None` is the truth.
    pub(crate) zip64: Option<[Option<u64>; 3]>,
}

pub(crate) fn archive(entries: impl IntoIterator<Item = Entry>) -> Archive {
    Archive { entries: entries.into_iter().collect(), ..Archive::default() }
}

pub(crate) fn zip(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    archive(entries).bytes()
}

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// An extra field.
pub(crate) fn extra(id: u16, data: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes(), &u16::try_from(data.len()).unwrap().to_le_bytes(), data].concat()
}

/// Extra field 0x7075 for an entry named `name`.
pub(crate) fn unicode_path(name: &[u8], path: &str) -> Vec<u8> {
    extra(0x7075, &[&[1], crc(name).to_le_bytes().as_slice(), path.as_bytes()].concat())
}

impl Archive {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.prefix.clone();
        let mut central = Vec::new();
        let mut listed = 0_u16;
        for entry in &self.entries {
            let offset = u32::try_from(out.len()).unwrap();
            if !entry.is_listed_only {
                entry.write_local(&mut out);
            }
            if !entry.is_unlisted {
                entry.write_central(&mut central, entry.offset.unwrap_or(offset));
                listed += 1;
            }
        }
        let start = out.len();
        out.extend_from_slice(&central);
        if let Some([entries, bytes, offset]) = self.zip64 {
            let record_at = out.len() as u64;
            let entries = entries.unwrap_or(listed.into());
            out.extend_from_slice(b"PK\x06\x06");
            out.extend_from_slice(&44_u64.to_le_bytes());
            out.extend_from_slice(&[45, 3, 45, 0]);
            out.extend_from_slice(&[0; 8]);
            for number in
                [entries, entries, bytes.unwrap_or(central.len() as u64), offset.unwrap_or(start as u64)]
            {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(b"PK\x06\x07");
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&record_at.to_le_bytes());
            out.extend_from_slice(&1_u32.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x05\x06");
        let (entries, bytes, offset) = if self.zip64.is_some() {
            (u16::MAX, u32::MAX, u32::MAX)
        } else {
            (listed, u32::try_from(central.len()).unwrap(), u32::try_from(start).unwrap())
        };
        let entries = self.entries_declared.unwrap_or(entries);
        for number in [self.disk, self.disk, entries, entries] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&self.start_declared.unwrap_or(offset).to_le_bytes());
        out.extend_from_slice(&u16::try_from(self.comment.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&self.comment);
        out.extend_from_slice(&self.suffix);
        [self.hidden_prefix.as_slice(), &out].concat()
    }
}

impl Entry {
    fn flags(&self) -> u16 {
        if self.descriptor == Descriptor::Absent { self.flags } else { self.flags | 8 }
    }

    fn write_local(&self, out: &mut Vec<u8>) {
        let deferred = !matches!(self.descriptor, Descriptor::Absent | Descriptor::Announced);
        let written = |number: u32| if deferred { 0 } else { number };
        let name = self.local_name.as_ref().unwrap_or(&self.name);
        let extra = self.local_extra.as_ref().unwrap_or(&self.extra);
        out.extend_from_slice(b"PK\x03\x04");
        for number in [
            20,
            self.local_flags.unwrap_or(self.flags()),
            self.local_method.unwrap_or(self.method),
            self.time,
            self.date,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [
            self.local_crc.unwrap_or(written(self.crc)),
            self.local_packed.unwrap_or(written(self.packed)),
            self.local_size.unwrap_or(written(self.size)),
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for length in [name.len(), extra.len()] {
            out.extend_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
        }
        out.extend_from_slice(name);
        out.extend_from_slice(extra);
        out.extend_from_slice(&self.data);
        let (is_marked, is_wide) = match self.descriptor {
            Descriptor::Absent | Descriptor::Announced => (None, false),
            Descriptor::Marked => (Some(true), false),
            Descriptor::Bare => (Some(false), false),
            Descriptor::MarkedWide => (Some(true), true),
            Descriptor::BareWide => (Some(false), true),
        };
        if let Some(is_marked) = is_marked {
            if is_marked {
                out.extend_from_slice(b"PK\x07\x08");
            }
            out.extend_from_slice(&self.crc.to_le_bytes());
            for number in [self.packed, self.size] {
                out.extend_from_slice(&number.to_le_bytes());
                if is_wide {
                    out.extend_from_slice(&[0; 4]);
                }
            }
        }
        out.extend_from_slice(&self.after);
    }

    fn write_central(&self, out: &mut Vec<u8>, offset: u32) {
        out.extend_from_slice(b"PK\x01\x02");
        out.extend_from_slice(&[20, self.host]);
        for number in [20, self.flags(), self.method, self.time, self.date] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.crc, self.packed, self.size] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for length in [self.name.len(), self.extra.len(), 0] {
            out.extend_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
        }
        for number in [self.disk, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.attributes.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.extra);
    }
}

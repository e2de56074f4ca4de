//! Archives byte by byte, so that names can be in any encoding and entries can lie.

/// Local file header, central header and end record (PKWARE APPNOTE, 4.3).
const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
/// Names are UTF-8 (general purpose bit 11).
const UTF8: u16 = 1 << 11;

/// One stored entry.
pub(crate) struct Entry {
    name: Vec<u8>,
    flags: u16,
    /// Type and permission bits, as `st_mode` has them.
    mode: u32,
    data: Vec<u8>,
}

impl Entry {
    /// A file whose name is marked as UTF-8.
    pub(crate) fn file(name: &str, data: impl AsRef<[u8]>) -> Self {
        Self { name: name.into(), flags: UTF8, mode: 0o100_644, data: data.as_ref().to_vec() }
    }

    /// A file whose name is some bytes of an encoding that the archive does not tell.
    pub(crate) fn unmarked(name: &[u8], data: impl AsRef<[u8]>) -> Self {
        Self { name: name.to_vec(), flags: 0, mode: 0o100_644, data: data.as_ref().to_vec() }
    }

    /// A symbolic link.
    pub(crate) fn link(name: &str, target: &str) -> Self {
        Self { name: name.into(), flags: UTF8, mode: 0o120_777, data: target.into() }
    }

    /// The same as a directory; its name ends in `/`.
    pub(crate) fn directory(self) -> Self {
        Self { mode: 0o040_755, ..self }
    }

    /// The same with other permission bits.
    pub(crate) fn mode(self, mode: u32) -> Self {
        Self { mode: self.mode & !0o777 | mode, ..self }
    }

    fn common(&self) -> Vec<u8> {
        let mut crc = flate2::Crc::new();
        crc.update(&self.data);
        let size = u32::try_from(self.data.len()).unwrap();
        let mut bytes = Vec::new();
        bytes.extend(20_u16.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        // Stored, at noon of 2024-02-29.
        for field in [0, 12 << 11, 44 << 9 | 2 << 5 | 29] {
            bytes.extend(u16::to_le_bytes(field));
        }
        for field in [crc.sum(), size, size] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(u16::try_from(self.name.len()).unwrap().to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
        bytes
    }
}

/// An archive of `entries`.
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = u32::try_from(bytes.len()).unwrap();
        let common = entry.common();
        bytes.extend(LOCAL);
        bytes.extend(&common);
        bytes.extend(&entry.name);
        bytes.extend(&entry.data);
        directory.extend(CENTRAL);
        // Made by version 2.0 on Unix, so that the mode counts.
        directory.extend((3_u16 << 8 | 20).to_le_bytes());
        directory.extend(&common);
        for field in [0_u16; 3] {
            directory.extend(field.to_le_bytes());
        }
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(&entry.name);
    }
    let start = u32::try_from(bytes.len()).unwrap();
    let length = u32::try_from(directory.len()).unwrap();
    let count = u16::try_from(entries.len()).unwrap();
    bytes.extend(directory);
    bytes.extend(END);
    for field in [0, 0, count, count] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(length.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    bytes
}

/// A skill `id` with a SKILL.md that says so, and `files`.
pub(crate) fn skill_zip(id: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let header = format!("---\nname: {id}\ndescription: about {id}\n---\n# {id}\n");
    let mut entries = vec![Entry::file(&format!("{id}/SKILL.md"), header)];
    entries.extend(files.iter().map(|(path, text)| Entry::file(&format!("{id}/{path}"), text)));
    zip(&entries)
}

/// Bytes that do not compress and differ with `seed` (xorshift).
pub(crate) fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(length.div_ceil(8)).flatten().take(length).collect()
}

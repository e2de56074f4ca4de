//! [`Manifest`]: the list of what a snapshot holds, as it lies on the disk.
//!
//! Lines of JSON. The first is the [`Header`]; every other is one entry, `[depth, name, node]`, a directory before
//! what is in it, which has the depth one greater. Names are any bytes: what is no UTF-8, control characters and `%`
//! stand as `%` and two hexadecimal digits.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use super::{MANIFESTS, SnapshotId};
use crate::dir::Dir;
use crate::error::{Error, Result};

const FORMAT: u32 = 1;
/// Longest line: a link with a target of 4096 bytes, each of which takes up to six.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The facts of a snapshot as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u32,
    pub(super) name: Option<String>,
    pub(super) note: Option<String>,
    pub(super) created_ns: i64,
    /// How many lines follow.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) added_bytes: u64,
    pub(super) live: bool,
    pub(super) unsettled: u64,
    pub(super) skipped: u64,
}

/// The name of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Digest(pub(super) [u8; 32]);

/// An entry of a snapshot, but for its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Node {
    Directory {
        mode: u32,
    },
    File(FileNode),
    Link {
        /// Spelled as names are.
        target: String,
    },
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileNode {
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) modified_ns: i64,
    pub(super) digest: Digest,
    /// Inode number and change time. As long as a file has these, and size and modification time, it has this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<(u64, i64)>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// 0 in the workspace itself.
    pub(super) depth: usize,
    pub(super) name: OsString,
    pub(super) node: Node,
}

/// A manifest being read.
pub(super) struct Manifest {
    pub(super) header: Header,
    rest: BufReader<File>,
    read: u64,
    buffer: Vec<u8>,
}

impl Digest {
    /// The name of its object.
    pub(super) fn hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.hex()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        blake3::Hash::from_hex(&text).map(|hash| Self(*hash.as_bytes())).map_err(|_| "no digest")
    }
}

impl Header {
    pub(super) fn new(name: Option<String>, note: Option<String>, created_ns: i64) -> Self {
        Self {
            format: FORMAT,
            name,
            note,
            created_ns,
            entries: 0,
            bytes: 0,
            added_bytes: 0,
            live: false,
            unsettled: 0,
            skipped: 0,
        }
    }
}

/// Writes a manifest.
pub(super) fn write(into: &File, header: &Header, lines: &[Line]) -> Result<()> {
    let failed = |error: std::io::Error| Error::from_io("write", "manifest", error);
    let mut out = BufWriter::new(into);
    let mut line = |value: &dyn erased::Json| value.write(&mut out).map_err(failed);
    line(header)?;
    for Line { depth, name, node } in lines {
        line(&(depth, spell(name), node))?;
    }
    out.flush().map_err(failed)
}

/// Values of different types, each written as one line.
mod erased {
    use std::io::{Result, Write};

    pub(super) trait Json {
        fn write(&self, out: &mut dyn Write) -> Result<()>;
    }

    impl<T: serde::Serialize> Json for T {
        fn write(&self, out: &mut dyn Write) -> Result<()> {
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        }
    }
}

impl Manifest {
    /// Opens the manifest of a snapshot that lies in `own` and reads its header.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] when it is damaged; [`Error::Io`].
    pub(super) fn open(own: &Dir, id: &SnapshotId) -> Result<Self> {
        let (file, _) =
            own.open_dir_entry(OsStr::new(MANIFESTS))?.open_file_entry(OsStr::new(id.as_str()))?;
        let (mut rest, mut buffer) = (BufReader::new(file), Vec::new());
        let header: Option<Header> = read_line(&mut rest, &mut buffer)?;
        let header = header.filter(|header| header.format == FORMAT).ok_or_else(damaged)?;
        Ok(Self { header, rest, read: 0, buffer })
    }

    /// The next entry; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the manifest is damaged; [`Error::Io`].
    pub(super) fn next(&mut self) -> Result<Option<Line>> {
        if self.read == self.header.entries {
            return Ok(None);
        }
        self.read += 1;
        let read: Option<(usize, String, Node)> = read_line(&mut self.rest, &mut self.buffer)?;
        let (depth, name, node) = read.ok_or_else(damaged)?;
        Ok(Some(Line { depth, name: unspell(&name).ok_or_else(damaged)?, node }))
    }
}

/// The error of a snapshot that cannot be read: a loss of power can take bytes whose write no request waited for.
pub(super) fn damaged() -> Error {
    Error::Conflict("the snapshot is damaged and cannot be restored: remove it".to_owned())
}

/// Reads one line; `None` when it is none, or not what it should be.
fn read_line<T: for<'a> Deserialize<'a>>(
    from: &mut BufReader<File>,
    buffer: &mut Vec<u8>,
) -> Result<Option<T>> {
    buffer.clear();
    from.take(LINE_BYTES_MAX)
        .read_until(b'\n', buffer)
        .map_err(|error| Error::from_io("read", "manifest", error))?;
    let Some(line) = buffer.strip_suffix(b"\n") else { return Ok(None) };
    Ok(serde_json::from_slice(line).ok())
}

/// Spells any name as text.
pub(super) fn spell(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '%' | '\0'..='\u{1f}' | '\u{7f}' => text.push_str(&format!("%{:02x}", u32::from(character))),
                other => text.push(other),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    text
}

/// Reads what [`spell`] wrote.
pub(super) fn unspell(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_spelled_as_a_line_of_text_and_read_again() {
        for name in ["a", "数据.md", "100%", "a\nb", "\u{7f}", "%41"].map(OsString::from) {
            let spelled = spell(&name);
            assert!(!spelled.contains('\n'), "{spelled}");
            assert_eq!(unspell(&spelled), Some(name));
        }
        let bytes = OsString::from_vec((1..=255).filter(|byte| *byte != b'/').collect());
        assert_eq!(unspell(&spell(&bytes)), Some(bytes));
        assert_eq!((unspell("%"), unspell("%4"), unspell("%zz")), (None, None, None));
    }

    #[test]
    fn a_manifest_that_lost_its_end_is_damaged() {
        let temp = tempfile::tempdir().unwrap();
        let own = Dir::ambient_open(temp.path()).unwrap();
        let manifests = own.create_dir(OsStr::new(MANIFESTS), 0o700).unwrap();
        let id = SnapshotId::parse("0123456789abcdef0123").unwrap();
        let line =
            |name: &str| Line { depth: 0, name: name.into(), node: Node::Link { target: "x".to_owned() } };
        let lines = [line("数"), line("b")];
        let header = Header { entries: 2, ..Header::new(None, Some("说明".to_owned()), 5) };
        let file = manifests.create_file(OsStr::new(id.as_str()), 0o600).unwrap();
        write(&file, &header, &lines).unwrap();
        let read = || {
            let mut manifest = Manifest::open(&own, &id)?;
            let mut read = Vec::new();
            while let Some(line) = manifest.next()? {
                read.push(line);
            }
            Ok::<_, Error>((manifest.header, read))
        };
        assert_eq!(read().unwrap(), (header, lines.to_vec()));
        let whole = file.metadata().unwrap().len();
        for length in 0..whole {
            file.set_len(length).unwrap();
            assert!(matches!(read(), Err(Error::Conflict(_))), "{length} of {whole}");
        }
    }
}

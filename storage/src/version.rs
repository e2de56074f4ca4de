//! [`Version`]: the name of a published state of a skill, which follows from its content.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::stat::Kind;

/// The extended attribute that carries a published tree's version.
///
/// It lies on the directory itself, so that one rename publishes content and version together.
const LABEL: &str = "user.filesecbox.version";

/// Bytes read at once while a file is digested.
const BUFFER_BYTES: usize = 64 * 1024;

/// The first 128 bits of a BLAKE3 digest of a tree, as 32 hexadecimal digits.
///
/// The digest covers kind, path, execute bit and content of every entry (of a link: its target), each directory's
/// entries in order of their names' bytes and directly after the directory itself. Times, owners and other mode bits
/// do not count. `docs/LAYERS.md` has it byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(String);

impl Version {
    /// Reads 32 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()))
            .then(|| Self(text.to_owned()))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for Version {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is no version: 32 hexadecimal digits are"))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.0
    }
}

/// Reads the version of a published tree, or works it out for one that an operator put there by hand.
pub(crate) fn of(tree: &Dir) -> Result<Version> {
    match label(tree)? {
        Some(version) => Ok(version),
        None => digest(tree),
    }
}

/// Reads the version of the entry `name` of `dir`; `None` when it is no directory.
pub(crate) fn of_entry(dir: &Dir, name: &OsStr) -> Result<Option<Version>> {
    match dir.open_dir_entry(name) {
        Ok(tree) => of(&tree).map(Some),
        Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Tells whether the service published this tree, and nobody put it there by hand.
pub(crate) fn is_labelled(tree: &Dir) -> Result<bool> {
    Ok(label(tree)?.is_some())
}

fn label(tree: &Dir) -> Result<Option<Version>> {
    let value = tree.attribute(LABEL)?;
    Ok(value.and_then(|value| String::from_utf8(value).ok()).and_then(|text| Version::parse(&text)))
}

/// Marks a finished tree with its version.
pub(crate) fn set_label(tree: &Dir, version: &Version) -> Result<()> {
    tree.set_attribute(LABEL, version.as_str().as_bytes())
}

/// The content of a whole tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The name of the state.
    pub version: Version,
    /// The whole digest of which the version is the beginning, as 64 hexadecimal digits.
    pub digest: String,
    /// Regular files.
    pub files: usize,
    /// Bytes in them.
    pub bytes: u64,
}

/// Works out the [`Contents`] of a tree from its entries as they are told.
///
/// They are the tree's when the entries of each directory are told in order of their names' bytes and directly
/// after the directory itself. Paths are relative to the tree and separated by `/`.
pub(crate) struct Digester {
    entries: blake3::Hasher,
    files: usize,
    bytes: u64,
}

impl Digester {
    pub(crate) fn new() -> Self {
        Self { entries: blake3::Hasher::new(), files: 0, bytes: 0 }
    }

    /// Adds a regular file of `bytes` bytes with permission bits `mode`; `content` is the digest of its bytes.
    pub(crate) fn file(&mut self, path: &[u8], mode: u32, content: &blake3::Hash, bytes: u64) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.entry(if mode & 0o100 == 0 { b"f" } else { b"x" }, path, content.as_bytes());
    }

    /// Adds a directory, of which the entries follow.
    pub(crate) fn directory(&mut self, path: &[u8]) {
        self.entry(b"d", path, &[]);
    }

    /// Adds a symbolic link.
    pub(crate) fn symlink(&mut self, path: &[u8], target: &[u8]) {
        self.entry(b"l", path, target);
    }

    /// Lengths stand before what varies, so that no two trees feed the same bytes.
    fn entry(&mut self, kind: &[u8; 1], path: &[u8], content: &[u8]) {
        self.entries.update(kind);
        for part in [path, content] {
            self.entries.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            self.entries.update(part);
        }
    }

    /// The contents of the tree that was told.
    pub(crate) fn finish(self) -> Contents {
        let digest = self.entries.finalize().to_hex().to_string();
        let version = Version(digest.chars().take(32).collect());
        Contents { version, digest, files: self.files, bytes: self.bytes }
    }
}

/// Reads a whole tree and works out its version, without regard to its label.
///
/// # Errors
/// [`Error::TooManyEntries`] when it is deeper than any walk goes; [`Error::Io`].
pub fn digest(tree: &Dir) -> Result<Version> {
    contents(tree).map(|contents| contents.version)
}

/// Reads a whole tree and works out its version, without regard to its label, and the size of the tree.
///
/// # Errors
/// As [`digest`].
pub fn contents(tree: &Dir) -> Result<Contents> {
    let mut walk = Walk { digester: Digester::new(), path: Vec::new(), buffer: vec![0; BUFFER_BYTES] };
    walk.directory(tree, DEPTH_MAX)?;
    Ok(walk.digester.finish())
}

struct Walk {
    digester: Digester,
    /// Where it is, from the tree's root.
    path: Vec<u8>,
    buffer: Vec<u8>,
}

impl Walk {
    fn directory(&mut self, dir: &Dir, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        };
        let mut entries = dir.entries()?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let parent_bytes = self.path.len();
        for entry in entries {
            interrupt::check()?;
            if parent_bytes > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(entry.name.as_bytes());
            match entry.kind {
                Kind::File => {
                    let (file, stat) = dir.open_file_entry(&entry.name)?;
                    let (content, bytes) = self.content(&file)?;
                    self.digester.file(&self.path, stat.mode, &content, bytes);
                }
                Kind::Directory => {
                    self.digester.directory(&self.path);
                    self.directory(&dir.open_dir_entry(&entry.name)?, levels)?;
                }
                Kind::Symlink => {
                    self.digester.symlink(&self.path, dir.read_link(&entry.name)?.as_bytes());
                }
                Kind::Other => {}
            }
            self.path.truncate(parent_bytes);
        }
        Ok(())
    }

    /// The digest of a file's bytes, and how many there are.
    fn content(&mut self, mut file: &File) -> Result<(blake3::Hash, u64)> {
        let mut hasher = blake3::Hasher::new();
        loop {
            interrupt::check()?;
            let read = file
                .read(&mut self.buffer)
                .map_err(|error| Error::from_io("read", String::from_utf8_lossy(&self.path), error))?;
            if read == 0 {
                return Ok((hasher.finalize(), hasher.count()));
            }
            hasher.update(self.buffer.get(..read).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tree(files: &[(&str, &str, u32)]) -> Version {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(temp.path()).unwrap();
        for (name, text, mode) in files {
            dir.create_file(OsStr::new(name), *mode).unwrap().write_all(text.as_bytes()).unwrap();
        }
        digest(&dir).unwrap()
    }

    #[test]
    fn a_version_follows_from_names_content_and_execute_bits_alone() {
        let version = tree(&[("a", "1", 0o644), ("b", "2", 0o644)]);
        assert_eq!(version, tree(&[("b", "2", 0o600), ("a", "1", 0o644)]));
        for other in [
            tree(&[("a", "1", 0o755), ("b", "2", 0o644)]),
            tree(&[("a", "12", 0o644), ("b", "", 0o644)]),
            tree(&[("a", "1", 0o644), ("c", "2", 0o644)]),
            tree(&[("a", "1", 0o644)]),
        ] {
            assert_ne!(version, other);
        }
        assert_eq!(Version::parse(version.as_str()), Some(version));
    }
}

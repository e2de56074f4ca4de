//! [`Manifest`]: the files of a skill as a user sees it, each with the digest of its bytes.

use std::io::Read;

use policy::{RelPath, TreeId};
use sha2::{Digest, Sha256};
use storage::tree::Opened;
use storage::{Files, Kind, interrupt};

use super::Service;
use super::error::{Error, Result};

/// The file that describes a skill.
pub const SKILL_MD: &str = "SKILL.md";
/// The most of that file that is kept, in bytes: its front matter is shorter.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Bytes read at once.
const BUFFER_BYTES: usize = 128 * 1024;

/// How much a skill may have.
#[derive(Clone, Copy, Debug)]
pub struct ManifestBounds {
    /// Files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

/// The files of a skill. What the digests name was read while no request changed the skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The beginning of its `SKILL.md`.
    pub head: Vec<u8>,
    /// Every file, sorted by path. A link to a file of the skill is one; other links, sockets and the like are none.
    pub files: Vec<ManifestFile>,
}

/// One file of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Its path from the skill's root.
    pub path: RelPath,
    /// Its size in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

/// Why a skill has no manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoManifest {
    /// It has no file `SKILL.md`, spelled so.
    NoSkillMd,
    /// It has more files than the bounds allow.
    Files,
    /// It has more bytes than the bounds allow.
    Bytes,
    /// A link leads out of it.
    Link,
}

impl Service {
    /// Reads all files of a skill within `bounds`.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`] when the user has no such skill; as [`storage::Files::walk`] and [`storage::Files::open`].
    pub async fn manifest(
        &self,
        id: TreeId,
        bounds: ManifestBounds,
    ) -> Result<std::result::Result<Manifest, NoManifest>> {
        self.look_through(id, move |files| manifest(files, bounds)).await
    }

    /// Reads the beginning of the `SKILL.md` of a skill; nothing when the user sees none.
    ///
    /// # Errors
    /// As [`storage::Files::open`].
    pub async fn skill_head(&self, id: TreeId) -> Result<Option<Vec<u8>>> {
        let path = RelPath::parse(SKILL_MD).map_err(|error| Error::Invalid(error.to_string()))?;
        self.look_through(id, move |files| {
            let Some(Opened { file, .. }) = open(files, &path)? else { return Ok(None) };
            let mut head = Vec::new();
            let read = file.take(HEAD_BYTES_MAX as u64).read_to_end(&mut head);
            read.map_err(|error| storage::Error::from_io("read", path.as_str(), error))?;
            Ok(Some(head))
        })
        .await
    }
}

fn manifest(files: &Files, bounds: ManifestBounds) -> Result<std::result::Result<Manifest, NoManifest>> {
    let walked = match files.walk(&RelPath::root(), usize::MAX, true) {
        Err(storage::Error::TooManyEntries(_)) => return Ok(Err(NoManifest::Files)),
        walked => walked?,
    };
    // Before anything is read for nothing; a link may lead to more.
    let sizes = walked.iter().filter(|entry| entry.kind == Kind::File);
    let sizes = sizes.filter_map(|entry| Some(entry.stat.as_ref()?.size));
    if sizes.fold(0, u64::saturating_add) > bounds.bytes {
        return Ok(Err(NoManifest::Bytes));
    }
    let mut listed = Vec::new();
    let mut head = None;
    let mut left = bounds.bytes;
    // One after the other: a skill has more files than one request may keep open.
    for entry in walked.into_iter().filter(|entry| matches!(entry.kind, Kind::File | Kind::Symlink)) {
        interrupt::check()?;
        let file = match files.open(&entry.path) {
            Ok(Opened { file, .. }) => file,
            Err(storage::Error::Escape(_)) => return Ok(Err(NoManifest::Link)),
            Err(error) if is_no_file(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        if listed.len() == bounds.files {
            return Ok(Err(NoManifest::Files));
        }
        let path = entry.path;
        let begin = if path.as_str() == SKILL_MD { Some(head.insert(Vec::new())) } else { None };
        let Some((bytes, sha256)) = digest(file, &path, left, begin)? else {
            return Ok(Err(NoManifest::Bytes));
        };
        left -= bytes;
        listed.push(ManifestFile { path, bytes, sha256 });
    }
    Ok(head.map(|head| Manifest { head, files: listed }).ok_or(NoManifest::NoSkillMd))
}

/// The size and the digest of a file of at most `most` bytes, whose first ones are put into `begin`; nothing when a command has
/// made it larger.
fn digest(
    mut file: impl Read,
    path: &RelPath,
    most: u64,
    mut begin: Option<&mut Vec<u8>>,
) -> Result<Option<(u64, [u8; 32])>> {
    let (mut hasher, mut bytes) = (Sha256::new(), 0_u64);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        interrupt::check()?;
        let read =
            file.read(&mut buffer).map_err(|error| storage::Error::from_io("read", path.as_str(), error))?;
        let piece = buffer.get(..read).unwrap_or_default();
        bytes += piece.len() as u64;
        if bytes > most {
            return Ok(None);
        }
        if piece.is_empty() {
            return Ok(Some((bytes, hasher.finalize().into())));
        }
        hasher.update(piece);
        if let Some(begin) = &mut begin {
            begin.extend(piece.iter().take(HEAD_BYTES_MAX.saturating_sub(begin.len())));
        }
    }
}

/// Opens a file; nothing where none is.
fn open(files: &Files, path: &RelPath) -> Result<Option<Opened>> {
    match files.open(path) {
        Ok(opened) => Ok(Some(opened)),
        Err(storage::Error::Escape(_)) => Ok(None),
        Err(error) if is_no_file(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Tells whether `error` says that there is no file: it has gone, or a link leads to nothing or to a directory.
fn is_no_file(error: &storage::Error) -> bool {
    matches!(
        error,
        storage::Error::NotFound(_)
            | storage::Error::IsDirectory(_)
            | storage::Error::NotADirectory(_)
            | storage::Error::NotAFile(_)
    )
}

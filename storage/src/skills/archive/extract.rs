//! [`extract()`]: writes one planned skill beneath a directory.

use std::ffi::OsStr;
use std::fs::File;

use policy::RelPath;

use super::parallel::{self, Extent};
use super::plan::{PlannedSkill, WholeTree};
use super::source::Source;
use super::tree::{Directory, Node, PackedFile};
use super::unpack::Unpacker;
use super::writing::Writing;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{ArchiveError, Error, Result};
use crate::interrupt;
use crate::layers::sharing::Predecessor;
use crate::version::{Contents, Digester};

/// Window for reading data.
const WINDOW_BYTES: usize = 256 * 1024;

/// Mode of every directory made.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;

/// Writes the files and directories of `skill` into the empty directory `into`, and tells what they are, worked out
/// while their bytes passed.
///
/// `archive` is the file that was planned. Files get the mode and, where the archive has one, the modification
/// time that were planned; nothing is made durable, which is the publisher's one `syncfs`. A large skill is written
/// by up to four threads. With the version that `skill` comes after, `predecessor`, a file that has the same content and mode there is
/// shared with it, and keeps its modification time. After an error `into` holds a part of the skill and is to be removed.
///
/// # Errors
/// [`Error::Archive`] when data is damaged or not as declared, naming the first such file in the order of the tree
/// however many threads there are; [`Error::AlreadyExists`] when `into` was not empty; [`Error::TooManyEntries`] when
/// the skill is deeper than any walk goes; [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
pub fn extract(
    archive: &File,
    skill: &PlannedSkill,
    into: &Dir,
    predecessor: Option<&Predecessor>,
) -> Result<Contents> {
    let extent = Extent { files: skill.files, bytes: skill.bytes };
    let entries = extract_tree(archive, &skill.tree, extent, into, predecessor)?;
    let mut digester = Digester::new();
    for entry in &entries {
        let path = entry.path.as_str().as_bytes();
        match &entry.content {
            Content::Directory => digester.directory(path),
            Content::File { packed, digest } => digester.file(path, packed.mode, digest, packed.size),
        }
    }
    Ok(digester.finish())
}

/// A file or directory that was written.
pub struct Written {
    /// Its path in the archive.
    pub path: RelPath,
    /// What a file is; `None` of a directory.
    pub file: Option<WrittenFile>,
}

/// A file that was written.
#[derive(Clone, Copy)]
pub struct WrittenFile {
    /// Permission bits, 0644 or 0755.
    pub mode: u32,
    /// Its length in bytes.
    pub size: u64,
    /// The modification time that it was given, in seconds since 1970; where the archive has none, it is that of the writing.
    pub modified: Option<i64>,
    /// The BLAKE3 of its bytes.
    pub digest: blake3::Hash,
}

/// Writes everything in an archive, and tells what that is, directories before what is in them.
///
/// # Errors
/// As [`extract`].
pub fn extract_whole(archive: &File, whole: &WholeTree, into: &Dir) -> Result<Vec<Written>> {
    let extent = Extent { files: whole.files, bytes: whole.bytes };
    let entries = extract_tree(archive, &whole.tree, extent, into, None)?;
    let written = |Entry { path, content }| match content {
        Content::Directory => Written { path, file: None },
        Content::File { packed: &PackedFile { mode, size, modified, .. }, digest } => {
            Written { path, file: Some(WrittenFile { mode, size, modified, digest }) }
        }
    };
    Ok(entries.into_iter().map(written).collect())
}

fn extract_tree<'plan>(
    archive: &File,
    tree: &'plan Directory,
    extent: Extent,
    into: &Dir,
    predecessor: Option<&Predecessor>,
) -> Result<Vec<Entry<'plan>>> {
    let mut entries = Vec::new();
    make_directories(tree, into, &RelPath::root(), DEPTH_MAX, &mut entries)?;
    let begin = || {
        let source = Source::new(archive, WINDOW_BYTES)?;
        Ok(Writer { source, unpacker: Unpacker::new(), into, predecessor })
    };
    parallel::each(&mut entries, extent, begin, |writer: &mut Writer<'_>, Entry { path, content }| {
        if let Content::File { packed, digest } = content {
            *digest = writer.file(path, packed)?;
        }
        Ok(())
    })?;
    Ok(entries)
}

/// The entries to be written.
struct Entry<'plan> {
    path: RelPath,
    content: Content<'plan>,
}

enum Content<'plan> {
    Directory,
    File {
        packed: &'plan PackedFile,
        /// Of its bytes; zeros until they are written.
        digest: blake3::Hash,
    },
}

/// Makes every directory of `tree` and lists everything in it in the order in which a version is worked out.
///
/// One descriptor is open per level.
fn make_directories<'plan>(
    tree: &'plan Directory,
    into: &Dir,
    path: &RelPath,
    levels: usize,
    entries: &mut Vec<Entry<'plan>>,
) -> Result<()> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(Error::TooManyEntries(DEPTH_MAX));
    };
    for (name, node) in &tree.children {
        let path = path.join(name)?;
        match node {
            Node::File(packed) => {
                let digest = blake3::Hash::from_bytes([0; 32]);
                entries.push(Entry { path, content: Content::File { packed, digest } });
            }
            // Resolved while planning.
            Node::Link(_) => return Err(ArchiveError::Changed.into()),
            Node::Directory(below) => {
                let made = into.create_dir(OsStr::new(name), DIRECTORY_MODE)?;
                entries.push(Entry { path: path.clone(), content: Content::Directory });
                make_directories(below, &made, &path, levels, entries)?;
            }
        }
    }
    Ok(())
}

/// One thread's part.
struct Writer<'run> {
    source: Source<'run>,
    unpacker: Unpacker,
    into: &'run Dir,
    predecessor: Option<&'run Predecessor>,
}

impl Writer<'_> {
    /// Returns the digest of the file's bytes.
    fn file(&mut self, path: &RelPath, packed: &PackedFile) -> Result<blake3::Hash> {
        let mut writing = Writing::begin(self.predecessor, self.into, path, packed)?;
        let mut hasher = blake3::Hasher::new();
        self.unpacker.unpack(&mut self.source, packed, path.as_str(), |chunk| {
            interrupt::check()?;
            hasher.update(chunk);
            writing.take(chunk)
        })?;
        writing.end()?;
        Ok(hasher.finalize())
    }
}

//! [`plan()`]: everything decided about an archive before the first byte is written.

use std::fs::File;

use policy::{ArchiveLimits, RelPath, SkillId};

use super::charset::{self, Charset, NameEncoding};
use super::entry::{self, RawEntry};
use super::name::{self, Becomes};
use super::shape::{self, Skipped, SkippedList, WRAPPERS_MAX};
use super::source::Source;
use super::tree::{Directory, LEVELS_MAX, PackedFile};
use super::unpack::Unpacker;
use super::{end, layout};
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};
use crate::skills::metadata;

/// Window for reading headers: a small one, because data lies between them.
const WINDOW_BYTES: usize = 4096;

/// How an archive is read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The limits of the archive.
    pub limits: ArchiveLimits,
    /// The encoding of unmarked names.
    pub charset: Charset,
    /// Names a skill whose files lie in the archive's root: the stem of the upload's file name.
    pub fallback_name: Option<String>,
}

/// The entries of an archive, and those of them that are taken.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The skills, at least one, sorted by id; ids are distinct.
    pub skills: Vec<PlannedSkill>,
    /// How unmarked names were read.
    pub charset: NameEncoding,
    /// The entries that are not taken: the first 100 paths.
    pub skipped: Vec<Skipped>,
    /// How many paths are not taken.
    pub skipped_total: usize,
}

/// One skill of an archive.
#[derive(Clone, Debug)]
pub struct PlannedSkill {
    /// Its id.
    pub id: SkillId,
    /// Files, at any depth.
    pub files: usize,
    /// Unpacked size of all files.
    pub bytes: u64,
    pub(super) tree: Directory,
}

/// Reads the structure of the archive in `file` and divides it into skills, writing nothing.
///
/// `file` is read at offsets; its position is neither used nor moved. Memory is bounded by the limits: at most
/// `limits.entries` entries of `limits.path_bytes` bytes each.
///
/// # Errors
/// [`Error::Archive`](crate::Error::Archive) with the first rule broken; [`Error::Io`](crate::Error::Io).
pub fn plan(file: &File, options: &Options) -> Result<Plan> {
    let limits = &options.limits;
    let mut source = Source::new(file, WINDOW_BYTES)?;
    let directory = end::find(&mut source)?;
    let entries = entry::read_all(&mut source, directory, limits)?;
    let data_starts = layout::check(&mut source, directory, &entries)?;
    let (names, charset) = charset::decode_all(&entries, options.charset)?;
    let paths = name::all(&entries, &names, limits)?;

    let mut skipped = SkippedList::default();
    let mut builder = Builder { limits, root: Directory::default(), nodes: 0, bytes: 0 };
    for ((entry, data_at), (path, becomes)) in entries.iter().zip(data_starts).zip(&paths) {
        match shape::junk(path.as_str()) {
            Some(reason) => skipped.add(path.as_str(), reason),
            None => builder.add(entry, data_at, path, *becomes)?,
        }
    }
    let front_matter_name = |skill_md: &PackedFile| front_matter_name(&mut source, skill_md);
    let divided =
        shape::divide(builder.root, options.fallback_name.as_deref(), front_matter_name, &mut skipped)?;
    let mut skills = divided
        .into_iter()
        .map(|(id, tree)| planned(id, tree, limits))
        .collect::<Result<Vec<_>, ArchiveError>>()?;
    skills.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(Plan { skills, charset, skipped: skipped.listed, skipped_total: skipped.total })
}

/// Collects files and directories under the limits.
struct Builder<'limits> {
    limits: &'limits ArchiveLimits,
    root: Directory,
    nodes: usize,
    bytes: u64,
}

impl Builder<'_> {
    fn add(
        &mut self,
        entry: &RawEntry,
        data_at: u64,
        path: &RelPath,
        becomes: Becomes,
    ) -> Result<(), ArchiveError> {
        let limits = self.limits;
        let shown = || excerpt(path.as_str().as_bytes());
        // Wrappers and repetitions are taken off later; the exact depth is checked then.
        let segments_max = limits.depth.saturating_add(2 * WRAPPERS_MAX + 2).min(LEVELS_MAX);
        if path.segments().count() > segments_max {
            return Err(ArchiveError::TooDeep { name: shown(), limit: limits.depth });
        }
        let file = match becomes {
            Becomes::Directory => None,
            Becomes::File { mode } => {
                self.check_size(entry, shown)?;
                Some(PackedFile {
                    data_at,
                    packed: entry.packed,
                    size: entry.size,
                    crc: entry.crc,
                    method: entry.method,
                    mode,
                    modified: entry.modified,
                })
            }
        };
        self.nodes += self.root.insert(path, file)?;
        if self.nodes > limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        Ok(())
    }

    /// Checks the declared size. Unpacking refuses a byte more than declared, so that what holds here holds for
    /// what is written.
    fn check_size(&mut self, entry: &RawEntry, shown: impl Fn() -> String) -> Result<(), ArchiveError> {
        let limits = self.limits;
        if entry.size > limits.file_bytes {
            return Err(ArchiveError::FileTooLarge {
                name: shown(),
                bytes: entry.size,
                limit: limits.file_bytes,
            });
        }
        self.bytes = self.bytes.saturating_add(entry.size);
        if self.bytes > limits.total_bytes {
            return Err(ArchiveError::TotalTooLarge { limit: limits.total_bytes });
        }
        let is_large = entry.size > limits.ratio_from_bytes;
        if is_large && entry.size > entry.packed.saturating_mul(limits.ratio) {
            return Err(ArchiveError::Ratio { name: shown(), limit: limits.ratio });
        }
        Ok(())
    }
}

fn planned(id: SkillId, tree: Directory, limits: &ArchiveLimits) -> Result<PlannedSkill, ArchiveError> {
    let extent = tree.extent();
    if extent.levels > limits.depth {
        return Err(ArchiveError::TooDeep { name: id.to_string(), limit: limits.depth });
    }
    Ok(PlannedSkill { id, files: extent.files, bytes: extent.bytes, tree })
}

/// The `name` in the front matter of a packed SKILL.md.
fn front_matter_name(source: &mut Source<'_>, skill_md: &PackedFile) -> Result<Option<String>> {
    let mut head = Vec::new();
    Unpacker::new().unpack(source, skill_md, "SKILL.md", |bytes| {
        let room = metadata::HEADER_BYTES_MAX.saturating_sub(head.len());
        head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        Ok(())
    })?;
    Ok(metadata::declared_name(&head))
}

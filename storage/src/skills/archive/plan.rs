//! [`plan()`]: everything decided about an archive before the first byte is written.

use std::collections::HashMap;
use std::fs::File;

use policy::skill_md::{self, Metadata};
use policy::{ArchiveLimits, RelPath, SkillId};

use super::charset::{self, Charset, NameEncoding};
use super::entry::{self, RawEntry};
use super::links::{self, Budget};
use super::manifest::Plugins;
use super::name::{self, Becomes};
use super::naming::{self, Named};
use super::reader::Reader;
use super::shape::{self, Candidate, Divided};
use super::skipped::{SkipReason, Skipped, SkippedList, junk};
use super::source::Source;
use super::tree::{Directory, LEVELS_MAX, Node, PackedFile};
use super::{end, layout, tar};
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};
use crate::stat::Use;

/// Window for reading headers: a small one, because data lies between them.
const WINDOW_BYTES: usize = 4096;

/// Nested skills that a doubt names.
const NESTED_SHOWN: usize = 3;

/// How an archive is read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The limits of the archive.
    pub limits: ArchiveLimits,
    /// The encoding of unmarked names.
    pub charset: Charset,
    /// The name of the uploaded file: it names a skill whose files lie in the archive's root and that has no valid name.
    pub file_name: Option<String>,
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
    /// What is wrong with the archive as a whole, one sentence each.
    pub warnings: Vec<String>,
}

/// One skill of an archive.
#[derive(Clone, Debug)]
pub struct PlannedSkill {
    /// Its id.
    pub id: SkillId,
    /// Its folder's path in the archive; empty for the root.
    pub path: String,
    /// The plugin it belongs to, by a manifest in the archive.
    pub plugin: Option<String>,
    /// What it says of itself, and the rules of the specification that it breaks.
    pub metadata: Metadata,
    /// What the person who packed it may have meant otherwise, one sentence each.
    pub doubts: Vec<String>,
    /// Files, at any depth.
    pub files: usize,
    /// Unpacked size of all files.
    pub bytes: u64,
    pub(super) tree: Directory,
}

/// Reads the structure of the archive in `file`, a ZIP or a tar, and divides it into skills, writing nothing.
///
/// `file` is read at offsets; its position is neither used nor moved. Memory is bounded by the limits: at most
/// `limits.entries` entries of `limits.path_bytes` bytes each. Sizes and depths count in skills only: what lies beside
/// them is never unpacked.
///
/// # Errors
/// [`Error::Archive`](crate::Error::Archive) with the first rule broken; [`Error::Io`](crate::Error::Io).
pub fn plan(file: &File, options: &Options) -> Result<Plan> {
    plan_beside(file, options, &mut |_, _| Ok(false))
}

/// The same, for a place that has skills already: `is_known` tells whether one of an id declares a name in its front
/// matter.
///
/// # Errors
/// As [`plan`]; and what `is_known` answers.
pub fn plan_beside(
    file: &File,
    options: &Options,
    is_known: &mut dyn FnMut(&SkillId, &str) -> Result<bool>,
) -> Result<Plan> {
    let limits = &options.limits;
    let mut source = Source::new(file, WINDOW_BYTES)?;
    let listed = Listed::read(&mut source, limits)?;
    let (names, charset) = charset::decode_all(&listed.entries, options.charset)?;
    let paths = name::all(&listed.entries, &names, limits)?;
    let mut skipped = SkippedList::default();
    let mut reader = Reader::new(source);
    let root = listed.tree(&paths, charset, limits, &mut reader, &mut skipped)?;
    let mut plugins = Plugins::read(&root, &mut |file, name| reader.whole(file, name))?;
    let Divided { skills, is_marked } = shape::divide(root, &mut skipped)?;
    let mut warnings = std::mem::take(&mut plugins.warnings);
    if !is_marked {
        warnings.push(
            "the archive has no `SKILL.md`: each directory of its root became a skill by its name".to_owned(),
        );
    }
    let skills = skills_of(skills, &plugins, options, &mut reader, is_known, &mut skipped)?;
    Ok(Plan { skills, charset, skipped: skipped.listed, skipped_total: skipped.total, warnings })
}

/// Everything in an archive, as one tree.
#[derive(Clone, Debug)]
pub struct WholeTree {
    /// Files, at any depth.
    pub files: usize,
    /// Unpacked size of all files.
    pub bytes: u64,
    pub(super) tree: Directory,
}

impl WholeTree {
    /// The room that it is taken to need when it is unpacked: whole blocks for each file and each directory, its own included.
    pub(crate) fn taken(&self) -> Use {
        fn below(directory: &Directory) -> Use {
            directory.children.values().fold(Use::DIRECTORY, |taken, node| {
                taken.plus(match node {
                    Node::Directory(directory) => below(directory),
                    Node::File(file) => Use::of_file(file.size),
                    Node::Link(_) => Use::default(),
                })
            })
        }
        below(&self.tree)
    }

    /// Every path in it, directories before what is in them; of a file its permission bits, of a directory `None`.
    ///
    /// # Errors
    /// [`Error::Path`](crate::Error::Path), which a tree that was planned does not have.
    pub fn paths(&self) -> Result<Vec<(RelPath, Option<u32>)>> {
        fn walk(
            directory: &Directory,
            above: &RelPath,
            paths: &mut Vec<(RelPath, Option<u32>)>,
        ) -> Result<()> {
            for (name, node) in &directory.children {
                let path = above.join(name)?;
                match node {
                    Node::File(file) => paths.push((path, Some(file.mode))),
                    Node::Directory(below) => {
                        paths.push((path.clone(), None));
                        walk(below, &path, paths)?;
                    }
                    // Resolved while planning.
                    Node::Link(_) => return Err(ArchiveError::Changed.into()),
                }
            }
            Ok(())
        }
        let mut paths = Vec::new();
        walk(&self.tree, &RelPath::root(), &mut paths)?;
        Ok(paths)
    }
}

/// Reads the structure of an archive as [`plan`] does, but takes everything in it as it is, without looking for skills.
///
/// # Errors
/// As [`plan`].
pub fn plan_whole(file: &File, options: &Options) -> Result<WholeTree> {
    let limits = &options.limits;
    let mut source = Source::new(file, WINDOW_BYTES)?;
    let listed = Listed::read(&mut source, limits)?;
    let (names, charset) = charset::decode_all(&listed.entries, options.charset)?;
    let paths = name::all(&listed.entries, &names, limits)?;
    let mut reader = Reader::new(source);
    let root = listed.tree(&paths, charset, limits, &mut reader, &mut SkippedList::default())?;
    let tree = links::settle("", &root, &mut Budget::new(limits))?;
    let extent = tree.extent();
    if extent.files == 0 {
        return Err(ArchiveError::Empty.into());
    }
    Ok(WholeTree { files: extent.files, bytes: extent.bytes, tree })
}

/// The table of contents of an archive, of either format.
struct Listed {
    entries: Vec<RawEntry>,
    starts: Vec<u64>,
    /// Where links of a tar lead; in a ZIP that is their content.
    targets: Vec<Option<Vec<u8>>>,
    has_checksums: bool,
}

impl Listed {
    fn read(source: &mut Source<'_>, limits: &ArchiveLimits) -> Result<Self> {
        let is_zip = source.bytes(0, 4)?.is_some_and(|bytes| bytes.starts_with(b"PK\x03\x04"));
        if tar::is_tar(source)? {
            if is_zip {
                let fault = "the file is a ZIP as well";
                return Err(ArchiveError::BadTar { index: 0, fault }.into());
            }
            let tar::Listing { entries, starts, targets } = tar::read_all(source, limits)?;
            return Ok(Self { entries, starts, targets, has_checksums: false });
        }
        let directory = end::find(source)?;
        let entries = entry::read_all(source, directory, limits)?;
        let starts = layout::check(source, directory, &entries)?;
        let targets = vec![None; entries.len()];
        Ok(Self { entries, starts, targets, has_checksums: true })
    }

    /// The entries as a tree, without what operating systems leave behind.
    fn tree(
        &self,
        paths: &[(RelPath, Becomes)],
        charset: NameEncoding,
        limits: &ArchiveLimits,
        reader: &mut Reader<'_>,
        skipped: &mut SkippedList,
    ) -> Result<Directory> {
        let mut root = Directory::default();
        let mut nodes = 0;
        for (index, (path, becomes)) in paths.iter().enumerate() {
            if path.is_root() {
                continue;
            }
            if let Some(reason) = junk(path.as_str()) {
                skipped.add(path.as_str(), reason);
                continue;
            }
            if path.segments().count() > LEVELS_MAX {
                let name = excerpt(path.as_str().as_bytes());
                return Err(ArchiveError::TooDeep { name, limit: limits.depth }.into());
            }
            let leaf = match becomes {
                Becomes::Directory => None,
                Becomes::File { mode } => self.file(index, *mode).map(Node::File),
                Becomes::Link => {
                    let target = self.target(index, path, limits, reader)?;
                    Some(Node::Link(charset::text(&target, charset)))
                }
            };
            nodes += root.insert(path, leaf)?;
            if nodes > limits.entries {
                return Err(ArchiveError::TooManyEntries { limit: limits.entries }.into());
            }
        }
        Ok(root)
    }

    /// Where a link leads: its content in a ZIP, a field of its header in a tar.
    fn target(
        &self,
        index: usize,
        path: &RelPath,
        limits: &ArchiveLimits,
        reader: &mut Reader<'_>,
    ) -> Result<Vec<u8>> {
        let target = match (self.targets.get(index), self.file(index, 0)) {
            (Some(Some(target)), _) => target.clone(),
            (_, Some(file)) if file.size <= limits.path_bytes as u64 => reader.whole(&file, path.as_str())?,
            _ => vec![0; limits.path_bytes + 1],
        };
        if target.len() > limits.path_bytes {
            let name = excerpt(path.as_str().as_bytes());
            return Err(ArchiveError::PathTooLong { name, limit: limits.path_bytes }.into());
        }
        Ok(target)
    }

    fn file(&self, index: usize, mode: u32) -> Option<PackedFile> {
        let (entry, start) = (self.entries.get(index)?, self.starts.get(index)?);
        Some(PackedFile {
            data_at: *start,
            packed: entry.packed,
            size: entry.size,
            crc: self.has_checksums.then_some(entry.crc),
            method: entry.method,
            mode,
            modified: entry.modified,
        })
    }
}

/// Names, describes and counts the skills of an archive, sorted by id.
fn skills_of(
    candidates: Vec<Candidate>,
    plugins: &Plugins,
    options: &Options,
    reader: &mut Reader<'_>,
    is_known: &mut dyn FnMut(&SkillId, &str) -> Result<bool>,
    skipped: &mut SkippedList,
) -> Result<Vec<PlannedSkill>> {
    let mut budget = Budget::new(&options.limits);
    let mut settled = Vec::with_capacity(candidates.len());
    for Candidate { path, tree } in candidates {
        let tree = links::settle(&path, &tree, &mut budget)?;
        let head = marker(&tree).map(|(name, file)| reader.head(file, &below(&path, name))).transpose()?;
        let declared = head.and_then(|head| skill_md::declared_name(&head));
        let file_name = options.file_name.as_deref();
        let named = Named::alone(&path, declared.as_deref(), file_name, plugins.of(&path), is_known)?;
        settled.push((named, tree));
    }
    drop_copies(&mut settled, reader, skipped)?;
    let (mut names, trees): (Vec<Named>, Vec<Directory>) = settled.into_iter().unzip();
    naming::settle(&mut names)?;
    let mut skills = Vec::with_capacity(names.len());
    for (Named { path, id, plugin, doubt, .. }, tree) in names.into_iter().zip(trees) {
        let mut head = |named: Option<(&str, &PackedFile)>| {
            named.map(|(name, file)| reader.head(file, &below(&path, name))).transpose()
        };
        let skill_md = head(marker(&tree))?;
        let readme = skill_md::marker(tree.files().map(|(name, _)| name)).readme;
        let readme = head(readme.and_then(|name| tree.files().find(|(other, _)| *other == name)))?;
        let metadata = skill_md::parse(skill_md.as_deref(), readme.as_deref(), id.as_str());
        let doubts = doubt.into_iter().chain(doubts(&tree)).collect();
        let extent = tree.extent();
        let (files, bytes) = (extent.files, extent.bytes);
        skills.push(PlannedSkill { id, path, plugin, metadata, doubts, files, bytes, tree });
    }
    skills.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(skills)
}

/// The file that describes the skill `tree`.
fn marker(tree: &Directory) -> Option<(&str, &PackedFile)> {
    let name = *shape::markers(tree).first()?;
    tree.files().find(|(other, _)| *other == name)
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// What of a skill's shape may have been meant otherwise.
fn doubts(tree: &Directory) -> Vec<String> {
    let mut doubts = Vec::new();
    if let [chosen, other, ..] = shape::markers(tree).as_slice() {
        doubts.push(format!("it has both `{chosen}` and `{other}`: `{chosen}` describes it"));
    }
    let (paths, count) = shape::nested(tree, NESTED_SHOWN);
    if count > 0 {
        let shown: Vec<String> = paths.iter().map(|path| format!("`{}`", excerpt(path.as_bytes()))).collect();
        let more = if count > paths.len() { ", …" } else { "" };
        let plural = if count == 1 { "a further `SKILL.md`" } else { "further `SKILL.md`s" };
        doubts.push(format!("it has {plural} in {}{more}, which belong to it", shown.join(", ")));
    }
    doubts
}

/// Keeps of several skills of one id and one content the first that no hidden folder holds.
fn drop_copies(
    skills: &mut Vec<(Named, Directory)>,
    reader: &mut Reader<'_>,
    skipped: &mut SkippedList,
) -> Result<()> {
    let mut same: HashMap<SkillId, Vec<usize>> = HashMap::new();
    for (index, (named, _)) in skills.iter().enumerate() {
        same.entry(named.id.clone()).or_default().push(index);
    }
    let is_hidden = |path: &str| path.split('/').any(|segment| segment.starts_with('.'));
    let mut dropped = vec![false; skills.len()];
    for mut indices in same.into_values().filter(|indices| indices.len() > 1) {
        indices.sort_by_key(|index| skills.get(*index).is_some_and(|(named, _)| is_hidden(&named.path)));
        let mut kept = Vec::new();
        for index in indices {
            let Some((_, tree)) = skills.get(index) else { continue };
            let digest = reader.digest(tree)?;
            if kept.contains(&digest) {
                if let Some(drop) = dropped.get_mut(index) {
                    *drop = true;
                }
            } else {
                kept.push(digest);
            }
        }
    }
    let mut at = 0;
    skills.retain(|(named, _)| {
        let is_dropped = dropped.get(at).copied().unwrap_or_default();
        at += 1;
        if is_dropped {
            skipped.add(&named.path, SkipReason::Duplicate);
        }
        !is_dropped
    });
    Ok(())
}

//! [`Skills::sides`]: a file of a skill as the application has it and as a user has it.
//! [`Skills::changed_files`]: which files those are.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;

use policy::{RelPath, TreeId};

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::tree::Tree;
use crate::skills::Skills;
use crate::skills::status::{Changed, SkillStatus};
use crate::stat::{Kind, Stat};

/// One side of a changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Whether its owner may execute it.
    pub is_executable: bool,
    /// Its content; `None` when that is larger than was asked for.
    pub content: Option<Vec<u8>>,
}

/// Both sides of a changed file. A side is `None` when it has no regular file of that path; links are not followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// The application's current version.
    pub before: Option<Side>,
    /// The kind of the application's entry; `None` for no entry.
    pub before_kind: Option<Kind>,
    /// The file as the user sees it.
    pub after: Option<Side>,
    /// The kind of the user's entry; `None` for no entry.
    pub after_kind: Option<Kind>,
}

impl Skills {
    /// As [`Skills::status`], but naming each file of a directory that the user no longer has, instead of the directory, and
    /// beside what took its place: so that a caller who applies every change to the application's version gets what the
    /// user sees.
    ///
    /// # Errors
    /// As [`Skills::status`]; [`Error::TooManyEntries`] for more files than a tree may have.
    pub fn changed_files(&self, id: &TreeId) -> Result<SkillStatus> {
        let TreeId::Skill(_, agent, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let _held = self.store.locks().read(id);
        let mut status = self.status_held(id)?;
        let Some(baseline) = self.store.baseline_dir(agent, skill)? else { return Ok(status) };
        let tree = self.store.tree(id)?;
        let most = self.store.options().files.tree_entries;
        let mut files = Files { found: Vec::new(), left: most, most };
        for changed in std::mem::take(&mut status.changes) {
            let after = match RelPath::parse(&changed.path) {
                Ok(path)
                    if entry(&baseline, &path)?.is_some_and(|(_, stat)| stat.kind == Kind::Directory) =>
                {
                    Some((seen(tree.as_ref(), &path)?, path))
                }
                _ => None,
            };
            match after {
                // Of a directory that is still one, what changed in it is named already.
                Some((after, path)) if after != Some(Kind::Directory) => {
                    let before = files.found.len();
                    files.below(&open_directory(&baseline, &path)?, &changed, DEPTH_MAX)?;
                    if after.is_some() || files.found.len() == before {
                        files.found.push(changed);
                    }
                }
                _ => files.found.push(changed),
            }
        }
        files.found.sort_unstable();
        status.changes = files.found;
        Ok(status)
    }

    /// Reads the file `path` of the skill `id` on both sides, each up to `most` bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Io`].
    pub fn sides(&self, id: &TreeId, path: &RelPath, most: u64) -> Result<Sides> {
        let TreeId::Skill(_, agent, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let _held = self.store.locks().read(id);
        let mut sides = Sides::default();
        if let Some(dir) = self.store.baseline_dir(agent, skill)?
            && let Some((parent, stat)) = entry(&dir, path)?
        {
            sides.before_kind = Some(stat.kind);
            let name = OsStr::new(path.file_name().unwrap_or_default());
            if stat.kind == Kind::File {
                sides.before = side(parent.open_file_entry(name), path, most)?;
            }
        }
        let tree = self.store.tree(id)?;
        tree.stat(&RelPath::root())?;
        sides.after_kind = seen(tree.as_ref(), path)?;
        if sides.after_kind == Some(Kind::File) {
            sides.after = side(tree.open(path).map(|opened| (opened.file, opened.stat)), path, most)?;
        }
        Ok(sides)
    }
}

/// The files below directories that are gone.
struct Files {
    found: Vec<Changed>,
    left: usize,
    most: usize,
}

impl Files {
    /// Adds every file and link below `dir`, which lies where `changed` says.
    fn below(&mut self, dir: &Dir, changed: &Changed, levels: usize) -> Result<()> {
        let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
        for entry in dir.first_entries(self.left.saturating_add(1))? {
            interrupt::check()?;
            self.left = self.left.checked_sub(1).ok_or(Error::TooManyEntries(self.most))?;
            let path = format!("{}/{}", changed.path, entry.name.to_string_lossy());
            let changed = Changed { path, change: changed.change };
            match entry.kind {
                Kind::Directory => self.below(&dir.open_dir_entry(&entry.name)?, &changed, levels)?,
                _ => self.found.push(changed),
            }
        }
        Ok(())
    }
}

/// The user's entry at `path`, where a file may stand for a directory above it.
pub(super) fn seen(tree: &dyn Tree, path: &RelPath) -> Result<Option<Kind>> {
    match tree.stat_entry(path) {
        Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => Ok(None),
        seen => Ok(seen?.map(|(stat, _)| stat.kind)),
    }
}

/// The entry of `dir` at `path`, and the directory it lies in; links are not followed.
fn entry(dir: &Dir, path: &RelPath) -> Result<Option<(Dir, Stat)>> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let above = match open_directory(dir, &above) {
        Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => return Ok(None),
        above => above?,
    };
    let stat = above.stat_entry(OsStr::new(name))?;
    Ok(stat.map(|stat| (above, stat)))
}

/// Opens the directory `path` in `dir`; a link is none.
fn open_directory(dir: &Dir, path: &RelPath) -> Result<Dir> {
    path.segments().try_fold(dir.reopen()?, |dir, name| dir.open_dir_entry(OsStr::new(name)))
}

pub(super) fn side(opened: Result<(File, Stat)>, path: &RelPath, most: u64) -> Result<Option<Side>> {
    let (file, stat) = match opened {
        // The entry is of another kind by now.
        Err(
            Error::NotFound(_)
            | Error::IsDirectory(_)
            | Error::NotADirectory(_)
            | Error::NotAFile(_)
            | Error::Escape(_),
        ) => return Ok(None),
        opened => opened?,
    };
    let is_executable = stat.mode & 0o100 != 0;
    if stat.size > most {
        return Ok(Some(Side { bytes: stat.size, is_executable, content: None }));
    }
    let mut content = Vec::new();
    // One byte more than allowed: a command may write meanwhile.
    file.take(most.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(|error| Error::from_io("read", path, error))?;
    let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let content = (bytes <= most).then_some(content);
    Ok(Some(Side { bytes, is_executable, content }))
}

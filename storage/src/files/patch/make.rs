//! Making a patch in a tree.
//!
//! Everything that can fail is done before anything is visible: the sources are read, the new texts worked out and
//! written aside. Then, alone on the tree, the sources are compared with what was read, the quota is asked once, what is
//! to be done is written down ([`Redo`]), and the files are put in their places one after another. Should one of those
//! steps fail, the former ones are taken back; a file of the baseline that was copied up for them then stays in the
//! overlay as it is in the baseline. A service that dies between those steps does them at its next start. A reader may
//! see some files changed and others not yet: the kernel has no way to rename several at once.

use std::collections::HashMap;
use std::fs::File;
use std::io::Seek;

use policy::{RelPath, TreeId};

use super::redo::Redo;
use super::{Action, FilePatch, hunks};
use crate::core::growth::Growth;
use crate::encoding::{self, TextEncoding};
use crate::error::{Error, Result, Unmet};
use crate::files::encode;
use crate::files::{Condition, Files, dirs_to_make, read_at_most};
use crate::interrupt;
use crate::layers::copy::copy_file;
use crate::layers::deferred::Deferred;
use crate::layers::journal::TreeStep;
use crate::layers::stage::{Stage, StagedFile};
use crate::layers::tree::{Opened, Replaced, Tree};
use crate::stat::{Kind, Layer, Stat};

/// How often a patch is worked out again when a file changes meanwhile.
const TRIES: usize = 8;

/// How a patch is made.
#[derive(Clone, Debug, Default)]
pub struct PatchOptions {
    /// The conditions on files before the patch: on those read, and on new ones.
    pub conditions: HashMap<RelPath, Condition>,
    /// Whether everything is worked out and nothing made.
    pub dry_run: bool,
    /// Size of a text before and after, in bytes.
    pub limit: u64,
}

/// The outcome for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// The file; of a removed one, what it was called.
    pub path: RelPath,
    /// Its former path, when that was another.
    pub from: Option<RelPath>,
    /// The action.
    pub action: Action,
    /// Lines that the hunks add.
    pub added: usize,
    /// Lines that the hunks remove.
    pub removed: usize,
    /// How the text lies on the disk.
    pub encoding: TextEncoding,
    /// Size of the new text, in bytes.
    pub size: u64,
    /// The file as it is now; `None` for one that is gone, and when nothing was made.
    pub stat: Option<Stat>,
}

/// One file of a patch, worked out.
struct Planned<'p> {
    patch: &'p FilePatch,
    /// The text that was read.
    before: Option<Before>,
    /// The text to put in place; none for a file that goes.
    after: Option<StagedFile>,
    encoding: TextEncoding,
    size: u64,
}

struct Before {
    /// Open, so that it can be put back.
    file: File,
    stat: Stat,
    layer: Layer,
}

/// How a step is taken back.
enum Undo {
    /// Removes what was made.
    Remove(RelPath),
    /// Puts a former file in its place again.
    PutBack(RelPath, Before),
}

impl Files {
    /// Makes all changes of a patch, or none.
    ///
    /// # Errors
    /// [`Error::HunkMismatch`]; [`Error::Patch`] for a removed file whose hunks leave lines; [`Error::AlreadyExists`];
    /// [`Error::Stale`]; [`Error::Unencodable`]; [`Error::Conflict`] for a link, or when commands keep changing the
    /// files; [`Error::Quota`]; else as [`Files::update`].
    pub fn patch(&self, patch: &[FilePatch], options: &PatchOptions) -> Result<Vec<Patched>> {
        check_nesting(patch)?;
        for _ in 0..TRIES {
            let planned: Result<Vec<Planned<'_>>> =
                patch.iter().map(|file| self.plan(file, options)).collect();
            let planned = planned?;
            if options.dry_run {
                return Ok(planned.iter().map(Planned::outcome).collect());
            }
            match self.make(planned) {
                Err(Error::Stale { .. }) => {}
                made => return made,
            }
        }
        let path = patch.first().map_or("the tree", |file| file.to.as_str());
        Err(Error::Conflict(format!(
            "`{path}` or another file of the patch keeps changing: try again when the command that writes it is done"
        )))
    }

    /// Reads a file and works out what becomes of it.
    fn plan<'p>(&self, patch: &'p FilePatch, options: &PatchOptions) -> Result<Planned<'p>> {
        let opened = match self.read(&patch.from, |tree| sources(tree, patch)) {
            Err(Error::NotFound(_)) if patch.action == Action::Created => None,
            sources => sources?,
        };
        let stat = opened.as_ref().map(|opened| &opened.stat);
        if let Some(condition) = options.conditions.get(&patch.from) {
            condition.check(&patch.from, stat)?;
        }
        if patch.to != patch.from
            && let Some(condition) = options.conditions.get(&patch.to)
        {
            condition.check(&patch.to, None)?;
        }
        let mode = patch.mode.or(stat.map(|stat| stat.mode)).unwrap_or(0o644);
        let (old, encoding) = match &opened {
            None => (String::new(), TextEncoding::Utf8),
            Some(Opened { file, stat, .. }) => {
                let file = file.try_clone().map_err(|error| Error::from_io("dup", &patch.from, error))?;
                let bytes = read_at_most(file, stat, &patch.from, options.limit)?;
                encoding::decode(bytes).ok_or_else(|| Error::NotText(patch.from.to_string()))?
            }
        };
        let new = hunks::apply(&old, patch.from.as_str(), &patch.hunks)?;
        let before = opened.map(|Opened { file, stat, layer }| Before { file, stat, layer });
        if patch.action == Action::Deleted {
            if !new.is_empty() {
                let reason = format!("it removes `{}` but not all of its lines", patch.from);
                return Err(Error::Patch { line: patch.line, reason });
            }
            return Ok(Planned { patch, before, after: None, encoding, size: 0 });
        }
        let bytes = encode(&new, encoding, patch.to.as_str())?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > options.limit {
            return Err(Error::TooLarge {
                what: format!("`{}` after the change", patch.to),
                limit: options.limit,
            });
        }
        let after = match options.dry_run {
            true => None,
            false => {
                let mut file = self.stage_aside()?;
                file.write(&bytes)?;
                file.set_mode(mode)?;
                file.finish()?;
                Some(file)
            }
        };
        Ok(Planned { patch, before, after, encoding, size })
    }

    /// Begins a file outside every live view, so that it can have a second name in the stage.
    fn stage_aside(&self) -> Result<StagedFile> {
        let (store, id) = self.parts();
        store.admit_space()?;
        let owner = store.owner(id).filter(|_| matches!(id, TreeId::Workspace(..)));
        Ok(store.stage().file(0o644, owner)?.counted(store.flight_to(id)))
    }

    /// Puts everything in its place.
    fn make(&self, planned: Vec<Planned<'_>>) -> Result<Vec<Patched>> {
        self.change(|tree| {
            let mut growth = Growth { is_exact: true, ..Growth::REMOVAL };
            for planned in &planned {
                planned.check(tree)?;
                growth = growth.plus(&planned.growth(tree)?);
            }
            let (store, id) = self.parts();
            let admitted = store.admit(id, &growth)?;
            let redo = write_down(store.stage(), id, &planned)?;
            let (mut undo, mut deferred) = (Vec::new(), Deferred::default());
            let mut patched: Vec<Patched> = planned.iter().map(Planned::outcome).collect();
            interrupt::commit()?;
            for planned in planned {
                match planned.make(tree, &mut undo) {
                    Ok(made) => deferred = deferred.and(made),
                    Err(error) => {
                        self.account(&Growth::REMOVAL);
                        self.take_back(tree, undo);
                        redo.into_iter().for_each(Redo::finish);
                        return Err(error);
                    }
                }
            }
            self.account(&growth);
            drop(admitted);
            // Before tags are taken: the second names count for them.
            redo.into_iter().for_each(Redo::finish);
            for patched in patched.iter_mut().filter(|patched| patched.action != Action::Deleted) {
                patched.stat = Some(tree.stat(&patched.path)?.0);
            }
            Ok((patched, deferred))
        })
    }

    /// Takes the steps back that were made, the last one first.
    fn take_back(&self, tree: &dyn Tree, undo: Vec<Undo>) {
        for step in undo.into_iter().rev() {
            let done = match step {
                Undo::Remove(path) => tree.remove(&path).map(drop),
                Undo::PutBack(path, before) => self.put_back(tree, &path, before),
            };
            if let Err(error) = done {
                tracing::error!(%error, "failed to undo a step of a refused patch: the tree keeps that step");
            }
        }
    }

    fn put_back(&self, tree: &dyn Tree, path: &RelPath, mut before: Before) -> Result<()> {
        let (store, id) = self.parts();
        let owner = store.owner(id).filter(|_| matches!(id, TreeId::Workspace(..)));
        let mut file = store.stage().file(before.stat.mode, owner)?;
        before.file.rewind().map_err(|error| Error::from_io("seek", path, error))?;
        copy_file(before.file, file.file(), &before.stat)?;
        file.finish_keeping_time()?;
        tree.put(path, tree.suited(file)?).map(drop)
    }
}

/// Writes down what is to be done, unless it is a single rename.
fn write_down(stage: &Stage, id: &TreeId, planned: &[Planned<'_>]) -> Result<Option<Redo>> {
    let (mut steps, mut files) = (Vec::new(), Vec::new());
    for Planned { patch, after, .. } in planned {
        if let Some(file) = after {
            steps.push(TreeStep::Put(files.len(), patch.to.clone()));
            files.push(file);
        }
        if matches!(patch.action, Action::Deleted | Action::Renamed) {
            steps.push(TreeStep::Remove(patch.from.clone()));
        }
    }
    if steps.len() < 2 {
        return Ok(None);
    }
    Redo::commit(stage, id, steps, &files).map(Some)
}

/// Refuses a patch that makes a file and something below it.
fn check_nesting(patch: &[FilePatch]) -> Result<()> {
    let stays = |file: &&FilePatch| file.action != Action::Deleted;
    let mut files: Vec<&RelPath> = patch.iter().filter(stays).map(|file| &file.to).collect();
    // A directory stands right before what is below it when paths are compared segment by segment.
    files.sort_unstable_by(|a, b| a.segments().cmp(b.segments()));
    match files.iter().zip(files.iter().skip(1)).find(|(above, below)| below.starts_with(above)) {
        Some((above, _)) => Err(Error::NotADirectory(above.to_string())),
        None => Ok(()),
    }
}

/// Opens what a patch reads, and looks that nothing is where it makes something.
fn sources(tree: &dyn Tree, patch: &FilePatch) -> Result<Option<Opened>> {
    let makes = match patch.action {
        Action::Created | Action::Renamed | Action::Copied => true,
        Action::Modified | Action::Deleted => false,
    };
    if makes && tree.stat_entry(&patch.to)?.is_some() {
        return Err(Error::AlreadyExists(patch.to.to_string()));
    }
    if patch.action == Action::Created {
        return Ok(None);
    }
    match tree.stat_entry(&patch.from)? {
        None => Err(Error::NotFound(patch.from.to_string())),
        Some((stat, _)) if stat.kind == Kind::Symlink => {
            Err(Error::Conflict(format!("`{}` is a link: patch the file that it leads to", patch.from)))
        }
        Some(_) => tree.open(&patch.from).map(Some),
    }
}

impl Planned<'_> {
    fn outcome(&self) -> Patched {
        let counts = self.patch.hunks.iter().map(super::Hunk::counts);
        let (added, removed) = counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
        Patched {
            path: self.patch.to.clone(),
            from: (self.patch.from != self.patch.to).then(|| self.patch.from.clone()),
            action: self.patch.action,
            added,
            removed,
            encoding: self.encoding,
            size: self.size,
            stat: None,
        }
    }

    /// Compares the tree with what was read.
    fn check(&self, tree: &dyn Tree) -> Result<()> {
        let is = |path: &RelPath, expected: Option<&Stat>| {
            let current = tree.stat_entry(path)?.map(|(stat, _)| stat.etag());
            if current == expected.map(Stat::etag) {
                return Ok(());
            }
            let unmet = match (&current, expected) {
                (None, _) => Unmet::Missing,
                (Some(_), None) => Unmet::Exists,
                (Some(_), Some(_)) => Unmet::Changed,
            };
            Err(Error::Stale { path: path.to_string(), unmet, current })
        };
        is(&self.patch.from, self.before.as_ref().map(|before| &before.stat))?;
        if self.patch.to == self.patch.from { Ok(()) } else { is(&self.patch.to, None) }
    }

    fn growth(&self, tree: &dyn Tree) -> Result<Growth> {
        let Some(file) = &self.after else { return Ok(Growth::REMOVAL) };
        let replaces = self.patch.action == Action::Modified;
        let existing = self.before.as_ref().filter(|_| replaces).map(|before| (&before.stat, before.layer));
        let parent = self.patch.to.parent().unwrap_or_else(RelPath::root);
        let made_dirs = dirs_to_make(tree, &parent)?;
        let growth = Growth::of_file(&Replaced { existing, made_dirs, may_be_whiteout: !replaces }, file)?;
        Ok(if self.patch.action == Action::Renamed { growth.plus(&Growth::REMOVAL) } else { growth })
    }

    /// Puts the file in its place, and notes how to take that back.
    fn make(self, tree: &dyn Tree, undo: &mut Vec<Undo>) -> Result<Deferred> {
        let Self { patch, before, after, .. } = self;
        let mut deferred = Deferred::default();
        if let Some(file) = after {
            if let Some(parent) = patch.to.parent()
                && let Some(missing) = tree.first_missing(&parent)?
            {
                undo.push(Undo::Remove(missing));
            }
            deferred = tree.put_with_parents(&patch.to, tree.suited(file)?)?;
            if patch.action != Action::Modified {
                undo.push(Undo::Remove(patch.to.clone()));
            }
        }
        if matches!(patch.action, Action::Deleted | Action::Renamed) {
            deferred = deferred.and(tree.remove(&patch.from)?);
        }
        if patch.action != Action::Copied {
            undo.extend(before.map(|before| Undo::PutBack(patch.from.clone(), before)));
        }
        Ok(deferred)
    }
}

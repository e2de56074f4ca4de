//! [`Redo`]: what a patch does to several files is written down before the first of them, so that it is done again at
//! the next start should the service die in between.
//!
//! It is a directory in the stage, as a [`Transaction`](crate::journal) is, but its steps are changes of a tree: a patch
//! may go through a live view, which nothing but changes of a tree may pass. The new files stand in it as second names of
//! those that are put in their places. Doing a step again is harmless: a file that is in its place already is left alone.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use serde::{Deserialize, Serialize};

use crate::copy::copy_file;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::stage::{Durability, Stage, StagedFile, Trash};
use crate::store::Store;
use crate::tree::{Aftermath, Tree};

const RECORD: &str = "patch";
const RECORD_DRAFT: &str = "patch.draft";
/// A record of as many files as a patch has, each with two paths of the greatest length.
const RECORD_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One change of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// A file is put at a path; its number is its name beside the record.
    Put(usize, RelPath),
    /// A path is removed.
    Remove(RelPath),
}

/// A tree and what is to be done to it.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    user: String,
    agent: String,
    skill: Option<String>,
    steps: Vec<Step>,
}

/// Steps that will be done, now or at the next start.
#[must_use]
pub(super) struct Redo {
    dir: Dir,
    trash: Option<Trash>,
}

impl Redo {
    /// Writes down `steps` in the tree `id`. `files` are those that [`Step::Put`] counts, staged and finished.
    pub(super) fn commit(
        stage: &Stage,
        id: &TreeId,
        steps: Vec<Step>,
        files: &[&StagedFile],
    ) -> Result<Self> {
        let trash = stage.trash();
        let dir = stage.dir().create_dir(&trash.name, 0o700)?;
        for (number, file) in files.iter().enumerate() {
            file.link(&dir, &name(number))?;
        }
        let skill = match id {
            TreeId::Skill(_, _, skill) => Some(skill.to_string()),
            TreeId::Workspace(..) => None,
        };
        let record = Record { user: id.user().to_string(), agent: id.agent().to_string(), skill, steps };
        let text = serde_json::to_vec(&record)
            .map_err(|error| Error::from_io("record", "stage", std::io::Error::other(error)))?;
        let is_strict = stage.durability() == Durability::Strict;
        let mut draft = dir.create_file(OsStr::new(RECORD_DRAFT), 0o600)?;
        draft.write_all(&text).map_err(|error| Error::from_io("write", "record", error))?;
        if is_strict {
            draft.sync_all().map_err(|error| Error::from_io("fsync", "record", error))?;
            dir.sync()?;
        }
        interrupt::commit()?;
        dir.rename(OsStr::new(RECORD_DRAFT), &dir, OsStr::new(RECORD))?;
        if is_strict {
            dir.sync()?;
            stage.dir().sync()?;
        }
        Ok(Self { dir, trash: Some(trash) })
    }

    /// Forgets the steps: all of them were done, or taken back.
    pub(super) fn finish(mut self) {
        // The record goes first: without it the rest is only garbage.
        match self.dir.remove_file(OsStr::new(RECORD)) {
            Ok(()) => drop(self.trash.take()),
            Err(error) => tracing::warn!(%error, "a patch that is made stays on record until the next start"),
        }
    }
}

impl Drop for Redo {
    fn drop(&mut self) {
        // Not finished: it stays for the next start.
        if let Some(trash) = self.trash.take() {
            std::mem::forget(trash);
        }
    }
}

fn name(number: usize) -> OsString {
    number.to_string().into()
}

/// Tells whether the stage entry `name` is a patch that was on its way when a former service ended.
pub(crate) fn is_on_record(stage: &Stage, name: &OsStr) -> bool {
    let dir = stage.dir().open_dir_entry(name);
    dir.and_then(|dir| dir.stat_entry(OsStr::new(RECORD))).is_ok_and(|record| record.is_some())
}

impl Store {
    /// Makes the patches that a crash interrupted. Nobody uses the store yet. Returns how many were made, and how many
    /// records could not be read and were swept.
    ///
    /// A patch that cannot be made now, for want of space, stays for the next start.
    pub(crate) fn redo_patches(&self) -> Result<(usize, usize)> {
        let (mut made, mut swept) = (0, 0);
        let stage = &self.inner.stage;
        for entry in stage.dir().entries()? {
            if !is_on_record(stage, &entry.name) {
                continue;
            }
            let dir = stage.dir().open_dir_entry(&entry.name)?;
            match read(&dir)? {
                None => {
                    tracing::warn!("an unreadable record of a patch is swept");
                    swept += 1;
                }
                Some((id, steps)) => {
                    if let Err(error) = self.redo(&id, &dir, &steps) {
                        tracing::error!(%error, "a patch that was interrupted stays so until the next start");
                        continue;
                    }
                    made += 1;
                }
            }
            if let Err(error) = stage.dir().remove_tree(&entry.name) {
                tracing::warn!(%error, "a staged entry stays until the next start");
            }
        }
        Ok((made, swept))
    }

    fn redo(&self, id: &TreeId, dir: &Dir, steps: &[Step]) -> Result<()> {
        let tree: Box<dyn Tree> = match id {
            TreeId::Skill(user, agent, skill) => Box::new(self.union(user, agent, skill, None)?),
            TreeId::Workspace(..) => Box::new(self.plain(id, true)?),
        };
        let mut aftermath = Aftermath::default();
        for step in steps {
            aftermath = aftermath.and(match step {
                Step::Put(number, path) => self.put_again(tree.as_ref(), id, dir, *number, path)?,
                Step::Remove(path) => match tree.remove(path) {
                    Err(Error::NotFound(_) | Error::NotADirectory(_)) => Aftermath::default(),
                    removed => removed?,
                },
            });
        }
        aftermath.settle(self.is_strict())
    }

    fn put_again(
        &self,
        tree: &dyn Tree,
        id: &TreeId,
        dir: &Dir,
        number: usize,
        path: &RelPath,
    ) -> Result<Aftermath> {
        let (file, stat) = dir.open_file_entry(&name(number))?;
        if tree.stat(path).is_ok_and(|(there, _)| there.inode == stat.inode) {
            return Ok(Aftermath::default());
        }
        let owner = self.owner(id).filter(|_| matches!(id, TreeId::Workspace(..)));
        let mut copy = self.inner.stage.file(stat.mode, owner)?;
        copy_file(file, copy.file(), &stat)?;
        copy.finish_keeping_time()?;
        let parent = path.parent().unwrap_or_else(RelPath::root);
        Ok(tree.make_dirs(&parent)?.and(tree.put(path, copy)?))
    }
}

/// Reads a record; `None` when it is none, which a loss of power can make of it.
fn read(dir: &Dir) -> Result<Option<(TreeId, Vec<Step>)>> {
    let (file, _) = dir.open_file_entry(OsStr::new(RECORD))?;
    let mut text = Vec::new();
    file.take(RECORD_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| Error::from_io("read", "record", error))?;
    let Ok(record) = serde_json::from_slice::<Record>(&text) else { return Ok(None) };
    let (Ok(user), Ok(agent)) = (UserId::parse(&record.user), AgentId::parse(&record.agent)) else {
        return Ok(None);
    };
    let id = match record.skill.as_deref().map(SkillId::parse) {
        None => TreeId::Workspace(user, agent),
        Some(Ok(skill)) => TreeId::Skill(user, agent, skill),
        Some(Err(_)) => return Ok(None),
    };
    Ok(Some((id, record.steps)))
}

//! [`Redo`]: what a patch does to several files is written down before the first of them, so that it is done again at
//! the next start should the service die in between.
//!
//! It has a [record](crate::layers::record), as a [`Transaction`](crate::layers::journal) has, but its steps are changes of a tree: a patch
//! may go through a live view, which nothing but changes of a tree may pass. The new files stand in a directory of the
//! stage as second names of those that are put in their places. Doing a step again is harmless: a file that is in its
//! place already is left alone.

use std::ffi::OsString;

use policy::{RelPath, TreeId};

use crate::core::open::Patches;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::copy::copy_file;
use crate::layers::deferred::Deferred;
use crate::layers::journal::{Record, Staged, Steps, TreeStep};
use crate::layers::stage::{Draft, Stage, StagedFile};
use crate::layers::tree::Tree;

/// Steps that will be done, now or at the next start.
#[must_use]
pub(super) struct Redo {
    stage: Stage,
    draft: Option<Draft>,
}

impl Redo {
    /// Writes down `steps` in the tree `id`. `files` are those that [`TreeStep::Put`] counts, staged and finished.
    pub(super) fn commit(
        stage: &Stage,
        id: &TreeId,
        steps: Vec<TreeStep>,
        files: &[&StagedFile],
    ) -> Result<Self> {
        let draft = stage.draft();
        let dir = stage.dir().create_dir(&draft.name, 0o700)?;
        for (number, file) in files.iter().enumerate() {
            file.link(&dir, &name(number))?;
        }
        let staged = Staged::of(&draft.name, &dir)?;
        let steps = Steps::new(staged, id, steps);
        let sync = |record: &std::fs::File| {
            record.sync_all().map_err(|error| Error::from_io("fsync", "record", error))?;
            dir.sync()?;
            stage.dir().sync()
        };
        Record::Patch(steps).write(stage, &draft.name, false, sync)?;
        Ok(Self { stage: stage.clone(), draft: Some(draft) })
    }

    /// Forgets the steps: all of them were done, or taken back.
    pub(super) fn finish(mut self) {
        let Some(draft) = self.draft.take() else { return };
        // The record goes first: without it the rest is only garbage. When it stays, the files must go all the same: a
        // start that found both would make the patch again, over what was changed since.
        if let Err(error) = self.stage.records().remove(&draft.name) {
            tracing::warn!(%error, "failed to remove the record of a finished patch: the next start removes it");
        }
        drop(draft);
    }
}

impl Drop for Redo {
    fn drop(&mut self) {
        // Not finished: it stays for the next start.
        if let Some(draft) = self.draft.take() {
            std::mem::forget(draft);
        }
    }
}

fn name(number: usize) -> OsString {
    number.to_string().into()
}

/// Makes the patches that a crash interrupted. No request uses the store yet. Returns how many were made.
///
/// A patch that cannot be made now, for want of space, stays for the next start.
pub(crate) fn redo_patches(store: &Store, patches: Patches) -> Result<usize> {
    let mut made = 0;
    let stage = store.stage();
    for (record, steps) in patches {
        // Without the files all was done, and the directory gone, when the machine lost its power.
        if let Some(dir) = steps.staged().open(stage)? {
            if let Err(error) = redo(store, &steps.tree(), &dir, steps.steps()) {
                let id = steps.tree();
                let (user, tree) = (id.user(), id.sandbox_path());
                tracing::error!(
                    %error, %user, tree,
                    "failed to make an interrupted patch: the next start tries again"
                );
                continue;
            }
            made += 1;
        }
        stage.records().remove(&record)?;
        if let Err(error) = stage.dir().remove_tree(steps.staged().name()) {
            tracing::warn!(
                %error,
                "failed to remove the stage of a patch: it stays until the next start"
            );
        }
    }
    Ok(made)
}

fn redo(store: &Store, id: &TreeId, dir: &Dir, steps: &[TreeStep]) -> Result<()> {
    let tree: Box<dyn Tree> = match id {
        TreeId::Skill(user, agent, skill) => Box::new(store.union(user, agent, skill, None)?),
        TreeId::Workspace(..) => Box::new(store.plain(id, true)?),
    };
    let mut deferred = Deferred::default();
    for step in steps {
        deferred = deferred.and(match step {
            TreeStep::Put(number, path) => put_again(store, tree.as_ref(), id, dir, *number, path)?,
            TreeStep::Remove(path) => match tree.remove(path) {
                Err(Error::NotFound(_) | Error::NotADirectory(_)) => Deferred::default(),
                removed => removed?,
            },
        });
    }
    deferred.settle(store.is_strict())
}

fn put_again(
    store: &Store,
    tree: &dyn Tree,
    id: &TreeId,
    dir: &Dir,
    number: usize,
    path: &RelPath,
) -> Result<Deferred> {
    let (file, stat) = dir.open_file_entry(&name(number))?;
    if tree.stat(path).is_ok_and(|(there, _)| there.inode == stat.inode) {
        return Ok(Deferred::default());
    }
    let owner = store.owner(id).filter(|_| matches!(id, TreeId::Workspace(..)));
    let mut copy = store.stage().file(stat.mode, owner)?;
    copy_file(file, copy.file(), &stat)?;
    copy.finish_keeping_time()?;
    tree.put_with_parents(path, copy)
}

#[cfg(test)]
mod tests {
    use policy::{AgentId, UserId};

    use super::*;
    use crate::core::options::Options;

    #[test]
    fn a_finished_patch_whose_record_stays_is_not_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
        let id = TreeId::Workspace(UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let redo = Redo::commit(store.stage(), &id, Vec::new(), &[]).unwrap();
        let staged = redo.draft.as_ref().unwrap().name.clone();
        // No file can be removed under the name of a directory.
        let records = store.root().open_dir(&RelPath::parse(".filesecbox/journal").unwrap()).unwrap();
        records.remove_file(&staged).unwrap();
        records.create_dir(&staged, 0o700).unwrap();
        redo.finish();
        assert!(records.stat_entry(&staged).unwrap().is_some(), "the control: the record stays");
        assert!(store.stage().dir().stat_entry(&staged).unwrap().is_none());
    }
}

//! [`Files::write`]: a file is staged, and takes its place in one step.

use policy::{RelPath, TreeId};

use super::{Condition, Files, dirs_to_make};
use crate::core::growth::Growth;
use crate::error::{Error, Result};
use crate::layers::stage::StagedFile;
use crate::layers::tree::Replaced;
use crate::stat::{Kind, Stat};

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The condition for the write.
    pub condition: Condition,
    /// Whether missing parent directories are made.
    pub parents: bool,
    /// Permission bits; `None` keeps those of the file replaced, or gives 0644.
    pub mode: Option<u32>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file as it is now.
    pub stat: Stat,
    /// Whether there was none before.
    pub created: bool,
}

impl Files {
    /// Begins a file that [`Files::write`] will place.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn stage(&self) -> Result<StagedFile> {
        self.store.admit_space()?;
        let (stage, owner) = (self.store.stage(), self.store.owner(&self.id));
        let staged = match (&self.id, self.store.seat(&self.id)) {
            (TreeId::Workspace(..), _) => stage.file(0o644, owner)?,
            (TreeId::Skill(..), None) => stage.file(0o644, None)?,
            (TreeId::Skill(..), Some(seat)) => {
                let root = seat.root()?;
                stage.file_for_view(0o644, owner, seat, &root)?
            }
        };
        Ok(staged.counted(self.store.flight_to(&self.id)))
    }

    /// Puts a staged file at `path` in one step.
    ///
    /// # Errors
    /// [`Error::Stale`] when the condition does not hold; [`Error::Quota`], [`Error::Full`]; else as [`Tree::put`](crate::layers::tree::Tree::put).
    pub fn write(&self, path: &RelPath, mut file: StagedFile, options: &WriteOptions) -> Result<Written> {
        if self.store.is_strict()
            && let Some(mode) = options.mode.or_else(|| self.peek(path).map(|stat| stat.mode))
        {
            // Made durable together with the bytes. `place` sets it when it changed meanwhile.
            file.set_mode(mode)?;
        }
        file.finish()?;
        let _alone = self.store.locks().file(&self.id, path);
        self.place(path, file, options)
    }

    /// Refuses what is on its way into the tree when it has no room there, so that it need not come whole to be refused.
    /// It is to take the place of `path`.
    ///
    /// # Errors
    /// [`Error::Quota`], [`Error::Countless`], [`Error::Full`].
    pub fn admit_arriving(&self, path: &RelPath) -> Result<()> {
        let replaced = self.peek(path).map_or(0, |stat| stat.allocated);
        self.store.admit_arriving(&self.id, replaced)
    }

    /// The entry at `path` at the moment, if there is one.
    pub(super) fn peek(&self, path: &RelPath) -> Option<Stat> {
        match self.open_cached(path) {
            Some(opened) => Some(opened.stat),
            None => self.stat(path).ok().map(|(stat, _)| stat),
        }
    }

    /// Places a finished file. The caller holds the file's lock.
    pub(super) fn place(
        &self,
        path: &RelPath,
        mut file: StagedFile,
        options: &WriteOptions,
    ) -> Result<Written> {
        self.change(|tree| {
            file = tree.suited(file)?;
            let handle = file.file().try_clone().map_err(|error| Error::from_io("dup", path, error))?;
            let mut created = false;
            let (mut growth, mut admitted) = (Growth::REMOVAL, None);
            let mut admit = |replaced: Replaced<'_>, file: &mut StagedFile| {
                let existing = replaced.existing.map(|(stat, _)| stat);
                if existing.is_some_and(|stat| stat.kind == Kind::Directory) {
                    return Err(Error::IsDirectory(path.to_string()));
                }
                options.condition.check(path, existing)?;
                if let Some(mode) = options.mode.or(existing.map(|stat| stat.mode)) {
                    file.set_mode(mode)?;
                }
                created = existing.is_none();
                growth = Growth::of_file(&replaced, file)?;
                admitted = Some(self.store.admit(&self.id, &growth)?);
                Ok(())
            };
            let parent = path.parent().filter(|parent| options.parents && !parent.is_root());
            let lacking = match parent {
                Some(parent) => tree.first_missing(&parent)?.map(|_| parent),
                None => None,
            };
            let deferred = match lacking {
                Some(parent) => {
                    let made_dirs = dirs_to_make(tree, &parent)?;
                    admit(Replaced { made_dirs, ..Replaced::default() }, &mut file)?;
                    tree.put_with_parents(path, file)?
                }
                None => tree.put_if(path, file, &mut admit)?,
            };
            self.account(&growth);
            drop(admitted);
            // Looked at again: the rename moved the change time, which the tag holds.
            let stat = rustix::fs::fstat(&handle).map_err(|errno| Error::from_errno("stat", path, errno))?;
            Ok((Written { stat: stat.into(), created }, deferred))
        })
    }
}

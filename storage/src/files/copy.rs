//! Copying a file, or a directory with everything in it, within a tree.

use policy::RelPath;

use super::{Condition, Files, WriteOptions, Written, dirs_to_make};
use crate::core::growth::Growth;
use crate::error::{Error, Result};
use crate::layers::copy;
use crate::layers::tree::{Opened, Tree};
use crate::stat::Kind;
use crate::stat::Use;

impl Files {
    /// Copies the file `from`, or with `recursive` the directory, to `to`. `condition` is of `to`.
    ///
    /// Links at `from` and, for files, at `to` are followed. What is written is `None` for a directory.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when `to` is there and `overwrite` is not set; [`Error::IsDirectory`] when `from` is one
    /// without `recursive`, or when `to` is; [`Error::NotADirectory`] for a directory onto a file;
    /// [`Error::IntoItself`]; [`Error::Escape`] for another owner's file that a command linked in; [`Error::Stale`];
    /// [`Error::Quota`]; else as [`Tree::put`].
    pub fn copy(
        &self,
        from: &RelPath,
        to: &RelPath,
        overwrite: bool,
        recursive: bool,
        condition: &Condition,
    ) -> Result<Option<Written>> {
        if to == from {
            return Err(Error::IntoItself { from: from.to_string(), to: to.to_string() });
        }
        match self.open(from) {
            Ok(opened) => self.copy_file(opened, to, overwrite, condition).map(Some),
            Err(Error::IsDirectory(_)) if recursive => {
                self.copy_dir(from, to, overwrite, condition).map(|()| None)
            }
            Err(other) => Err(other),
        }
    }

    fn copy_file(
        &self,
        Opened { file, stat, .. }: Opened,
        to: &RelPath,
        overwrite: bool,
        condition: &Condition,
    ) -> Result<Written> {
        let mut copy = self.stage()?;
        copy.take(stat.allocated)?;
        self.store.admit_arriving(&self.id, self.peek(to).map_or(0, |stat| stat.allocated))?;
        copy::copy_file(file, copy.file(), &stat)?;
        copy.set_mode(stat.mode)?;
        copy.finish()?;
        let _alone = self.store.locks().file(&self.id, to);
        if !overwrite {
            let existing = self.read(to, |tree| tree.stat_entry(to));
            let existing = self.none_if_unmade(existing)?.map(|(stat, _)| stat);
            condition.check(to, existing.as_ref())?;
            if existing.is_some() {
                return Err(Error::AlreadyExists(to.to_string()));
            }
        }
        let holds = if overwrite { condition.clone() } else { Condition::Missing };
        self.place(to, copy, &WriteOptions { condition: holds, parents: false, mode: Some(stat.mode) })
    }

    /// A workspace that is not made yet has nothing in it.
    fn none_if_unmade<T>(&self, found: Result<Option<T>>) -> Result<Option<T>> {
        match found {
            Err(Error::NotFound(_)) => Ok(None),
            found => found,
        }
    }

    fn copy_dir(&self, from: &RelPath, to: &RelPath, overwrite: bool, condition: &Condition) -> Result<()> {
        let into_itself = || Error::IntoItself { from: from.to_string(), to: to.to_string() };
        if to.starts_with(from) {
            return Err(into_itself());
        }
        self.change(|tree| {
            // A link can lead to the tree itself.
            if tree.stat(from)?.0.inode == tree.stat(&RelPath::root())?.0.inode {
                return Err(into_itself());
            }
            let existing = tree.stat_entry(to)?.map(|(stat, _)| stat);
            condition.check(to, existing.as_ref())?;
            match existing.map(|stat| stat.kind) {
                None => {}
                Some(_) if !overwrite => return Err(Error::AlreadyExists(to.to_string())),
                Some(Kind::Directory) => return Err(Error::IsDirectory(to.to_string())),
                Some(_) => return Err(Error::NotADirectory(to.to_string())),
            }
            let growth = Growth { adds: self.copied(tree, from, to)?, ..Growth::REMOVAL };
            self.store.admit_space_for(growth.adds.bytes)?;
            let admitted = self.store.admit(&self.id, &growth)?;
            self.account(&growth);
            drop(admitted);
            Ok(((), tree.copy_dir(from, to)?))
        })
    }

    /// The growth by a copy of the directory `from` at `to`.
    fn copied(&self, tree: &dyn Tree, from: &RelPath, to: &RelPath) -> Result<Use> {
        let parent = to.parent().unwrap_or_else(RelPath::root);
        let dirs = Growth::of_dirs(dirs_to_make(tree, &parent)?.saturating_add(1)).adds;
        Ok(dirs.plus(tree.taken_by_copy(from, self.store.options().files.tree_entries)?))
    }
}

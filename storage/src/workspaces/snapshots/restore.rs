//! Making a workspace of a snapshot: in its own place, or as another workspace.
//!
//! It is built in the stage, every content compared with its digest, and exchanged with what is there in one step.

use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;

use rustix::fs::{Gid, Timespec, Timestamps, UTIME_OMIT, Uid};

use super::manifest::{FileNode, Line, Manifest, Node, damaged, unspell};
use super::objects;
use super::{SnapshotId, Snapshots};
use crate::core::growth::Growth;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::copy_hashed::copy_hashed;
use crate::layers::stage::Draft;
use crate::layers::trash::Leftovers;
use crate::layout;
use crate::stat::Use;
use policy::{TreeId, WorkspaceId};

/// The workspace that was made of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked {
    /// The room that the workspace takes on the disk.
    pub taken: Use,
    /// Whether there was a workspace in its place.
    pub replaced: bool,
}

impl Snapshots {
    /// Makes a workspace what it was. The home directory stays as it is.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] while the sandbox has an occupant, another request works on its
    /// snapshots, or the snapshot is damaged; [`Error::Quota`], [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    /// Then the workspace is as it was.
    pub fn restore(&self, id: &WorkspaceId, snapshot: &SnapshotId) -> Result<(Forked, Leftovers)> {
        self.fork(id, snapshot, id, true)
    }

    /// Makes what a workspace was the workspace of another sandbox. One that is there is replaced if `replace`, or if
    /// nothing is in it.
    ///
    /// # Errors
    /// As [`Snapshots::restore`]; [`Error::AlreadyExists`].
    pub fn fork(
        &self,
        from: &WorkspaceId,
        snapshot: &SnapshotId,
        to: &WorkspaceId,
        replace: bool,
    ) -> Result<(Forked, Leftovers)> {
        let _hand = self.take_in_hand(from)?;
        self.store.admit_space()?;
        let (own, mut manifest) = self.manifest(from, snapshot)?;
        // Rather now than when all is built.
        self.check_place(to, replace)?;
        let (draft, at) = self.store.draft(&to.workspace())?;
        let mut building = Building {
            store: &self.store,
            own: &own,
            owner: draft.owner,
            most: self.store.limits_of(&to.workspace()),
            of: to.workspace(),
        };
        building.tree(&mut manifest, &draft.dir)?;
        if self.store.is_strict() {
            draft.dir.sync_file_system()?;
        }
        let mut counter = self.store.counter_of(&to.workspace());
        counter.tree(&draft.dir)?;
        let taken = counter.end().taken;
        let replaced = self.place_whole(to, &at, taken, replace)?;
        // The replaced workspace has the name of the draft now.
        let trash = at.thrown(&to.workspace()).into_iter().map(Arc::new).collect();
        Ok((Forked { taken, replaced }, Leftovers { trash }))
    }

    /// Refuses a place that is taken, or that has an occupant.
    fn check_place(&self, to: &WorkspaceId, replace: bool) -> Result<()> {
        self.store.workspaces().check_left(to)?;
        if replace {
            return Ok(());
        }
        match self.workspace_dir(to) {
            Ok(dir) if !dir.first_entries(1)?.is_empty() => {
                Err(Error::AlreadyExists(format!("the workspace of `{}` with `{}`", to.user, to.agent)))
            }
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Puts a whole workspace in the place of what is there. Tells whether there was one.
    fn place_whole(&self, to: &WorkspaceId, draft: &Draft, taken: Use, replace: bool) -> Result<bool> {
        let tree = to.workspace();
        let there = match self.workspace_dir(to) {
            Ok(dir) => {
                let mut counter = self.store.counter_of(&tree);
                counter.tree(&dir)?;
                counter.end().taken
            }
            Err(Error::NotFound(_)) => Use::default(),
            Err(other) => return Err(other),
        };
        let (above, replaced) = {
            let _alone = self.store.locks().write(&tree);
            self.check_place(to, replace)?;
            let admitted = self.store.admit(&tree, &Growth { adds: taken, takes: there, is_exact: false })?;
            let user = layout::workspace(&to.user, &to.agent)?.parent().unwrap_or_else(policy::RelPath::root);
            let above = self.store.stage().ensure_path(self.store.root(), &user)?;
            let name = OsStr::new(to.agent.as_str());
            let stage = self.store.stage().dir();
            let replaced = above.stat_entry(name)?.is_some();
            interrupt::commit()?;
            if replaced {
                // A directory that its owner may not write to cannot change its parent (rename(2), EACCES).
                drop(above.open_closed_dir(name)?);
                stage.exchange(&draft.name, &above, name)?;
            } else {
                stage.rename_new(&draft.name, &above, name)?;
            }
            self.store.accounts().forget(&tree);
            drop(admitted);
            (above, replaced)
        };
        if self.store.is_strict() {
            above.sync()?;
        }
        self.store.workspaces().note_use_of_there(to);
        Ok(replaced)
    }
}

/// A workspace being made.
struct Building<'a> {
    store: &'a Store,
    own: &'a Dir,
    owner: Option<u32>,
    /// Entries that it may have yet, and bytes in its files.
    most: Use,
    of: TreeId,
}

/// A directory on the way down, and the mode that it gets when all is in it.
struct Level {
    dir: Dir,
    mode: u32,
}

impl Building<'_> {
    /// Makes everything that `manifest` names in the empty directory `root`.
    fn tree(&mut self, manifest: &mut Manifest, root: &Dir) -> Result<()> {
        let mut levels = vec![Level { dir: root.reopen()?, mode: root.stat()?.mode }];
        while let Some(Line { depth, name, node }) = manifest.next()? {
            self.spend(&node)?;
            while levels.len() > depth + 1 {
                self.close(levels.pop())?;
            }
            let level = levels.last().filter(|_| levels.len() == depth + 1).ok_or_else(damaged)?;
            match node {
                Node::Directory { mode } => {
                    let dir = level.dir.create_dir(&name, 0o700)?;
                    levels.push(Level { dir, mode });
                }
                Node::File(file) => self.file(&level.dir, &name, &file)?,
                Node::Link { target } => {
                    level.dir.create_symlink(&unspell(&target).ok_or_else(damaged)?, &name)?;
                    if let Some(owner) = self.owner {
                        level.dir.set_entry_owner(&name, owner)?;
                    }
                }
            }
        }
        while let Some(level) = levels.pop() {
            self.close(Some(level))?;
        }
        Ok(())
    }

    /// Takes the room of an entry.
    ///
    /// # Errors
    /// [`Error::Quota`] when the workspace would be larger than one may be.
    fn spend(&mut self, node: &Node) -> Result<()> {
        let size = match node {
            Node::File(file) => file.size,
            Node::Directory { .. } | Node::Link { .. } => 0,
        };
        let (limits, [of_bytes, of_files]) =
            (self.store.limits_of(&self.of), self.store.settings_of(&self.of));
        let quota = |setting, unit, limit, needs| {
            Err(Error::Quota { tree: "the snapshot".to_owned(), setting, unit, used: limit, limit, needs })
        };
        let (bytes, files) = (self.most.bytes.checked_sub(size), self.most.files.checked_sub(1));
        match (bytes, files) {
            (Some(bytes), Some(files)) => self.most = Use { bytes, files },
            (None, _) => return quota(of_bytes, "bytes", limits.bytes, size),
            (_, None) => return quota(of_files, "files", limits.files, 1),
        }
        Ok(())
    }

    /// Gives a directory its mode and owner, when all is in it.
    fn close(&self, level: Option<Level>) -> Result<()> {
        let Some(Level { dir, mode }) = level else { return Ok(()) };
        dir.set_mode(mode & 0o777)?;
        self.owner.map_or(Ok(()), |owner| dir.set_owner(owner))
    }

    fn file(&self, dir: &Dir, name: &OsStr, node: &FileNode) -> Result<()> {
        self.store.admit_space_for(node.size)?;
        let object = match objects::open(self.own, node.digest) {
            Err(Error::NotFound(_)) => return Err(damaged()),
            object => object?,
        };
        let file = dir.create_file(name, node.mode & 0o777)?;
        if *copy_hashed(&object, &file, node.size)?.as_bytes() != node.digest.0 {
            return Err(damaged());
        }
        if let Some(owner) = self.owner {
            give(&file, owner)?;
        }
        keep_time(&file, node.modified_ns)
    }
}

fn give(file: &File, owner: u32) -> Result<()> {
    rustix::fs::fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
        .map_err(|errno| Error::from_errno("chown", "file", errno))
}

fn keep_time(file: &File, modified_ns: i64) -> Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified_ns.div_euclid(1_000_000_000),
            tv_nsec: modified_ns.rem_euclid(1_000_000_000),
        },
    };
    rustix::fs::futimens(file, &times).map_err(|errno| Error::from_errno("utimens", "file", errno))
}

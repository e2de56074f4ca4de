//! [`Ready`]: an entry that a command left in a copy, made ready to be placed in the tree.

use std::ffi::OsStr;

use policy::TreeId;

use super::PreparedRun;
use super::steps::{Changed, Ready};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::stage::StagedFile;
use crate::stat::Kind;

/// How files of a copy come into the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// They are moved: the copy goes with its run, and no process has them open.
    Away,
    /// They are copied: the next run goes on in the copy, or a process does.
    Copies,
}

impl PreparedRun {
    /// Brings what a command left at a path to where one step places it.
    ///
    /// An entry that the command closed to its owner stays open to the service, which is the owner from now on.
    pub(super) fn ready(&self, dir: &Dir, change: &Changed<'_>, taking: Taking) -> Result<Ready> {
        match (self.made_ready(dir, change, taking), taking) {
            // A command of another run goes on in the copy.
            (
                Err(
                    Error::NotFound(_)
                    | Error::NotADirectory(_)
                    | Error::IsDirectory(_)
                    | Error::NotAFile(_)
                    | Error::Escape(_),
                ),
                Taking::Copies,
            ) => Ok(Ready::Gone),
            (ready, _) => ready,
        }
    }

    fn made_ready(&self, dir: &Dir, change: &Changed<'_>, taking: Taking) -> Result<Ready> {
        let (Some(parent), Some(name)) = (change.path.parent(), change.path.file_name()) else {
            return Ok(Ready::Nothing);
        };
        let name = OsStr::new(name);
        match change.now.kind {
            Kind::Directory => Ok(Ready::Directory(change.now.mode & 0o777 | 0o700)),
            Kind::File => {
                let parent = dir.open_dir(&parent)?;
                if self.is_linked_in(&parent, name)? {
                    return Ok(Ready::Foreign);
                }
                let stage = self.store.stage();
                let mode = change.now.mode & 0o777 | 0o400;
                let file = match taking {
                    Taking::Away => StagedFile::adopt(stage, &parent, name, mode)?,
                    // One that grows meanwhile was not admitted with its new size.
                    Taking::Copies => {
                        let size = change.now.size().unwrap_or_default();
                        StagedFile::copied(stage, &parent, name, mode, size)?
                    }
                };
                match self.id {
                    TreeId::Workspace(..) => self.view.owner.map_or(Ok(()), |owner| file.set_owner(owner))?,
                    TreeId::Skill(..) => file.own()?,
                }
                Ok(Ready::File(file))
            }
            Kind::Symlink => Ok(Ready::Link(dir.open_dir(&parent)?.read_link(name)?)),
            Kind::Other => Ok(Ready::Nothing),
        }
    }

    /// Whether a file is another user's, which has its own name elsewhere. The walls let no command link one in; if one is there
    /// all the same, the service must not read it for the command.
    fn is_linked_in(&self, parent: &Dir, name: &OsStr) -> Result<bool> {
        let Some(own) = self.view.owner else { return Ok(false) };
        Ok(parent.stat_entry(name)?.is_some_and(|stat| stat.links > 1 && stat.owner != own))
    }
}

//! Copying a directory within a merged view.

use policy::RelPath;

use super::Union;
use crate::dir::DEPTH_MAX;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::copy_merged::copy_tree;
use crate::layers::deferred::Deferred;
use crate::layers::stack::Found;
use crate::layers::walk::{LastLink, Resolved};
use crate::layers::whiteouts::OPAQUE;

impl Union {
    /// Copies the directory `from` to `to`, where nothing may be: built aside, then put in its place in one step.
    pub(super) fn copy_directory(&self, from: &RelPath, to: &RelPath) -> Result<Deferred> {
        let (dirs, mode) = match self.resolve(from, LastLink::Follow)? {
            Resolved { last: Some((_, Some(Found::Directory(dirs, stat, _)))), .. } => (dirs, stat.mode),
            Resolved { mut levels, last: None } => {
                let level = levels.pop().ok_or_else(|| Error::NotFound(from.to_string()))?;
                let mode = level.dirs.stat()?.0.mode;
                (level.dirs, mode)
            }
            Resolved { last: Some((_, Some(_))), .. } => return Err(Error::NotADirectory(from.to_string())),
            Resolved { last: Some((_, None)), .. } => return Err(Error::NotFound(from.to_string())),
        };
        let target = self.destination(to, true)?;
        let draft = self.stage.draft();
        let copy = self.stage.dir().create_dir(&draft.name, mode | 0o700)?;
        self.stage.projects().mark_like(&copy, &target.upper)?;
        copy_tree(&dirs, &copy, None, DEPTH_MAX)?;
        copy.set_mode(mode)?;
        if target.in_lower {
            copy.set_attribute(OPAQUE, b"y")?;
        }
        if self.is_strict() {
            copy.sync_file_system()?;
        }
        interrupt::commit()?;
        match draft.place_new(&target.upper, &target.name) {
            // A whiteout, which goes with the draft.
            Err(Error::AlreadyExists(_)) => {
                draft.exchange(&target.upper, &target.name)?;
            }
            placed => placed?,
        }
        Ok(Deferred::sync(target.upper))
    }
}

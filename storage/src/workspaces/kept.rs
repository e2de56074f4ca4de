//! Setting an unused sandbox aside, and bringing it back with its next use.
//!
//! Workspace and home are renamed, each in one step, to a directory of the service's own, and back with the next use.
//! A crash in between leaves one aside and one in its place, each whole: the next use brings back the one, the next
//! look sets the other aside. What is aside goes when its sandbox has been unused for [`Options::keep`] longer.
//!
//! [`Options::keep`]: crate::Options

use std::ffi::OsStr;
use std::sync::Arc;

use super::Workspaces;
use super::used::directory;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::trash::Leftovers;
use crate::layout;
use policy::WorkspaceId;

/// The names of workspace and home while they are aside, in the order of [`layout::of_sandbox`].
const NAMES: [&str; 2] = ["workspace", "home"];

impl Workspaces {
    /// Brings back what was set aside of a sandbox. Tells whether there was anything. The caller holds none of its
    /// trees.
    ///
    /// A part that has another in its place meanwhile stays aside.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn bring_back(&self, id: &WorkspaceId) -> Result<bool> {
        if !self.is_kept(id)? {
            return Ok(false);
        }
        let _alone = self.store.locks().write(&id.workspace());
        // Another request may have come first.
        let Some(kept) = self.kept_dir(id)? else { return Ok(false) };
        // Before anything is there, so that no look finds it unused.
        self.record_use(id)?;
        let mut is_back = false;
        for (name, place) in NAMES.iter().zip(layout::of_sandbox(&id.user, &id.agent)?) {
            let (Some(above), Some(own_name)) = (place.parent(), place.file_name()) else { continue };
            let above = self.store.stage().ensure_path(self.store.root(), &above)?;
            match kept.rename_new(OsStr::new(name), &above, OsStr::new(own_name)) {
                Ok(()) => is_back = true,
                Err(Error::NotFound(_)) => continue,
                Err(Error::AlreadyExists(_)) => {
                    tracing::warn!(
                        user = %id.user, agent = %id.agent, name,
                        "a part of a kept workspace stays aside: another is in its place"
                    );
                    continue;
                }
                Err(error) => return Err(error),
            }
            if self.store.is_strict() {
                above.sync()?;
                kept.sync()?;
            }
        }
        self.remove_empty_kept(id)?;
        self.store.accounts().forget(&id.workspace());
        Ok(is_back)
    }

    /// Moves workspace and home aside. Returns what was aside before and has to give way. The caller holds the workspace
    /// alone.
    pub(super) fn set_aside(&self, id: &WorkspaceId) -> Result<Leftovers> {
        let mut leftovers = Leftovers::default();
        let kept = self.store.stage().ensure_path(self.store.root(), &layout::kept(&id.user, &id.agent)?)?;
        for (name, place) in NAMES.iter().zip(layout::of_sandbox(&id.user, &id.agent)?) {
            let (Some(above), Some(own_name)) = (place.parent(), place.file_name()) else { continue };
            let Some(above) = directory(self.store.root(), &above)? else { continue };
            if above.stat_entry(OsStr::new(own_name))?.is_none() {
                continue;
            }
            let name = OsStr::new(name);
            if kept.stat_entry(name)?.is_some() {
                leftovers.trash.push(Arc::new(self.store.stage().discard(
                    &kept,
                    name,
                    Some(&id.workspace()),
                )?));
            }
            above.rename_new(OsStr::new(own_name), &kept, name)?;
            if self.store.is_strict() {
                kept.sync()?;
                above.sync()?;
            }
        }
        self.store.accounts().forget(&id.workspace());
        self.store.uses().forget(id);
        Ok(leftovers)
    }

    /// Tells whether something of a sandbox is aside.
    pub(super) fn is_kept(&self, id: &WorkspaceId) -> Result<bool> {
        Ok(self.kept_dir(id)?.is_some())
    }

    fn kept_dir(&self, id: &WorkspaceId) -> Result<Option<Dir>> {
        directory(self.store.root(), &layout::kept(&id.user, &id.agent)?)
    }

    fn remove_empty_kept(&self, id: &WorkspaceId) -> Result<()> {
        let place = layout::kept(&id.user, &id.agent)?;
        let (Some(above), Some(name)) = (place.parent(), place.file_name()) else { return Ok(()) };
        let Some(above) = directory(self.store.root(), &above)? else { return Ok(()) };
        match above.remove_dir(OsStr::new(name)) {
            Ok(()) | Err(Error::NotEmpty(_) | Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

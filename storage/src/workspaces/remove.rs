//! Taking a sandbox away.
//!
//! Workspace and home are renamed into the stage, each in one step, and removed from there: a crash leaves each whole
//! or gone, and the next start removes what it left in the stage.

use std::ffi::OsStr;
use std::sync::Arc;

use policy::RelPath;

use super::Workspaces;
use super::used::directory;
use crate::error::{Error, Result};
use crate::layers::trash::{Leftovers, Trash};
use crate::layout;
use policy::WorkspaceId;

/// The outcome of sweeping an unused sandbox.
pub enum Swept {
    /// The sandbox is aside, until it is used or has been unused for longer. An older one that was aside is removed.
    SetAside(Leftovers),
    /// The sandbox is removed.
    Removed(Leftovers),
}

impl Workspaces {
    /// Removes a sandbox: its workspace and its home, and with `snapshots` those too. Tells whether there was
    /// anything.
    ///
    /// # Errors
    /// [`Error::Conflict`] while it has an occupant, or a snapshot of it is under way; [`Error::Io`].
    pub fn remove(&self, id: &WorkspaceId, snapshots: bool) -> Result<(bool, Leftovers)> {
        let hand = match self.store.snapshots().take_in_hand(id) {
            Err(Error::Conflict(_)) if !snapshots => None,
            hand => Some(hand?),
        };
        let _alone = self.store.locks().write(&id.workspace());
        self.check_left(id)?;
        let kept = self.store.snapshots().count(id)?;
        let was_there = self.is_there(id)? || self.is_kept(id)? || (snapshots && kept > 0);
        let mut places = layout::of_sandbox(&id.user, &id.agent)?.to_vec();
        places.push(layout::kept(&id.user, &id.agent)?);
        if hand.is_some() && (snapshots || kept == 0) {
            places.push(layout::sandbox(&id.user, &id.agent)?);
        }
        Ok((was_there, self.take_out(id, &places)?))
    }

    /// Sets a sandbox aside that has no occupant and has been unused for as long as [`Options::idle`](crate::Options)
    /// says, and removes one that has been aside for as long as [`Options::keep`](crate::Options) says; `None` when it
    /// is not so. Snapshots stay.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sweep(&self, id: &WorkspaceId) -> Result<Option<Swept>> {
        let _alone = self.store.locks().write(&id.workspace());
        if self.occupants(id) > 0 || !self.is_idle(id)? {
            return Ok(None);
        }
        let keeps = !self.store.options().keep.is_zero();
        if keeps && self.is_there(id)? {
            return Ok(Some(Swept::SetAside(self.set_aside(id)?)));
        }
        if keeps && !self.is_expired(id)? {
            return Ok(None);
        }
        let mut places = layout::of_sandbox(&id.user, &id.agent)?.to_vec();
        places.push(layout::kept(&id.user, &id.agent)?);
        let mut taken = self.take_out(id, &places)?;
        if taken.trash.is_empty() {
            return Ok(None);
        }
        taken.trash.extend(self.take_record(id));
        Ok(Some(Swept::Removed(taken)))
    }

    /// The sandboxes that may be swept, sorted: at most `most` of those that come after `after`. Keeps the uptime.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn idle(&self, after: Option<&WorkspaceId>, most: usize) -> Result<Vec<WorkspaceId>> {
        self.keep_uptime()?;
        let mut idle = Vec::new();
        if self.store.options().idle.is_none() {
            return Ok(idle);
        }
        for id in self.list(None)? {
            if idle.len() >= most {
                break;
            }
            if after.is_some_and(|after| id <= *after) || self.occupants(&id) > 0 {
                continue;
            }
            let held = self.store.locks().read(&id.workspace());
            if self.is_idle(&id)? {
                if self.is_there(&id)? || (self.is_kept(&id)? && self.is_expired(&id)?) {
                    idle.push(id);
                } else if !self.is_kept(&id)? {
                    let record = self.take_record(&id);
                    drop(held);
                    drop(record);
                }
            }
        }
        Ok(idle)
    }

    /// Moves directories of a sandbox into the trash. The caller holds the workspace alone.
    fn take_out(&self, id: &WorkspaceId, places: &[RelPath]) -> Result<Leftovers> {
        let mut taken = Leftovers::default();
        for place in places {
            taken.trash.extend(self.take_place(id, place)?.map(Arc::new));
        }
        self.store.remove_short_way(&id.workspace())?;
        drop(self.store.points().forget(&id.workspace()));
        self.store.accounts().forget(&id.workspace());
        self.store.accounts().snapshots_changed(id);
        self.store.uses().forget(id);
        Ok(taken)
    }

    /// Moves a directory into the trash, if it is there.
    fn take_place(&self, id: &WorkspaceId, place: &RelPath) -> Result<Option<Trash>> {
        let (Some(above), Some(name)) = (place.parent(), place.file_name()) else { return Ok(None) };
        let Some(above) = directory(self.store.root(), &above)? else { return Ok(None) };
        let trash = match self.store.stage().discard(&above, OsStr::new(name), Some(&id.workspace())) {
            Err(Error::NotFound(_)) => return Ok(None),
            trash => trash?,
        };
        if self.store.is_strict() {
            above.sync()?;
        }
        Ok(Some(trash))
    }

    /// Moves the record of a sandbox that has no snapshots into the trash, with what a death left among its objects. The
    /// caller holds the workspace.
    fn take_record(&self, id: &WorkspaceId) -> Option<Arc<Trash>> {
        let taken = || {
            let _hand = self.store.snapshots().take_in_hand(id)?;
            match self.store.snapshots().count(id)? {
                0 => self.take_place(id, &layout::sandbox(&id.user, &id.agent)?),
                _ => Ok(None),
            }
        };
        match taken() {
            Ok(trash) => trash.map(Arc::new),
            // Another request is making a snapshot, or removing one.
            Err(Error::Conflict(_)) => None,
            Err(error) => {
                let (user, agent) = (&id.user, &id.agent);
                tracing::warn!(
                    %error, %user, %agent,
                    "failed to remove the record of a removed workspace: the record stays"
                );
                None
            }
        }
    }
}

//! Taking a sandbox away.
//!
//! Workspace and home are renamed into the stage, each in one step, and removed from there: a crash leaves each whole
//! or gone, and the next start removes what it left in the stage.

use std::ffi::OsStr;
use std::sync::Arc;

use policy::RelPath;

use super::SandboxId;
use super::used::directory;
use crate::error::{Error, Result};
use crate::place;
use crate::stage::{Leftovers, Trash};
use crate::store::Store;

impl Store {
    /// Removes a sandbox: its workspace and its home, and with `snapshots` those too. Tells whether there was
    /// anything.
    ///
    /// # Errors
    /// [`Error::Conflict`] while somebody is in it, or a snapshot of it is under way; [`Error::Io`].
    pub fn remove_sandbox(&self, id: &SandboxId, snapshots: bool) -> Result<(bool, Leftovers)> {
        let _hand = snapshots.then(|| self.take_in_hand(id)).transpose()?;
        let mut places = place::of_sandbox(&id.user, &id.agent)?.to_vec();
        if snapshots {
            places.push(place::sandbox(&id.user, &id.agent)?);
        }
        let _alone = self.inner.locks.write(&id.workspace());
        self.check_left(id)?;
        let taken = self.take_out(id, &places)?;
        Ok((!taken.trash.is_empty(), taken))
    }

    /// Removes a sandbox that nobody is in and nobody has used for as long as [`Options::idle`](crate::Options) says;
    /// `None` when it is not so. Snapshots stay.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sweep(&self, id: &SandboxId) -> Result<Option<Leftovers>> {
        let _alone = self.inner.locks.write(&id.workspace());
        if self.occupants(id) > 0 || !self.is_idle(id)? {
            return Ok(None);
        }
        let taken = self.take_out(id, &place::of_sandbox(&id.user, &id.agent)?)?;
        Ok((!taken.trash.is_empty()).then_some(taken))
    }

    /// The sandboxes that may be swept, sorted: at most `most` of those that come after `after`. Keeps the uptime.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn idle_sandboxes(&self, after: Option<&SandboxId>, most: usize) -> Result<Vec<SandboxId>> {
        self.keep_uptime()?;
        let mut idle = Vec::new();
        if self.inner.options.idle.is_none() {
            return Ok(idle);
        }
        for id in self.sandboxes(None)? {
            if idle.len() >= most {
                break;
            }
            if after.is_some_and(|after| id <= *after) || self.occupants(&id) > 0 {
                continue;
            }
            let _held = self.inner.locks.read(&id.workspace());
            if self.is_idle(&id)? {
                let places = place::of_sandbox(&id.user, &id.agent)?;
                let is_there =
                    |place: &RelPath| Ok::<_, Error>(directory(&self.inner.root, place)?.is_some());
                if is_there(&places[0])? || is_there(&places[1])? {
                    idle.push(id);
                } else {
                    self.forget_sandbox(&id);
                }
            }
        }
        Ok(idle)
    }

    /// Moves directories of a sandbox into the stage. The caller holds the workspace alone.
    fn take_out(&self, id: &SandboxId, places: &[RelPath]) -> Result<Leftovers> {
        let mut taken = Leftovers::default();
        for place in places {
            let (Some(above), Some(name)) = (place.parent(), place.file_name()) else { continue };
            let Some(above) = directory(&self.inner.root, &above)? else { continue };
            let trash: Trash = match self.inner.stage.discard(&above, OsStr::new(name)) {
                Err(Error::NotFound(_)) => continue,
                trash => trash?,
            };
            taken.trash.push(Arc::new(trash));
            if self.is_strict() {
                above.sync()?;
            }
        }
        self.inner.accounts.forget(&id.workspace());
        self.inner.uses.forget(id);
        self.forget_sandbox(id);
        Ok(taken)
    }

    /// Removes the record of a sandbox that has no snapshots.
    fn forget_sandbox(&self, id: &SandboxId) {
        let removed = || {
            let Some(above) =
                directory(&self.inner.root, &RelPath::parse(place::SANDBOXES)?.join(id.user.as_str())?)?
            else {
                return Ok(());
            };
            above.remove_dir(OsStr::new(id.agent.as_str()))
        };
        match removed() {
            Ok(()) | Err(Error::NotEmpty(_) | Error::NotFound(_)) => {}
            Err(error) => tracing::warn!(%error, "the record of a removed sandbox stays"),
        }
    }

    /// Removes the directories of users that have nothing any more. Nobody else uses the store yet.
    pub(crate) fn tidy_users(&self) -> Result<()> {
        for place in [place::WORKSPACES, place::HOMES, place::SANDBOXES] {
            let all = self.inner.root.open_dir(&RelPath::parse(place)?)?;
            for entry in all.entries()? {
                match all.remove_dir(&entry.name) {
                    Ok(()) | Err(Error::NotEmpty(_) | Error::NotADirectory(_)) => {}
                    Err(error) => tracing::warn!(%error, "an empty directory stays"),
                }
            }
        }
        Ok(())
    }
}

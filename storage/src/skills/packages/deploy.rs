//! Deploying a package in a workspace: unpacked aside once, and given its name in one step.

use policy::{ArchiveLimits, RelPath, VersionId, WorkspaceId};

use super::Packages;
use crate::core::growth::Growth;
use crate::dir::DEPTH_MAX;
use crate::error::{Error, Result};
use crate::layers::chain::give;
use crate::skills::archive;

impl Packages {
    /// Unpacks the package of a version as the directory `to` of a workspace, where nothing may be. The directory above must be
    /// there. Everything in it counts for the workspace, and belongs to its user. Tells whether there is such a package.
    ///
    /// After an error, and after a crash, nothing is there.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a workspace that was never written to, and a directory above that is missing; [`Error::AlreadyExists`]; [`Error::Quota`]; [`Error::Damaged`], [`Error::Archive`] as [`Packages::unpack`]; [`Error::Full`],
    /// [`Error::NoSpace`], [`Error::Io`]; those of [`crate::interrupt::check`].
    pub fn deploy(
        &self,
        version: &VersionId,
        workspace: &WorkspaceId,
        to: &RelPath,
        limits: &ArchiveLimits,
    ) -> Result<bool> {
        let id = workspace.workspace();
        let file = match self.intact(version) {
            Err(Error::NotFound(_)) => return Ok(false),
            found => found?,
        };
        let (plain, packed) = self.whole_tree(&file, limits)?;
        let growth = Growth { adds: packed.taken(), ..Growth::REMOVAL };
        self.store.admit_space_for(growth.adds.bytes)?;
        // On its way to the tree until it is counted there.
        let mut flight = self.store.flight_to(&id);
        flight.take(growth.adds.bytes)?;
        self.store.admit_arriving(&id, 0).map_err(|error| self.store.in_numbers(&id, error))?;
        let place = || {
            let tree = self.store.plain(&id, false)?;
            let (parent, name) = tree.parent_of(to)?;
            let (draft, made) = tree.begin_dir(&parent, archive::DIRECTORY_MODE)?;
            archive::extract_whole(plain.as_ref().unwrap_or(&file), &packed, &made)?;
            if let Some(owner) = tree.owner {
                give(&made, owner, DEPTH_MAX)?;
            }
            let _held = self.store.locks().write(&id);
            drop(flight);
            let admitted = self.store.admit(&id, &growth)?;
            let placed = tree.place_dir((&draft, &made), archive::DIRECTORY_MODE, (parent, &name), to)?;
            self.store.accounts().change(&id, &growth);
            drop(admitted);
            placed.settle(self.store.is_strict())
        };
        place().map(|()| true).map_err(|error| self.store.in_numbers(&id, error))
    }
}

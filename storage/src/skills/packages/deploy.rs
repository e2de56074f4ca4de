//! Deploying a package in a workspace: built aside, from its archive or from files that are kept unpacked, and given its name in one
//! step.

use policy::{ArchiveLimits, RelPath, VersionId, WorkspaceId};

use super::Packages;
use super::unpacked::UnpackedFiles;
use crate::core::growth::Growth;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::layers::chain::give;
use crate::skills::archive;
use crate::stat::Use;

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
        let package = match self.open(version) {
            Err(Error::NotFound(_)) => return Ok(false),
            found => found?,
        };
        let (file, digest) = (&package.0, &package.1.digest);
        let kept = UnpackedFiles::of(&self.store)?;
        if let Some(placed) = self.place_kept(&kept, digest, (workspace, to), limits)? {
            return Ok(placed);
        }
        self.intact(&package)?;
        let (plain, packed) = self.whole_tree(file, limits)?;
        if kept.was_deployed(digest, packed.taken()) {
            self.store.admit_space_for(packed.taken().bytes)?;
            drop(self.unpacked((file, digest), limits, Some(&workspace.user))?);
            if let Some(placed) = self.place_kept(&kept, digest, (workspace, to), limits)? {
                return Ok(placed);
            }
        }
        let extract =
            |made: &Dir| archive::extract_whole(plain.as_ref().unwrap_or(file), &packed, made).map(drop);
        self.place((workspace, to), packed.taken(), extract).map(|()| true)
    }

    /// Deploys from files that are kept unpacked. `None` when they are not, or not all of them.
    fn place_kept(
        &self,
        kept: &UnpackedFiles<'_>,
        digest: &str,
        there: (&WorkspaceId, &RelPath),
        limits: &ArchiveLimits,
    ) -> Result<Option<bool>> {
        let Some(list) = kept.list(digest, limits)? else { return Ok(None) };
        match self.place(there, list.taken(), |made| kept.copy(digest, list, made)) {
            Err(Error::Damaged(_)) => Ok(None),
            placed => placed.map(|()| Some(true)),
        }
    }

    /// Makes the directory `to` of a workspace, which `fill` fills and which takes this room.
    fn place(
        &self,
        (workspace, to): (&WorkspaceId, &RelPath),
        adds: Use,
        fill: impl FnOnce(&Dir) -> Result<()>,
    ) -> Result<()> {
        let id = workspace.workspace();
        let growth = Growth { adds, ..Growth::REMOVAL };
        self.store.admit_space_for(growth.adds.bytes)?;
        // On its way to the tree until it is counted there.
        let mut flight = self.store.flight_to(&id);
        flight.take(growth.adds.bytes)?;
        self.store.admit_arriving(&id, 0).map_err(|error| self.store.in_numbers(&id, error))?;
        let place = || {
            let tree = self.store.plain(&id, false)?;
            let (parent, name) = tree.parent_of(to)?;
            let (draft, made) = tree.begin_dir(&parent, archive::DIRECTORY_MODE)?;
            fill(&made)?;
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
        place().map_err(|error| self.store.in_numbers(&id, error))
    }
}

//! Having the kernel keep what trees may take, where the file system has project quotas ([`Projects`]).
//!
//! The service goes on counting and refusing as it does without them. The kernel stands behind it while commands run: what
//! they do beyond the limit fails at once, in them, instead of being found at the next look.
//!
//! [`Projects`]: crate::layers::projects::Projects

use policy::{TreeId, WorkspaceId};

use crate::core::store::Store;
use crate::core::usage::Ceiling;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::projects::Projects;
use crate::stat::Use;

/// What a skill may take beyond its limit while it is mounted. Overlayfs needs room to make it smaller: a whiteout for each
/// entry of the baseline that is removed, its work directory, and a whole second file until that takes the place of the
/// first. The looks of the service end a run that stays above the limit.
const VIEW_MARGIN: Use = Use { bytes: 16 * 1024 * 1024, files: 1000 };

impl Store {
    /// Tells whether the kernel keeps what trees may take, or in words why the service does so alone.
    ///
    /// # Errors
    /// The reason, without paths of the host.
    pub fn kernel_keeps_quotas(&self) -> Result<(), &str> {
        self.inner.kernel_quotas.as_ref().copied().map_err(String::as_str)
    }

    fn projects(&self) -> &Projects {
        self.inner.stage.projects()
    }

    /// Entries that are given to a project at once: as many as a count visits.
    fn marked_max(&self, id: &TreeId) -> usize {
        let most = self.limits_of(id).files.saturating_mul(2).saturating_add(1);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// The directories of a sandbox that are there, each with its project.
    fn parts(&self, id: &WorkspaceId) -> Result<Vec<(Dir, Option<u32>)>> {
        let dirs = self.counted_dirs(&id.workspace())?.into_iter();
        dirs.map(|dir| self.projects().of(&dir).map(|project| (dir, project))).collect()
    }

    /// Whether the caller is the only one in a sandbox.
    fn is_alone(&self, id: &WorkspaceId) -> bool {
        self.inner.occupants.sandboxes.lock().get(id).is_none_or(|occupancy| occupancy.runs <= 1)
    }

    /// Marks the empty directory of a workspace that is being made: with the project of the home, if that has one.
    pub(crate) fn begin_workspace(&self, id: &TreeId, dir: &Dir) -> Result<()> {
        if self.projects().keep() {
            let parts = self.parts(&WorkspaceId::of(id))?;
            let project = parts.iter().find_map(|(_, project)| *project);
            self.projects().begin(dir, project);
        }
        Ok(())
    }

    /// Sees to it that workspace and home, as far as they are there, are of one project. The caller holds none of their
    /// trees and is in the sandbox.
    ///
    /// What fails is told to the operator: the service then keeps the limit alone.
    pub(crate) fn unite(&self, id: &WorkspaceId) {
        if self.projects().keep()
            && let Err(error) = self.try_unite(id)
        {
            tracing::warn!(%error, user = %id.user, agent = %id.agent, "the kernel does not keep the quota of a sandbox");
        }
    }

    fn try_unite(&self, id: &WorkspaceId) -> Result<()> {
        let is_one = |parts: &[(Dir, Option<u32>)]| {
            let first = parts.first().and_then(|(_, project)| *project);
            first.is_some() && parts.iter().all(|(_, project)| *project == first)
        };
        if is_one(&self.parts(id)?) {
            return Ok(());
        }
        let _alone = self.inner.locks.write(&id.workspace());
        let parts = self.parts(id)?;
        if is_one(&parts) {
            return Ok(());
        }
        let owner = self.owner(&id.workspace());
        let mut common = parts.iter().find_map(|(_, project)| *project);
        for (dir, project) in parts {
            if project.is_some() && project == common {
                continue;
            }
            if dir.first_entries(1)?.is_empty() {
                self.projects().begin(&dir, common);
            } else if self.is_alone(id) {
                self.projects().mark_tree(&dir, common, owner, self.marked_max(&id.workspace()))?;
            } else {
                // A command may be making things in it. The next run that is alone sees to it.
                tracing::debug!(user = %id.user, agent = %id.agent, "a sandbox that is in use is not given to a project");
                return Ok(());
            }
            common = common.or(self.projects().of(&dir)?);
        }
        Ok(())
    }

    /// Gives an overlay that is about to be mounted to a project, unless it is of one. The caller holds the tree alone.
    pub(crate) fn mark_overlay(&self, id: &TreeId, upper: &Dir) {
        let marked = || match self.projects().of(upper)? {
            Some(_) => Ok(()),
            None => self.projects().mark_tree(upper, None, None, self.marked_max(id)),
        };
        if self.projects().keep()
            && let Err(error) = marked()
        {
            tracing::warn!(%error, "the kernel does not keep the quota of a skill");
        }
    }

    /// Has the kernel keep the tree `id` within what a run that begins may let it grow to.
    pub(crate) fn allot(&self, id: &TreeId, ceiling: Ceiling) {
        if self.projects().keep()
            && let Err(error) = self.try_allot(id, ceiling)
        {
            tracing::warn!(%error, tree = %id.sandbox_path(), user = %id.user(), "the kernel does not keep the quota of a tree");
        }
    }

    /// Has the kernel keep a copy of the tree `id` that a run works on, which takes `first`, within what may be taken over
    /// from it.
    pub(crate) fn allot_copy(&self, id: &TreeId, copy: &Dir, first: Use, ceiling: Ceiling) {
        let allot = || {
            let Some(project) = self.projects().of(copy)? else { return Ok(()) };
            let taken = match self.inner.accounts.known(id) {
                Some(known) => known.counted.taken,
                None => self.count(id)?.taken,
            };
            let Ceiling::At(most) = ceiling.seen(taken, self.limits_of(id)) else { return Ok(()) };
            self.projects().allot(project, at_least_something(most.minus(taken).plus(first)))
        };
        if self.projects().keep()
            && let Err(error) = allot()
        {
            tracing::warn!(%error, tree = %id.sandbox_path(), user = %id.user(), "the kernel does not keep the quota of a copy");
        }
    }

    fn try_allot(&self, id: &TreeId, ceiling: Ceiling) -> Result<()> {
        let Some(dir) = self.counted_dirs(id)?.into_iter().next() else { return Ok(()) };
        let Some(project) = self.projects().of(&dir)? else { return Ok(()) };
        let ceiling = match ceiling {
            Ceiling::Unknown => ceiling.seen(self.projects().taken(project)?, self.limits_of(id)),
            Ceiling::At(_) => ceiling,
        };
        let Ceiling::At(most) = ceiling else { return Ok(()) };
        let most = match id {
            TreeId::Skill(..) => most.plus(VIEW_MARGIN),
            TreeId::Workspace(..) => most,
        };
        self.projects().allot(project, at_least_something(most))
    }

    /// Says what the tree `id` takes and may take when the kernel has refused it more.
    pub(crate) fn in_numbers(&self, id: &TreeId, error: Error) -> Error {
        let Error::OverQuota(_) = &error else { return error };
        let Ok(counted) = self.count(id) else { return error };
        let (limits, [of_bytes, of_files]) = (self.limits_of(id), self.settings_of(id));
        let (taken, tree) = (counted.taken, id.sandbox_path());
        // Whichever is nearer to its limit.
        let is_files = u128::from(taken.files) * u128::from(limits.bytes)
            > u128::from(taken.bytes) * u128::from(limits.files);
        match is_files {
            true => Error::Quota {
                tree,
                setting: of_files,
                unit: "files",
                used: taken.files,
                limit: limits.files,
                needs: 1,
            },
            false => Error::Quota {
                tree,
                setting: of_bytes,
                unit: "bytes",
                used: taken.bytes,
                limit: limits.bytes,
                needs: limits.bytes.saturating_sub(taken.bytes).saturating_add(1),
            },
        }
    }
}

/// Limits that are some: the kernel takes 0 for none.
fn at_least_something(limits: Use) -> Use {
    Use { bytes: limits.bytes.max(1024), files: limits.files.max(1) }
}

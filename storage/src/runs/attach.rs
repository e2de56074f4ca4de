//! [`Attachment`]: the directories of a run that stands at paths of its own.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use policy::TreeId;
use policy::attachment::{HOME, Role, TEMPORARY};

use super::points::MountPoints;
use super::{By, PreparedRun};
use crate::error::Result;
use crate::layout;

/// A directory of a run, open for paths only: the root of a live view's mount, or a directory of the store. It is to be
/// cloned (open_tree(2), `OPEN_TREE_CLONE` and `AT_EMPTY_PATH`).
pub type Attachment = policy::attachment::Attachment<Arc<OwnedFd>>;

impl PreparedRun {
    /// The directories of the run: its tree first, then what is attached inside it, then home and temporary.
    ///
    /// Only those of a run planned as [`Mounted`](super::Placement::Mounted) are of use. The paths of skills are
    /// directories of the workspace, which other commands change: nothing may be attached through a link there.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when descriptors run out; [`Error::NotFound`](crate::Error::NotFound) when a
    /// command of the same user has removed one.
    pub fn attachments(&self) -> Result<Vec<Attachment>> {
        // The tree, home and temporary, and the skills.
        let mut attachments = Vec::with_capacity(self.skills.len() + 3);
        let is_copied = self.skills.iter().any(|seen| seen.id == self.id);
        let tree = match &self.id {
            TreeId::Workspace(..) if !is_copied => Some(self.store.plain(&self.id, false)?.dir),
            TreeId::Workspace(..) | TreeId::Skill(..) => None,
        };
        if let Some(tree) = tree {
            let directory = Arc::new(tree.duplicate()?);
            let at = self.id.sandbox_path();
            let points = self.points.as_ref().map_or(0, MountPoints::number);
            attachments.push(Attachment { at, directory, role: Role::Tree, generation: 0, points });
        }
        for seen in &self.skills {
            let (directory, generation) = match &seen.by {
                By::Live(seat) => (seat.mount(), seat.generation()),
                By::Copy(copy) => (Arc::new(copy.dir.duplicate()?), 0),
                By::Shared(_) => continue,
            };
            let at = seen.id.sandbox_path();
            let role = if seen.id == self.id { Role::Tree } else { Role::Skill };
            attachments.push(Attachment { at, directory, role, generation, points: 0 });
        }
        let temporary = self.home.open_dir_entry(OsStr::new(layout::TEMPORARY_NAME))?;
        for (at, dir, role) in [(HOME, &self.home, Role::Home), (TEMPORARY, &temporary, Role::Temporary)] {
            let directory = Arc::new(dir.duplicate()?);
            attachments.push(Attachment { at: at.to_owned(), directory, role, generation: 0, points: 0 });
        }
        Ok(attachments)
    }

    /// The locks of the live views that the run is in. The first process of the run is to have duplicates of them for as
    /// long as it lives, so that no service mounts these views anew meanwhile, not even after this one has died.
    #[must_use]
    pub fn leases(&self) -> Vec<Arc<OwnedFd>> {
        let seats = self.skills.iter().filter_map(|seen| match &seen.by {
            By::Live(seat) => Some(seat),
            By::Copy(_) | By::Shared(_) => None,
        });
        seats.map(|seat| seat.lease()).collect()
    }
}

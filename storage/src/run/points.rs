//! [`MountPoints`]: the directories in a workspace to which skills are attached for a run.
//!
//! They are made for the first run that needs them and removed, when they are empty, after the last. Not before: to
//! remove a directory takes off whatever another run has attached there (mount_namespaces(7), "Restrictions").

use std::collections::HashMap;
use std::ffi::OsStr;

use parking_lot::Mutex;
use policy::{SkillId, TreeId};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::store::Store;

/// The directory of a workspace that skills are attached in.
const SKILLS: &str = "skills";

/// What workspaces hold for runs: how many runs, and whether it was made for them. No more than runs under way ask for.
#[derive(Default)]
pub(crate) struct Points {
    held: Mutex<HashMap<(TreeId, SkillId), Point>>,
}

#[derive(Default)]
struct Point {
    runs: usize,
    was_made: bool,
}

/// What one workspace holds for one run. Dropping it gives it back.
pub(super) struct MountPoints {
    store: Store,
    workspace: TreeId,
    skills: Vec<SkillId>,
}

impl Store {
    /// Makes the directories of `skills` in a workspace that is there.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something that is no directory stands there; [`Error::NoSpace`].
    pub(super) fn mount_points(&self, workspace: &TreeId, skills: &[SkillId]) -> Result<MountPoints> {
        let _alone = self.inner.locks.write(workspace);
        let tree = self.plain(workspace, true)?;
        let (above, _) = self.directory_in(&tree.dir, OsStr::new(SKILLS), tree.owner, SKILLS)?;
        // Grows as they are made, so that those made so far are given back when one fails.
        let mut points =
            MountPoints { store: self.clone(), workspace: workspace.clone(), skills: Vec::new() };
        let mut held = self.inner.points.held.lock();
        for skill in skills {
            let made = self.directory_in(&above, OsStr::new(skill.as_str()), tree.owner, skill.as_str());
            let was_made = match made {
                Ok((_, was_made)) => was_made,
                Err(error) => {
                    drop(held);
                    drop(_alone);
                    return Err(error);
                }
            };
            let point = held.entry((workspace.clone(), skill.clone())).or_default();
            point.runs += 1;
            point.was_made |= was_made;
            points.skills.push(skill.clone());
        }
        Ok(points)
    }

    /// Opens the directory `name` of `dir`, making it for `owner`. Tells whether it was made.
    fn directory_in(&self, dir: &Dir, name: &OsStr, owner: Option<u32>, shown: &str) -> Result<(Dir, bool)> {
        match dir.open_dir_entry(name) {
            Err(Error::NotFound(_)) => {
                let trash = self.inner.stage.trash();
                let made = self.inner.stage.dir().create_dir(&trash.name, 0o755)?;
                if let Some(owner) = owner {
                    made.set_owner(owner)?;
                }
                self.inner.stage.dir().rename_new(&trash.name, dir, name)?;
                Ok((made, true))
            }
            Err(Error::NotADirectory(_) | Error::Escape(_)) => Err(Error::Conflict(format!(
                "`{shown}` in the workspace is not a directory, and skills are to stand there: move it, or run \
                 without skills"
            ))),
            opened => Ok((opened?, false)),
        }
    }
}

impl Drop for MountPoints {
    fn drop(&mut self) {
        let inner = &self.store.inner;
        let _alone = inner.locks.write(&self.workspace);
        let mut held = inner.points.held.lock();
        let above = self.store.plain(&self.workspace, false);
        let above = above.and_then(|tree| tree.dir.open_dir_entry(OsStr::new(SKILLS)));
        for skill in self.skills.drain(..) {
            let key = (self.workspace.clone(), skill);
            let Some(point) = held.get_mut(&key) else { continue };
            point.runs -= 1;
            if point.runs > 0 {
                continue;
            }
            if point.was_made
                && let Ok(above) = &above
            {
                // What a command left in it, or put in its place, stays.
                let _removed = above.remove_dir(OsStr::new(key.1.as_str()));
            }
            held.remove(&key);
        }
    }
}

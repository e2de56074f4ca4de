//! [`MountPoints`]: the directories in a workspace to which skills are attached for a run.
//!
//! They are made for the first run that needs them and removed, when they are empty, after the last. Not before: to
//! remove a directory takes off every mount that another run has there (mount_namespaces(7), "Restrictions").

use std::ffi::OsStr;

use policy::{SkillId, TreeId};

use crate::core::mount_points::PointKey;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::plain::Plain;

/// The directory of a workspace that skills are attached in.
const SKILLS: &str = "skills";

/// The mount points that one workspace holds for one run. Dropping this gives them back.
pub(super) struct MountPoints {
    store: Store,
    /// The directory above comes first.
    places: Vec<PointKey>,
}

impl Store {
    /// Makes the directories of `skills` in a workspace that is there.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something that is no directory stands there; [`Error::NoSpace`].
    pub(super) fn mount_points(&self, workspace: &TreeId, skills: &[SkillId]) -> Result<MountPoints> {
        // Grows as they are made, so that those made so far are given back when one fails. Dropped after the lock.
        let mut points = MountPoints { store: self.clone(), places: Vec::new() };
        let _alone = self.inner.locks.write(workspace);
        let Plain { dir, owner, .. } = self.plain(workspace, true)?;
        let (above, was_made) = self.directory_in(&dir, SKILLS, owner)?;
        points.hold((workspace.clone(), None), was_made);
        for skill in skills {
            let (_, was_made) = self.directory_in(&above, skill.as_str(), owner)?;
            points.hold((workspace.clone(), Some(skill.clone())), was_made);
        }
        Ok(points)
    }

    /// Opens the directory `name` of `dir`, making it for `owner`. Tells whether it was made.
    fn directory_in(&self, dir: &Dir, name: &str, owner: Option<u32>) -> Result<(Dir, bool)> {
        match dir.open_dir_entry(OsStr::new(name)) {
            Err(Error::NotFound(_)) => {
                // Made aside, so that it has its owner before it has its name.
                let draft = self.inner.stage.draft();
                let made = self.inner.stage.dir().create_dir(&draft.name, 0o755)?;
                if let Some(owner) = owner {
                    made.set_owner(owner)?;
                }
                draft.place_new(dir, OsStr::new(name))?;
                Ok((made, true))
            }
            Err(Error::NotADirectory(_) | Error::Escape(_)) => Err(Error::Conflict(format!(
                "`{name}` in the workspace is not a directory, and skills are to stand there: move it, or run \
                 without skills"
            ))),
            opened => Ok((opened?, false)),
        }
    }
}

impl MountPoints {
    fn hold(&mut self, place: PointKey, was_made: bool) {
        let mut held = self.store.inner.points.held.lock();
        let point = held.entry(place.clone()).or_default();
        point.runs += 1;
        point.was_made |= was_made;
        self.places.push(place);
    }
}

impl Drop for MountPoints {
    fn drop(&mut self) {
        let Some((workspace, _)) = self.places.first() else { return };
        let inner = &self.store.inner;
        let _alone = inner.locks.write(workspace);
        let mut held = inner.points.held.lock();
        let tree = self.store.plain(workspace, false).map(|tree| tree.dir);
        for place in self.places.iter().rev() {
            let Some(point) = held.get_mut(place) else { continue };
            point.runs -= 1;
            if point.runs > 0 {
                continue;
            }
            if point.was_made
                && let Ok(tree) = &tree
            {
                // Entries that a command left in the directory, or put in its place, stay.
                let _removed = match &place.1 {
                    None => tree.remove_dir(OsStr::new(SKILLS)),
                    Some(skill) => tree
                        .open_dir_entry(OsStr::new(SKILLS))
                        .and_then(|above| above.remove_dir(OsStr::new(skill.as_str()))),
                };
            }
            held.remove(place);
        }
    }
}

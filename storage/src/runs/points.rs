//! [`MountPoints`]: the directories in a workspace to which skills are attached for a run, or the links to their copies.
//!
//! They are made for the first run that needs them and removed, when they are empty, after the last. Not before: to
//! remove a directory takes off every mount that another run has there (mount_namespaces(7), "Restrictions").

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use policy::{SkillId, TreeId};

use crate::core::mount_points::PointKey;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::plain::Plain;
use crate::stat::Kind;

/// The directory of a workspace that skills are attached in.
const SKILLS: &str = "skills";

/// The mount points that one workspace holds for one run. Dropping this gives them back.
pub(super) struct MountPoints {
    store: Store,
    /// The directory above comes first.
    places: Vec<PointKey>,
}

impl Store {
    /// Makes the directories of `skills` in a workspace that is there; with `links`, links to these directories, one for
    /// each skill.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something else stands there; [`Error::NoSpace`].
    pub(super) fn mount_points(
        &self,
        workspace: &TreeId,
        skills: &[SkillId],
        links: Option<&[PathBuf]>,
    ) -> Result<MountPoints> {
        // Grows as they are made, so that those made so far are given back when one fails. Dropped after the lock.
        let mut points = MountPoints { store: self.clone(), places: Vec::new() };
        let _alone = self.inner.locks.write(workspace);
        let Plain { dir, owner, .. } = self.plain(workspace, true)?;
        let (above, was_made) = self.directory_in(&dir, SKILLS, owner)?;
        points.hold((workspace.clone(), None), was_made);
        for (index, skill) in skills.iter().enumerate() {
            let was_made = match links.map(|links| links.get(index)) {
                None => self.directory_in(&above, skill.as_str(), owner)?.1,
                Some(target) => self.link_in(&above, skill, target.map(PathBuf::as_path), owner)?,
            };
            points.hold((workspace.clone(), Some(skill.clone())), was_made);
        }
        Ok(points)
    }

    /// Makes a link to the copy of a skill in `above`. A link that a crash has left is replaced. Tells whether there is one
    /// to be removed at the end.
    fn link_in(
        &self,
        above: &Dir,
        skill: &SkillId,
        target: Option<&Path>,
        owner: Option<u32>,
    ) -> Result<bool> {
        let Some(target) = target else { return Ok(false) };
        let name = OsStr::new(skill.as_str());
        match above.stat_entry(name)? {
            Some(stat) if stat.kind == Kind::Symlink => {
                let found = above.read_link(name)?;
                if Path::new(&found) == target {
                    return Ok(true);
                }
                if !Path::new(&found).starts_with(self.copy_path(OsStr::new(""))) {
                    return Err(taken(skill.as_str()));
                }
                above.remove_file(name)?;
            }
            Some(stat) if stat.kind == Kind::Directory => {
                // As runs leave it where skills are mounted.
                above.remove_dir(name).map_err(|_| taken(skill.as_str()))?;
            }
            Some(_) => return Err(taken(skill.as_str())),
            None => {}
        }
        above.create_symlink(target.as_os_str(), name)?;
        if let Some(owner) = owner {
            above.set_entry_owner(name, owner)?;
        }
        Ok(true)
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
            Err(Error::NotADirectory(_) | Error::Escape(_)) => Err(taken(name)),
            opened => Ok((opened?, false)),
        }
    }
}

fn taken(name: &str) -> Error {
    Error::Conflict(format!(
        "`{name}` in the workspace is in the way of a skill that is to stand there: move it, or run without skills"
    ))
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
                        .and_then(|above| remove_point(&above, OsStr::new(skill.as_str()))),
                };
            }
            held.remove(place);
        }
    }
}

/// Removes an empty directory, or a link.
fn remove_point(above: &Dir, name: &OsStr) -> Result<()> {
    match above.stat_entry(name)? {
        Some(stat) if stat.kind == Kind::Symlink => above.remove_file(name),
        _ => above.remove_dir(name),
    }
}

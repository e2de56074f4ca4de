//! [`MountPoints`]: the directories in a workspace to which skills are attached for a run, or the links to their copies.
//!
//! They are made for the first run that needs them and go from the workspace, when they are empty, after the last. Not
//! before: to remove a directory takes off every mount that another run has there (mount_namespaces(7), "Restrictions").
//!
//! They go by one rename, and come back by another for the next run that sees the same skills, where the workspace has no
//! directory `skills` of its own. That is so much less than to make and remove a directory for each skill that a run which
//! sees many costs hardly more than one that sees none. They are removed where another run is in the workspace, or one that was
//! there may still have processes: these could have an open descriptor of the directory, and fill it outside the workspace,
//! where it does not count.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::{SkillId, TreeId, WorkspaceId};

use super::Runs;
use crate::core::lock::{Generation, TreeWrite};
use crate::core::mount_points::{IdlePoints, Mark, PointSet};
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
    workspace: TreeId,
    /// Whether the directory that the others lie in is held.
    holds_above: bool,
    /// Those that it holds one by one.
    skills: Vec<SkillId>,
    /// Those that it holds all at once.
    whole: Option<Arc<PointSet>>,
    /// Whether they are those of an earlier run, or the workspace's own.
    pub(super) are_kept: bool,
    /// That of their set; 0 for none.
    number: u64,
    /// The state of the workspace when they came back, if no other run was in it.
    since: Option<Undisturbed>,
}

/// The state of a workspace with one run in it. While it is the same, neither a request nor another run has changed anything
/// there, and the run itself does not reach what its mounts cover.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Undisturbed {
    generation: Generation,
    entered: u64,
}

/// What stands at the places of skills in a workspace.
#[derive(Clone, Copy)]
pub(super) enum Standing<'a> {
    /// Directories to which live views are attached.
    Views,
    /// Directories to which views or copies of the run's own are attached.
    Mounts,
    /// Links to these directories, one for each skill.
    Links(&'a [PathBuf]),
}

impl Undisturbed {
    fn held_once_more(self) -> Self {
        Self { generation: self.generation.after(1), ..self }
    }
}

impl Runs {
    /// Makes the directories of `skills` in a workspace that is there, or brings back those of the last run that saw them.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something else stands there; [`Error::NoSpace`].
    pub(super) fn mount_points(
        &self,
        workspace: &TreeId,
        skills: &[SkillId],
        standing: Standing<'_>,
    ) -> Result<MountPoints> {
        // Holds them as they are made, so that those made so far are given back when one fails. Dropped after the lock.
        let mut points = MountPoints {
            store: self.store.clone(),
            workspace: workspace.clone(),
            holds_above: false,
            skills: Vec::new(),
            whole: None,
            are_kept: false,
            number: 0,
            since: None,
        };
        let alone = self.store.locks().write(workspace);
        let Plain { dir, owner, .. } = self.store.plain(workspace, true)?;
        let recurs = matches!(standing, Standing::Views);
        if recurs && let Some(set) = self.same_points(workspace, skills, &dir) {
            points.hold_all(set);
            points.since = self.undisturbed(workspace, &alone);
            return Ok(points);
        }
        let (above, was_made) = self.directory_in(&dir, SKILLS, owner)?;
        points.hold_above(was_made);
        let (mut all_were_made, mut none_was_made) = (was_made && recurs, !was_made);
        let mut marks = Vec::with_capacity(skills.len());
        points.skills.reserve(skills.len());
        for (index, skill) in skills.iter().enumerate() {
            let was_made = match standing {
                Standing::Views | Standing::Mounts => {
                    let (point, was_made) = self.directory_in(&above, skill.as_str(), owner)?;
                    marks.push(Mark::from(&point.stat()?));
                    was_made
                }
                Standing::Links(links) => {
                    self.link_in(&above, skill, links.get(index).map(PathBuf::as_path), owner)?
                }
            };
            (all_were_made, none_was_made) = (all_were_made && was_made, none_was_made && !was_made);
            points.hold(skill, was_made);
        }
        let set = match all_were_made {
            true => {
                let (number, above) = (self.store.points().number(), Mark::from(&above.stat()?));
                Some(Arc::new(PointSet { number, skills: skills.to_vec(), marks, above }))
            }
            false => None,
        };
        points.is_set(set);
        points.are_kept = none_was_made;
        Ok(points)
    }

    /// The set of exactly `skills` in the workspace `dir`: of a run under way, or of an earlier one, which comes back. `None`
    /// when there is none, when something was done to it, or when something has its place.
    fn same_points(&self, workspace: &TreeId, skills: &[SkillId], dir: &Dir) -> Option<Arc<PointSet>> {
        let name = OsStr::new(SKILLS);
        let held = self.store.points().held.lock().get(workspace).map(|held| held.set.clone());
        if let Some(set) = held {
            let set = set.filter(|set| set.skills == skills)?;
            let above = dir.stat_entry(name).ok()??;
            return (Mark::from(&above) == set.above).then_some(set);
        }
        let IdlePoints { workspace, set, draft } = self.store.points().take(workspace, skills)?;
        match draft.place_new(dir, name) {
            Ok(()) => {
                let above = Mark::from(&dir.stat_entry(name).ok()??);
                Some(Arc::new(PointSet { above, ..Arc::unwrap_or_clone(set) }))
            }
            Err(Error::AlreadyExists(_)) => {
                // As many as before: none has to go.
                drop(self.store.points().put(IdlePoints { workspace, set, draft }));
                None
            }
            // They are made anew, which tells what is in the way.
            Err(_) => None,
        }
    }

    /// The state of a workspace that is held alone; `None` when more than one run is in it.
    fn undisturbed(&self, workspace: &TreeId, alone: &TreeWrite) -> Option<Undisturbed> {
        let generation = self.store.locks().generation_alone(workspace, alone);
        let sandboxes = self.store.occupancy().sandboxes.lock();
        let occupancy = sandboxes.get(&WorkspaceId::of(workspace)).filter(|occupancy| occupancy.runs == 1)?;
        Some(Undisturbed { generation, entered: occupancy.entered })
    }

    /// Moves the mount points `set` out of a workspace that no run needs them in, unless something was done to them. Returns
    /// those that have to go for them, `None` when they stay. The caller holds the workspace alone, whose directory is `tree`,
    /// and knows whether it `is_undisturbed` since they came back: then only the directory above is looked at.
    fn put_away(
        &self,
        workspace: &TreeId,
        set: Arc<PointSet>,
        tree: &Dir,
        is_undisturbed: bool,
    ) -> Result<Option<Vec<IdlePoints>>> {
        // The run itself is one.
        if self.store.workspaces().occupants(&WorkspaceId::of(workspace)) > 1 {
            return Ok(None);
        }
        let above = tree.open_dir_entry(OsStr::new(SKILLS))?;
        if Mark::from(&above.stat()?) != set.above {
            return Ok(None);
        }
        for (skill, mark) in set.skills.iter().zip(&set.marks).filter(|_| !is_undisturbed) {
            let stat = above.stat_entry(OsStr::new(skill.as_str()))?;
            if stat.is_none_or(|stat| Mark::from(&stat) != *mark) {
                return Ok(None);
            }
        }
        let draft = self.store.stage().draft();
        tree.rename_new(OsStr::new(SKILLS), self.store.stage().dir(), &draft.name)?;
        Ok(Some(self.store.points().put(IdlePoints { workspace: workspace.clone(), set, draft })))
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
                let draft = self.store.stage().draft();
                let made = self.store.stage().dir().create_dir(&draft.name, 0o755)?;
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
    /// The number of the set that they are, 0 for none; see [`Attachment`](super::Attachment).
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn hold_above(&mut self, was_made: bool) {
        let mut held = self.store.points().held.lock();
        held.entry(self.workspace.clone()).or_default().above.hold(was_made);
        self.holds_above = true;
    }

    fn hold(&mut self, skill: &SkillId, was_made: bool) {
        let mut held = self.store.points().held.lock();
        let skills = &mut held.entry(self.workspace.clone()).or_default().skills;
        skills.entry(skill.clone()).or_default().hold(was_made);
        self.skills.push(skill.clone());
    }

    /// Holds all mount points of `set`.
    fn hold_all(&mut self, set: Arc<PointSet>) {
        let mut points = self.store.points().held.lock();
        let held = points.entry(self.workspace.clone()).or_default();
        held.above.hold(true);
        self.holds_above = true;
        held.hold_whole(&set);
        self.number = set.number;
        self.are_kept = true;
        self.whole = Some(Arc::clone(&set));
        held.set = Some(set);
    }

    /// Notes which set the runs of the workspace hold, and that it is none when they see different skills.
    fn is_set(&mut self, set: Option<Arc<PointSet>>) {
        self.number = set.as_ref().map_or(0, |set| set.number);
        if let Some(held) = self.store.points().held.lock().get_mut(&self.workspace) {
            held.set = set;
        }
    }

    /// Gives back what this run holds. Returns what no run holds any more and was made for runs, the skills and whether it is
    /// the directory above, too; and the set of all.
    fn release(&self) -> (Vec<&SkillId>, bool, Option<Arc<PointSet>>) {
        let mut points = self.store.points().held.lock();
        let Some(held) = points.get_mut(&self.workspace) else { return (Vec::new(), false, None) };
        let mut free = self.whole.as_ref().map(|set| held.leave_whole(set)).unwrap_or_default();
        free.extend(self.skills.iter().filter(|skill| held.leave(skill)));
        if !self.holds_above {
            return (free, false, None);
        }
        let (is_last, was_made) = held.above.leave();
        if !is_last {
            return (free, false, None);
        }
        let set = points.remove(&self.workspace).and_then(|held| held.set);
        (free, was_made, set.filter(|_| was_made))
    }
}

impl Drop for MountPoints {
    fn drop(&mut self) {
        let alone = self.store.locks().write(&self.workspace);
        let now = self.store.runs().undisturbed(&self.workspace, &alone);
        // To hold it alone has counted as a change once more.
        let is_undisturbed =
            self.since.map(Undisturbed::held_once_more).is_some_and(|since| now == Some(since));
        let (free, above_is_free, set) = self.release();
        if free.is_empty() && !above_is_free {
            return;
        }
        let Ok(tree) = self.store.plain(&self.workspace, false).map(|tree| tree.dir) else { return };
        if let Some(set) = set
            && let Ok(Some(gone)) = self.store.runs().put_away(&self.workspace, set, &tree, is_undisturbed)
        {
            // Those that go are of other runs, which need not wait for that.
            drop(alone);
            drop(gone);
            return;
        }
        // Entries that a command left in a directory, or put in its place, stay.
        if let Ok(above) = tree.open_dir_entry(OsStr::new(SKILLS)) {
            for skill in free {
                let _removed = remove_point(&above, OsStr::new(skill.as_str()));
            }
        }
        if above_is_free {
            let _removed = tree.remove_dir(OsStr::new(SKILLS));
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

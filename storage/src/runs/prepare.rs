//! [`PlannedRun::prepare`]: making what a run needs, from the home to the trees that it sees.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};

use policy::{SkillId, TreeId, WorkspaceId};

use super::copying::give;
use super::plan::skill_of;
use super::points::Standing;
use super::see::{By, Seen, Sight};
use super::{Placement, PlannedRun, PreparedRun, Runs};
use crate::core::usage::Ceiling;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::layout::{self, TEMPORARY_NAME};
use crate::stat::Use;

const TEMPORARY_MODE: u32 = 0o700;
/// The directory for settings in a home (XDG Base Directory Specification). LibreOffice starts only where it is there, when
/// the run's user has no line in `/etc/passwd`.
const SETTINGS_NAME: &str = ".config";

impl PlannedRun {
    /// Makes what the run needs: the workspace, live views, or copies of merged views.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Conflict`] when something that is no directory
    /// stands where a skill is to be attached; [`Error::Quota`], [`Error::Countless`] when commands may only fill a tree
    /// further; [`Error::TooLarge`], [`Error::TooManyEntries`], [`Error::NoSpace`]; those of the interrupt of
    /// [`PlannedRun::copying_within`].
    pub fn prepare(self) -> Result<PreparedRun> {
        let Self { store, id, view, temporary, placement, is_aside, skills, run, time } = self;
        let occupant = store.workspaces().occupy(WorkspaceId::of(&id));
        let trees: Vec<TreeId> = skills.iter().map(|skill| skill_of(&id, skill)).collect();
        let ceilings = store.runs().ceilings(&id, is_aside, &trees)?;
        store.admit_run_of(id.user())?;
        let home = store.runs().home(&id, view.owner)?;
        if placement == Placement::InPlace {
            store.make_short_way(&id)?;
        }
        // From here on, dropping it removes what was made.
        let mut prepared = PreparedRun {
            store,
            id,
            view,
            temporary,
            departures: Vec::new(),
            skills: Vec::with_capacity(skills.len().max(1)),
            ceilings,
            points: None,
            home,
            run,
            // Until a command can do something to them, the copies are fit for other runs.
            is_absorbed: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            occupant,
        };
        match &prepared.id {
            TreeId::Workspace(..) => {
                prepared.see_workspace(is_aside, &time)?;
                prepared.see_skills(&skills, trees, placement, &time)?;
            }
            TreeId::Skill(..) => prepared.see_skill(placement, is_aside, &time)?,
        }
        prepared.is_absorbed.store(false, Ordering::Relaxed);
        prepared.allot();
        prepared.store.workspaces().note_use_of_there(&WorkspaceId::of(&prepared.id));
        Ok(prepared)
    }
}

impl Runs {
    /// How far a run in `id` may let grow what [`PreparedRun::gauges`] measure, in their order.
    fn ceilings(&self, id: &TreeId, is_aside: bool, skills: &[TreeId]) -> Result<Vec<Ceiling>> {
        let workspace = WorkspaceId::of(id).workspace();
        let own = (is_aside || matches!(id, TreeId::Skill(..))).then(|| id.clone());
        // Collecting results would make the list without knowing its length.
        let mut ceilings = Vec::with_capacity(skills.len() + 2);
        for tree in std::iter::once(&workspace).chain(&own).chain(skills) {
            ceilings.push(self.store.ceiling(tree)?);
        }
        Ok(ceilings)
    }

    /// The home of a run in `id`, with what every home has; it belongs to `owner`.
    fn home(&self, id: &TreeId, owner: Option<u32>) -> Result<Dir> {
        let home = self.store.root().ensure_path(&layout::packages(id.user(), id.agent())?)?;
        if owner.is_some() && home.stat()?.mode != 0o700 {
            home.set_mode(0o700)?;
        }
        give(&home, owner)?;
        self.store.unite(&WorkspaceId::of(id));
        drop(self.temporary_dir(&WorkspaceId::of(id).workspace(), &home, owner)?);
        Ok(home)
    }

    /// The directory for temporary files in the home of the workspace `id`; it belongs to `owner`. A home that has none is
    /// new, and gets one for settings, too.
    fn temporary_dir(&self, id: &TreeId, home: &Dir, owner: Option<u32>) -> Result<Dir> {
        let name = OsStr::new(TEMPORARY_NAME);
        let found = match home.open_dir_entry(name) {
            Err(Error::NotFound(_)) => {
                make_settings_dir(home, owner)?;
                home.ensure_dir(name)
            }
            found => found,
        };
        let dir = match found {
            // A command may put anything in its home. It must not lock itself out for ever.
            Err(Error::NotADirectory(_) | Error::Escape(_)) => {
                drop(self.store.stage().discard(home, name, Some(id))?);
                home.ensure_dir(name)?
            }
            Err(Error::Closed(_)) => home.open_closed_dir(name)?,
            made => made?,
        };
        if dir.stat()?.mode != TEMPORARY_MODE {
            dir.set_mode(TEMPORARY_MODE)?;
        }
        give(&dir, owner)?;
        Ok(dir)
    }
}

impl PreparedRun {
    /// Makes the workspace that the run is in, and the copy of it that is to be decided about.
    fn see_workspace(&mut self, is_aside: bool, time: &Interrupt) -> Result<()> {
        {
            // Not while a first change is about to put its own directory in place.
            let _held = self.store.locks().read(&self.id);
            drop(self.store.plain(&self.id, true)?);
        }
        self.store.unite(&WorkspaceId::of(&self.id));
        if is_aside {
            let runs = self.store.runs();
            let copy = time.enter(|| runs.materialise(&self.id, &self.run, self.view.owner))?;
            self.skills.push(Seen { id: self.id.clone(), by: By::Copy(copy) });
        }
        Ok(())
    }

    /// Has a run of a workspace see `skills`, which are `trees`, and makes the places in the workspace where they stand.
    fn see_skills(
        &mut self,
        skills: &[SkillId],
        trees: Vec<TreeId>,
        placement: Placement,
        time: &Interrupt,
    ) -> Result<()> {
        if skills.is_empty() {
            return Ok(());
        }
        let runs = self.store.runs();
        let sight = match placement {
            Placement::Mounted => Sight::Live,
            Placement::InPlace => Sight::Shared,
        };
        let mut copied = Use::default();
        for tree in trees {
            let seen = runs.see(tree, sight, time, || self.store.stage().fresh_name())?;
            copied = copied.plus(time.enter(|| seen.copied())?);
            self.skills.push(seen);
            runs.check_copied(skills.len(), copied)?;
        }
        let standing = match placement {
            Placement::InPlace => Standing::Links(&self.view.skills),
            Placement::Mounted if self.is_copy() => Standing::Mounts,
            Placement::Mounted => Standing::Views,
        };
        self.points = Some(runs.mount_points(&self.id, skills, standing)?);
        Ok(())
    }

    /// Has a run of a skill see it.
    fn see_skill(&mut self, placement: Placement, is_aside: bool, time: &Interrupt) -> Result<()> {
        let sight = match placement {
            _ if is_aside => Sight::Apart,
            Placement::Mounted => Sight::Live,
            Placement::InPlace => Sight::Shared,
        };
        let seen = self.store.runs().see(self.id.clone(), sight, time, || self.run.clone())?;
        self.skills.push(seen);
        Ok(())
    }
}

fn make_settings_dir(home: &Dir, owner: Option<u32>) -> Result<()> {
    match home.create_dir(OsStr::new(SETTINGS_NAME), 0o755) {
        Ok(dir) => give(&dir, owner),
        Err(Error::AlreadyExists(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

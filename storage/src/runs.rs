//! [`PlannedRun`] and [`PreparedRun`]: trees as a command will see them, and what the command did to them.
//!
//! A workspace is seen as it is, and a copy of it by a run whose changes are to be decided about. A merged view is seen in
//! one of two ways:
//!
//! * through its *live view* ([`crate::layers::live`]), where the host lets the service mount: what the command changes is
//!   changed, at once;
//! * *materialised*: copied into `work/`, run in, and compared with what it was before; the difference is *absorbed*
//!   into the overlay, deletions as whiteouts. Changes that the service makes to the overlay during the run stay,
//!   unless the command changed the same entry: then the command, which ended later, wins.
//!
//! Where a run stands ([`Placement`]) is another matter: at the paths of the host, or at paths of its own to which the
//! trees are attached.

mod absorb;
mod absorbed;
mod attach;
mod difference;
mod gauge;
mod materialise;
mod points;
mod steps;
mod temporary;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use policy::attachment::{HOME, TEMPORARY};
use policy::{RelPath, SkillId, TreeId, View, WorkspaceId};

pub use self::absorbed::Absorbed;
pub use self::attach::Attachment;
pub use self::difference::{Difference, Differing};
pub use self::gauge::{Gauge, GaugeKey, Look};
use self::materialise::{Copy, give};
use self::points::MountPoints;
use self::temporary::Temporary;
use crate::core::store::Store;
use crate::core::usage::Ceiling;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::view::ViewLease;
use crate::layout;
use crate::workspaces::Occupant;

/// Entries of the directory of temporary directories that are looked at, at the start of a run. A command may put any
/// number there.
const LEFT_OVER_MAX: usize = 1000;

/// Skills that one run of a workspace may see.
pub const RUN_SKILLS_MAX: usize = 64;

/// Where a run finds its trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At the paths of the host. A skill is materialised.
    InPlace,
    /// At the paths that callers know, to which [`PreparedRun::attachments`] are attached. A skill is its live view,
    /// and materialised where there are none.
    Mounted,
}

/// A tree as a command will see it.
///
/// Dropping it removes what was made for the run, absorbing nothing, and gives back the seats in live views.
pub struct PreparedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    /// The trees that the run sees through a view or a copy: its own tree, or the skills that a run of the workspace
    /// asked for.
    skills: Vec<Seen>,
    /// How far the run may let grow what [`PreparedRun::gauges`] measure: the workspace with the home, then each skill.
    ceilings: Vec<Ceiling>,
    /// The mount points that the workspace holds for the run.
    _points: Option<MountPoints>,
    home: Dir,
    own: Temporary,
    run: OsString,
    /// Given back last: until then no request removes home and workspace.
    occupant: Occupant,
}

/// A skill, or a workspace that is copied, as a command sees it.
struct Seen {
    id: TreeId,
    by: By,
}

enum By {
    Live(ViewLease),
    Copy(Copy),
}

/// A run that nothing was made for yet: what it will see, known before it costs anything.
pub struct PlannedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    placement: Placement,
    /// Whether the tree is copied even where it could be seen as it is, so that what the command does is done aside.
    is_aside: bool,
    /// Skills that a run of the workspace sees besides, each once.
    skills: Vec<SkillId>,
    run: OsString,
}

impl Store {
    /// Plans a run in the tree `id`; one in a workspace may see `skills` too, of the same user and agent.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than [`RUN_SKILLS_MAX`] skills, and for any of them in a run of a skill or
    /// one that is not [`Placement::Mounted`].
    pub fn plan_run(&self, id: &TreeId, placement: Placement, skills: &[SkillId]) -> Result<PlannedRun> {
        check_skills(id, placement, skills)?;
        let run = self.inner.stage.fresh_name();
        let place = |place: RelPath| self.root_path().join(place.as_str());
        let home = place(layout::packages(id.user(), id.agent())?);
        let (tree, aliases) = match id {
            TreeId::Workspace(user, agent) => (place(layout::workspace(user, agent)?), Vec::new()),
            TreeId::Skill(user, agent, skill) => {
                let layers = [layout::overlay(user, agent)?, layout::baseline(agent)?];
                let tree = place(RelPath::parse(layout::WORK)?).join(&run);
                (tree, layers.map(|layer| place(layer).join(skill.as_str())).to_vec())
            }
        };
        let sandbox_path = id.sandbox_path();
        let owner = self.owner(id);
        let (view, temporary) = match placement {
            Placement::InPlace => {
                let temporary = home.join("tmp").join(&run);
                (View { tree, scratch: home, sandbox_path, aliases, owner }, temporary)
            }
            Placement::Mounted => {
                let aliases = if aliases.is_empty() { vec![tree] } else { aliases };
                let (tree, scratch) = (PathBuf::from(&sandbox_path), PathBuf::from(HOME));
                (View { tree, scratch, sandbox_path, aliases, owner }, PathBuf::from(TEMPORARY))
            }
        };
        let mut once: Vec<SkillId> = Vec::new();
        for skill in skills {
            if !once.contains(skill) {
                once.push(skill.clone());
            }
        }
        Ok(PlannedRun {
            store: self.clone(),
            id: id.clone(),
            view,
            temporary,
            placement,
            is_aside: false,
            skills: once,
            run,
        })
    }

    /// Plans a run at the paths of the host in the tree `id` and makes what it needs.
    ///
    /// # Errors
    /// As [`PlannedRun::prepare`].
    pub fn prepare_run(&self, id: &TreeId) -> Result<PreparedRun> {
        self.plan_run(id, Placement::InPlace, &[])?.prepare()
    }

    /// The directory of the runs' temporary directories, swept of those that a crash left.
    fn temporaries(&self, id: &TreeId, home: &Dir) -> Result<Dir> {
        let name = OsStr::new("tmp");
        let dir = match home.ensure_dir(name) {
            // A command may put anything in its home. It must not lock itself out for ever.
            Err(Error::NotADirectory(_) | Error::Escape(_)) => {
                drop(self.inner.stage.discard(home, name, Some(id))?);
                home.ensure_dir(name)?
            }
            Err(Error::Closed(_)) => home.open_closed_dir(name)?,
            made => made?,
        };
        for entry in dir.first_entries(LEFT_OVER_MAX)? {
            if self.inner.stage.is_left_over(&entry.name)
                && let Err(error) = dir.remove_tree(&entry.name)
            {
                tracing::warn!(
                    %error,
                    "failed to remove temporary files of an ended run: they stay until the next run"
                );
            }
        }
        Ok(dir)
    }

    /// Lets a command see the skill `id`.
    fn see(&self, id: TreeId, placement: Placement, copy: &OsStr) -> Result<Seen> {
        if placement == Placement::Mounted && self.live().is_ok() {
            match self.enter(&id) {
                Ok(seat) => return Ok(Seen { id, by: By::Live(seat) }),
                // A mount that the kernel refuses this once must not cost the user the run.
                Err(Error::Io { operation, source, .. }) => {
                    let (user, tree) = (id.user(), id.sandbox_path());
                    tracing::warn!(
                        operation, error = %source, %user, tree,
                        "failed to mount a skill: the run gets a copy"
                    );
                }
                Err(other) => return Err(other),
            }
        }
        let copy = self.materialise(&id, copy, self.owner(&id))?;
        Ok(Seen { id, by: By::Copy(copy) })
    }
}

fn check_skills(id: &TreeId, placement: Placement, skills: &[SkillId]) -> Result<()> {
    let refused = |message: &str| Err(Error::Unsupported(message.to_owned()));
    if skills.is_empty() {
        return Ok(());
    }
    if skills.len() > RUN_SKILLS_MAX {
        return refused(&format!("a command sees at most {RUN_SKILLS_MAX} skills: name fewer"));
    }
    match (id, placement) {
        (TreeId::Skill(..), _) => {
            refused("a command of a skill sees that skill only: run it in the workspace to see several")
        }
        (TreeId::Workspace(..), Placement::InPlace) => refused(
            "skills cannot be mounted into the workspace on this host: run the command in the skill itself",
        ),
        (TreeId::Workspace(..), Placement::Mounted) => Ok(()),
    }
}

impl PlannedRun {
    /// The view of the command.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The sandbox that it will be in.
    #[must_use]
    pub fn sandbox(&self) -> WorkspaceId {
        WorkspaceId::of(&self.id)
    }

    /// Tells whether a publication waits for the readers of a skill that the run is to see; see
    /// [`Store::awaits_publication`].
    #[must_use]
    pub fn awaits_publication(&self) -> bool {
        let (user, agent) = (self.id.user(), self.id.agent());
        let skill = |skill: &SkillId| TreeId::Skill(user.clone(), agent.clone(), skill.clone());
        self.store.awaits_publication(&self.id)
            || self.skills.iter().map(skill).any(|skill| self.store.awaits_publication(&skill))
    }

    /// The run's own temporary directory, as the command knows it.
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Has the command work on a copy of its tree, so that nothing is changed before [`PreparedRun::absorb`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a run in a workspace that sees skills.
    pub fn aside(mut self) -> Result<Self> {
        self.is_aside = true;
        if !matches!(self.id, TreeId::Workspace(..)) {
            return Ok(self);
        }
        if !self.skills.is_empty() {
            let message = "a command that is to be decided about later sees no skills beside its workspace: leave \
                           `skills` out, or run it in a skill";
            return Err(Error::Unsupported(message.to_owned()));
        }
        if self.placement == Placement::InPlace {
            let copy = self.store.root_path().join(layout::WORK).join(&self.run);
            self.view.aliases.push(std::mem::replace(&mut self.view.tree, copy));
        }
        Ok(self)
    }

    /// Makes what the run needs: the workspace, live views, or copies of merged views.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Conflict`] when something that is no directory
    /// stands where a skill is to be attached; [`Error::Quota`], [`Error::Countless`] when commands may only fill a tree
    /// further; [`Error::TooLarge`], [`Error::TooManyEntries`], [`Error::NoSpace`].
    pub fn prepare(self) -> Result<PreparedRun> {
        let Self { store, id, view, temporary, placement, is_aside, skills, run } = self;
        let occupant = store.occupy(WorkspaceId::of(&id));
        let mut ceilings = Vec::with_capacity(skills.len() + 2);
        let seen =
            skills.iter().map(|skill| TreeId::Skill(id.user().clone(), id.agent().clone(), skill.clone()));
        let workspace = TreeId::Workspace(id.user().clone(), id.agent().clone());
        let own = (is_aside || matches!(id, TreeId::Skill(..))).then(|| id.clone());
        for tree in std::iter::once(workspace).chain(own).chain(seen) {
            ceilings.push(store.ceiling(&tree)?);
        }
        let owner = view.owner;
        let home_place = layout::packages(id.user(), id.agent())?;
        let home = store.inner.root.ensure_path(&home_place)?;
        if owner.is_some() && home.stat()?.mode != 0o700 {
            home.set_mode(0o700)?;
        }
        give(&home, owner)?;
        store.unite(&WorkspaceId::of(&id));
        let temporaries = store.temporaries(&WorkspaceId::of(&id).workspace(), &home)?;
        give(&temporaries, owner)?;
        let own = match placement {
            // The directory's path is the run's own, and is told before the directory is made.
            Placement::InPlace => Temporary::make(run.clone(), &temporaries, owner)?,
            Placement::Mounted => {
                Temporary::reuse(&store.inner.temporaries, home_place, &temporaries, &run, owner)?
            }
        };
        // From here on, dropping it removes what was made.
        let mut prepared = PreparedRun {
            store,
            id,
            view,
            temporary,
            skills: Vec::new(),
            ceilings,
            _points: None,
            home,
            own,
            run,
            occupant,
        };
        let store = &prepared.store;
        match &prepared.id {
            TreeId::Workspace(user, agent) => {
                {
                    // Not while a first change is about to put its own directory in place.
                    let _held = store.inner.locks.read(&prepared.id);
                    drop(store.plain(&prepared.id, true)?);
                }
                store.unite(&WorkspaceId::of(&prepared.id));
                if is_aside {
                    let copy = store.materialise(&prepared.id, &prepared.run, prepared.view.owner)?;
                    prepared.skills.push(Seen { id: prepared.id.clone(), by: By::Copy(copy) });
                }
                for skill in &skills {
                    let tree = TreeId::Skill(user.clone(), agent.clone(), skill.clone());
                    let seen = store.see(tree, placement, &store.inner.stage.fresh_name())?;
                    prepared.skills.push(seen);
                }
                if !skills.is_empty() {
                    prepared._points = Some(store.mount_points(&prepared.id, &skills)?);
                }
            }
            TreeId::Skill(..) => {
                let placement_of_skill = if is_aside { Placement::InPlace } else { placement };
                let seen = store.see(prepared.id.clone(), placement_of_skill, &prepared.run)?;
                prepared.skills.push(seen);
            }
        }
        prepared.allot();
        prepared.store.note_use_of_there(&WorkspaceId::of(&prepared.id));
        Ok(prepared)
    }
}

impl PreparedRun {
    /// The view of the command.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The run's own temporary directory, as the command knows it.
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Says that the command is over and nothing more will be absorbed: it remains to drop this, and a request that
    /// waits for the sandbox to be empty need not be refused ([`Store::leaving`]).
    pub fn begin_to_leave(&self) {
        self.occupant.begin_to_leave();
    }

    /// Tells whether there will be anything to absorb: a command works on copies, not on the trees themselves.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.copies().next().is_some()
    }

    /// Has the kernel keep the trees of the run within what they may take.
    fn allot(&self) {
        if self.store.kernel_keeps_quotas().is_err() {
            return;
        }
        let mut ceilings = self.ceilings.iter();
        if let Some(ceiling) = ceilings.next() {
            self.store.allot(&WorkspaceId::of(&self.id).workspace(), *ceiling);
        }
        for (seen, ceiling) in self.skills.iter().zip(ceilings) {
            match &seen.by {
                By::Live(_) => self.store.allot(&seen.id, *ceiling),
                By::Copy(copy) => self.store.allot_copy(&seen.id, &copy.dir, copy.taken(), *ceiling),
            }
        }
    }

    fn copies(&self) -> impl Iterator<Item = (&TreeId, &Copy)> {
        self.skills.iter().filter_map(|seen| match &seen.by {
            By::Copy(copy) => Some((&seen.id, copy)),
            By::Live(_) => None,
        })
    }
}

impl Drop for PreparedRun {
    fn drop(&mut self) {
        // Each for itself: the command may have removed or replaced `tmp`.
        let temporary = || match self.home.open_dir_entry(OsStr::new("tmp")) {
            Err(Error::NotFound(_) | Error::NotADirectory(_)) => Ok(()),
            tmp => self.own.end(&tmp?, self.view.owner),
        };
        if let Err(error) = temporary() {
            tracing::warn!(
                %error, run = ?self.run,
                "failed to remove the temporary directory of a run: it stays until the next start"
            );
        }
    }
}

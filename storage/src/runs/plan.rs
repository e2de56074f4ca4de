//! [`PlannedRun`]: a run as it is planned, before anything is made for it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use policy::attachment::{HOME, TEMPORARY};
use policy::{RelPath, SkillId, TreeId, View, WorkspaceId};

use super::{PreparedRun, Runs};
use crate::core::copies::copy_name;
use crate::core::store::Store;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::layout;

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

/// A run that nothing was made for yet: what it will see, known before it costs anything.
pub struct PlannedRun {
    pub(super) store: Store,
    pub(super) id: TreeId,
    pub(super) view: View,
    pub(super) temporary: PathBuf,
    pub(super) placement: Placement,
    /// Whether the tree is copied even where it could be seen as it is, so that what the command does is done aside.
    pub(super) is_aside: bool,
    /// Skills that a run of the workspace sees besides, each once.
    pub(super) skills: Vec<SkillId>,
    pub(super) run: OsString,
    /// Ends the copying of trees early.
    pub(super) time: Interrupt,
}

impl Runs {
    /// Plans a run in the tree `id`; one in a workspace may see `skills` too, of the same user and agent.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than [`RUN_SKILLS_MAX`] skills, and for any of them in a run of a skill.
    pub fn plan(&self, id: &TreeId, placement: Placement, skills: &[SkillId]) -> Result<PlannedRun> {
        check_skills(id, skills)?;
        let run = self.store.stage().fresh_name();
        let place = |place: RelPath| self.store.root_path().join(place.as_str());
        let home = place(layout::packages(id.user(), id.agent())?);
        let (tree, aliases) = match id {
            TreeId::Workspace(user, agent) => (place(layout::workspace(user, agent)?), Vec::new()),
            TreeId::Skill(user, agent, skill) => {
                let layers = [layout::overlay(user, agent)?, layout::baseline(agent)?];
                let tree = self.copy_path(&copy_name(id));
                (tree, layers.map(|layer| place(layer).join(skill.as_str())).to_vec())
            }
        };
        let sandbox_path = id.sandbox_path();
        let owner = self.store.owner(id);
        let (view, temporary) = match placement {
            Placement::InPlace => {
                // With a slash at its end it is the directory, and not the link, to programs that follow none.
                let temporary = place(self.store.short_way(id)?).join("");
                (View { tree, scratch: home, skills: Vec::new(), sandbox_path, aliases, owner }, temporary)
            }
            Placement::Mounted => {
                let aliases = if aliases.is_empty() { vec![tree] } else { aliases };
                let (tree, scratch) = (PathBuf::from(&sandbox_path), PathBuf::from(HOME));
                let skills = Vec::new();
                (View { tree, scratch, skills, sandbox_path, aliases, owner }, PathBuf::from(TEMPORARY))
            }
        };
        let mut named = HashSet::with_capacity(skills.len());
        let once: Vec<SkillId> = skills.iter().filter(|skill| named.insert(*skill)).cloned().collect();
        let mut view = view;
        if placement == Placement::InPlace {
            view.skills = once.iter().map(|skill| self.copy_path(&copy_name(&skill_of(id, skill)))).collect();
        }
        Ok(PlannedRun {
            store: self.store.clone(),
            id: id.clone(),
            view,
            temporary,
            placement,
            is_aside: false,
            skills: once,
            run,
            time: Interrupt::after(Duration::MAX),
        })
    }

    /// Plans a run at the paths of the host in the tree `id` and makes what it needs.
    ///
    /// # Errors
    /// As [`PlannedRun::prepare`].
    pub fn prepare(&self, id: &TreeId) -> Result<PreparedRun> {
        self.plan(id, Placement::InPlace, &[])?.prepare()
    }

    /// The path of the copy `name` on the host.
    pub(super) fn copy_path(&self, name: &OsStr) -> PathBuf {
        self.store.root_path().join(layout::WORK).join(name)
    }
}

/// A skill of the user and agent of `id`.
pub(super) fn skill_of(id: &TreeId, skill: &SkillId) -> TreeId {
    TreeId::Skill(id.user().clone(), id.agent().clone(), skill.clone())
}

fn check_skills(id: &TreeId, skills: &[SkillId]) -> Result<()> {
    let refused = |message: &str| Err(Error::Unsupported(message.to_owned()));
    if skills.is_empty() {
        return Ok(());
    }
    if skills.len() > RUN_SKILLS_MAX {
        return refused(&format!("a command sees at most {RUN_SKILLS_MAX} skills: name fewer"));
    }
    match id {
        TreeId::Skill(..) => {
            refused("a command of a skill sees that skill only: run it in the workspace to see several")
        }
        TreeId::Workspace(..) => Ok(()),
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

    /// The directory for temporary files, as the command knows it.
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Has the copying of trees for the run end when `time` says so. The copies of whole skills stay for the next run, and
    /// one that was begun is gone on with.
    #[must_use]
    pub fn copying_within(self, time: Interrupt) -> Self {
        Self { time, ..self }
    }

    /// Has the command work on a copy of its tree, so that nothing is changed before [`PreparedRun::absorb`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a run in a workspace that sees skills.
    pub fn aside(mut self) -> Result<Self> {
        self.is_aside = true;
        if !matches!(self.id, TreeId::Workspace(..)) {
            if self.placement == Placement::InPlace {
                self.view.tree = self.store.runs().copy_path(&self.run);
            }
            return Ok(self);
        }
        if !self.skills.is_empty() {
            let message = "a command that is to be decided about later sees no skills beside its workspace: leave \
                           `skills` out, or run it in a skill";
            return Err(Error::Unsupported(message.to_owned()));
        }
        if self.placement == Placement::InPlace {
            let copy = self.store.runs().copy_path(&self.run);
            self.view.aliases.push(std::mem::replace(&mut self.view.tree, copy));
        }
        Ok(self)
    }
}

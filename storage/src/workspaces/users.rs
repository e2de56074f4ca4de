//! Users and agents as a whole: which there are, what there is of each, and removing everything of a user.
//!
//! What a user has lies in five places by user and agent, and, skill by skill, in the records of bases. Removing takes one
//! workspace or one overlay after the other away, each in one step, and the user's own directories last. A crash in between
//! leaves a user with less; the same call finishes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::Arc;

use policy::{AgentId, RelPath, SkillId, TreeId, UserId, WorkspaceId};

use super::SandboxFacts;
use super::Workspaces;
use super::used::directory;
use crate::core::agents::{LISTED_MAX, entered};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::trash::Leftovers;
use crate::layout;

/// What a user has with one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFacts {
    /// The workspace, the home and the snapshots.
    pub sandbox: SandboxFacts,
    /// Skills that the user has an overlay of, hidden ones among them.
    pub skills: usize,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Skills in its baseline.
    pub skills: usize,
}

impl Workspaces {
    /// The users of whom there is anything, sorted: at most `most` of those after `after`, and whether there are more.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn users(&self, after: Option<&UserId>, most: usize) -> Result<(Vec<UserId>, bool)> {
        let mut names = BTreeSet::new();
        for place in self.store.places()? {
            let entries = place.entries_at_most(LISTED_MAX)?;
            names.extend(entries.iter().filter_map(|entry| UserId::parse(entry.name.to_str()?).ok()));
            if names.len() > LISTED_MAX {
                return Err(Error::TooManyEntries(LISTED_MAX));
            }
        }
        let mut users = Vec::new();
        for user in names {
            if after.is_some_and(|after| user <= *after) || self.store.agents_of(&user)?.is_empty() {
                continue;
            }
            if users.len() >= most {
                return Ok((users, true));
            }
            users.push(user);
        }
        Ok((users, false))
    }

    /// What a user has with each agent, sorted by agent; nothing for a user of whom there is nothing.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn user_facts(&self, user: &UserId) -> Result<Vec<AgentFacts>> {
        let facts = |agent: AgentId| {
            let id = WorkspaceId { user: user.clone(), agent };
            let skills = match directory(self.store.root(), &layout::overlay(user, &id.agent)?)? {
                Some(dir) => dir.entries_at_most(LISTED_MAX)?.len(),
                None => 0,
            };
            Ok(AgentFacts { sandbox: self.facts(&id)?, skills })
        };
        self.store.agents_of(user)?.into_iter().map(facts).collect()
    }

    /// The agents, sorted: those with a baseline and those with which any user has anything; with `of`, those of that user
    /// alone.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn agents(&self, of: Option<&UserId>) -> Result<Vec<Agent>> {
        let baselines = self.store.root().open_dir(&RelPath::parse(layout::BASELINE)?)?;
        let ids = match of {
            Some(user) => self.store.agents_of(user)?,
            None => {
                let entries = baselines.entries_at_most(LISTED_MAX)?.into_iter();
                let mut ids: BTreeSet<AgentId> =
                    entries.filter_map(|entry| AgentId::parse(entry.name.to_str()?).ok()).collect();
                for user in self.users(None, LISTED_MAX)?.0 {
                    ids.extend(self.store.agents_of(&user)?);
                }
                ids
            }
        };
        let counted = ids.into_iter().map(|id| {
            let skills = match entered(&baselines, id.as_str())? {
                Some(dir) => dir.entries_at_most(LISTED_MAX)?.len(),
                None => 0,
            };
            Ok(Agent { id, skills })
        });
        counted.collect()
    }

    /// Removes the overlays of a user with one agent. Tells how many there were; each is told to `removing` before it goes.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn remove_overlays(
        &self,
        id: &WorkspaceId,
        mut removing: impl FnMut(&TreeId),
    ) -> Result<(usize, Leftovers)> {
        let mut leftovers = Leftovers::default();
        let Some(dir) = directory(self.store.root(), &layout::overlay(&id.user, &id.agent)?)? else {
            return Ok((0, leftovers));
        };
        let mut removed = 0;
        for entry in dir.entries_at_most(LISTED_MAX)? {
            let skill = entry.name.to_str().and_then(|name| SkillId::parse(name).ok());
            let trash = match skill {
                Some(skill) => {
                    let tree = TreeId::Skill(id.user.clone(), id.agent.clone(), skill);
                    removing(&tree);
                    let _alone = self.store.locks().write(&tree);
                    let trash = match self.store.stage().discard(&dir, &entry.name, Some(&tree)) {
                        Err(Error::NotFound(_)) => continue,
                        trash => trash?,
                    };
                    let trash = self.store.discard_mounted(&tree, Some(trash));
                    self.store.forget_base(&tree)?;
                    removed += 1;
                    trash
                }
                None => Some(Arc::new(self.store.stage().discard(&dir, &entry.name, None)?)),
            };
            leftovers.trash.extend(trash);
        }
        if self.store.is_strict() {
            dir.sync()?;
        }
        Ok((removed, leftovers))
    }

    /// Removes what is left of a user who has no workspace and no overlay any more: records of bases that a crash left, and
    /// empty directories. What the user has made meanwhile stays.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn finish_user(&self, user: &UserId) -> Result<()> {
        let name = OsStr::new(user.as_str());
        let bases = self.store.root().open_dir(&RelPath::parse(layout::BASES)?)?;
        for agent in bases.entries_at_most(LISTED_MAX)? {
            let Some(agent_id) = agent.name.to_str().and_then(|name| AgentId::parse(name).ok()) else {
                continue;
            };
            let Some(skills) = entered(&bases, agent_id.as_str())? else { continue };
            for skill in skills.entries_at_most(LISTED_MAX)? {
                let Some(skill) = skill.name.to_str().and_then(|name| SkillId::parse(name).ok()) else {
                    continue;
                };
                let Some(records) = entered(&skills, skill.as_str())? else { continue };
                if records.stat_entry(name)?.is_none() {
                    continue;
                }
                let tree = TreeId::Skill(user.clone(), agent_id.clone(), skill.clone());
                let _alone = self.store.locks().write(&tree);
                let overlay = directory(self.store.root(), &layout::overlay(user, &agent_id)?)?;
                let has_overlay = match overlay {
                    Some(overlay) => overlay.stat_entry(OsStr::new(skill.as_str()))?.is_some(),
                    None => false,
                };
                if !has_overlay {
                    self.store.forget_base(&tree)?;
                }
            }
        }
        for place in self.store.places()? {
            if let Some(dir) = entered(&place, user.as_str())? {
                for entry in dir.entries_at_most(LISTED_MAX)? {
                    remove_empty(&dir, &entry.name)?;
                }
            }
            remove_empty(&place, name)?;
        }
        Ok(())
    }
}

fn remove_empty(dir: &Dir, name: &OsStr) -> Result<()> {
    match dir.remove_dir(name) {
        Ok(()) | Err(Error::NotEmpty(_) | Error::NotFound(_) | Error::NotADirectory(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

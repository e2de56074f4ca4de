//! Removing skills: the application's version, a skill for one user, and a user's changes.

use std::ffi::OsStr;
use std::sync::Arc;

use policy::{AgentId, SkillId, TreeId};

use crate::error::{Error, Result};
use crate::layers::stack::Layers;
use crate::layers::trash::Trash;
use crate::layers::union;
use crate::layout;
use crate::skills::Skills;

impl Skills {
    /// Removes the application's version of a skill. Overlays that began with it keep it as their base.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the baseline has no such skill.
    pub fn remove_baseline(&self, agent: &AgentId, skill: &SkillId) -> Result<()> {
        let name = OsStr::new(skill.as_str());
        let trash = {
            let _alone = self.store.locks().write_baseline(agent, skill)?;
            let Some(version) = self.store.baseline_version(agent, skill)? else {
                return Err(Error::NotFound(skill.to_string()));
            };
            let baseline = self.store.root().open_dir(&layout::baseline(agent)?)?;
            let versions =
                self.store.stage().ensure_path(self.store.root(), &layout::versions(agent, skill)?)?;
            let trash = match baseline.rename_new(name, &versions, OsStr::new(version.as_str())) {
                // The same content is kept already.
                Err(Error::AlreadyExists(_)) => Some(self.store.stage().discard(&baseline, name, None)?),
                moved => moved.map(|()| None)?,
            };
            self.store.tell_views(agent, skill);
            let trash = trash.map(Arc::new);
            if let Some(trash) = &trash {
                self.store.keep_for_views(agent, skill, trash);
            }
            if self.store.is_strict() {
                versions.sync()?;
                baseline.sync()?;
            }
            trash
        };
        drop(trash);
        drop(self.collect_versions_or_warn(agent, skill));
        Ok(())
    }

    /// Removes a skill for one user: the user's own goes, one of the baseline is hidden. Others see no change.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill.
    pub fn remove_for_user(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let name = OsStr::new(skill.as_str());
        let place = layout::overlay(user, agent)?;
        let trash = {
            let _alone = self.store.locks().write(id);
            let layers = Layers::open(self.store.root(), &place, &layout::baseline(agent)?)?;
            if layers.lookup(name)?.is_none() {
                return Err(Error::NotFound(skill.to_string()));
            }
            let in_lower = layers.lower_stat(name)?.is_some();
            let upper = self.store.stage().ensure_path(self.store.root(), &place)?;
            let trash = union::hide(self.store.stage(), id, &upper, name, in_lower)?;
            let trash = self.store.discard_mounted(id, trash);
            // After the deed: had the service died between, an overlay would stand on a base it did not begin with.
            if in_lower {
                self.store.record_base(id)?;
            } else {
                self.store.forget_base(id)?;
            }
            if self.store.is_strict() {
                upper.sync()?;
            }
            trash
        };
        drop(trash);
        Ok(())
    }

    /// Drops a user's changes of a skill, deletions included: the baseline shows again. Tells whether there were
    /// any.
    ///
    /// # Errors
    /// [`Error::NotFound`] when neither layer has anything of the skill.
    pub fn reset(&self, id: &TreeId) -> Result<bool> {
        let trash = {
            let _alone = self.store.locks().write(id);
            self.reset_held(id)?
        };
        Ok(trash.is_some())
    }

    /// As [`Skills::reset`]; what is to be removed afterwards, if anything. The caller holds the tree alone.
    pub(crate) fn reset_held(&self, id: &TreeId) -> Result<Option<Arc<Trash>>> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let name = OsStr::new(skill.as_str());
        if self.store.is_only_mounted(id)? {
            return Ok(None);
        }
        let upper = match self.store.root().open_dir(&layout::overlay(user, agent)?) {
            Ok(upper) if upper.stat_entry(name)?.is_some() => upper,
            Ok(_) | Err(Error::NotFound(_)) => {
                return match self.store.baseline_dir(agent, skill)? {
                    Some(_) => Ok(None),
                    None => Err(Error::NotFound(skill.to_string())),
                };
            }
            Err(other) => return Err(other),
        };
        let trash = self.store.stage().discard(&upper, name, Some(id))?;
        let trash = self.store.discard_mounted(id, Some(trash));
        self.store.forget_base(id)?;
        if self.store.is_strict() {
            upper.sync()?;
        }
        Ok(trash)
    }
}

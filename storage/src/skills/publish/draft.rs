//! [`Draft`]: skills that are built in the stage, and where each is to go.

use std::ffi::OsStr;
use std::io::Write;

use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use super::{PublishOptions, Published};
use crate::core::store::Store;
use crate::core::usage::Admitted;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::destination::Destination;
use crate::layers::journal::Transaction;
use crate::layers::whiteouts::OPAQUE;
use crate::layout;
use crate::skills::Skills;
use crate::skills::provenance::Provenance;
use crate::version::{self, Contents, Version};

/// The tree that one step of a publication changes, and so the lock it takes.
pub(super) enum Change {
    Baseline(SkillId, Version),
    /// A version beside the current one.
    Staged(SkillId, Version),
    Overlay(TreeId),
    /// The record of what an overlay began with; its directory stays as it is.
    Base(TreeId),
}

/// Skills that are being built in the stage.
pub(super) struct Draft<'a> {
    pub(super) store: &'a Store,
    pub(super) options: &'a PublishOptions<'a>,
    pub(super) user: &'a UserId,
    pub(super) agent: &'a AgentId,
    pub(super) transaction: Transaction,
    pub(super) published: Vec<Published>,
    /// One for each step of the transaction, in its order.
    pub(super) changes: Vec<Change>,
    /// The room that was promised to its user, until everything is in its place.
    pub(super) admitted: Vec<Admitted>,
}

impl Skills {
    /// Tells whether publishing `version` over `current` would change nothing: it is the current one, or, to be staged, there
    /// already. `current` is what the caller judged the publication by: read again, it could be another's of meanwhile.
    pub(super) fn has_published(
        &self,
        agent: &AgentId,
        skill: &SkillId,
        current: Option<&Version>,
        version: &Version,
        is_staged: bool,
    ) -> Result<bool> {
        Ok(current == Some(version)
            || (is_staged && self.store.version_dir(agent, skill, version)?.is_some()))
    }
}

impl Draft<'_> {
    /// Builds one skill, and plans where it goes.
    pub(super) fn build(
        &mut self,
        scope: Scope,
        skill: &SkillId,
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<()> {
        let dir = self.transaction.dir().create_dir(&self.transaction.next_name(), 0o755)?;
        if scope == Scope::Overlay {
            self.store.stage().projects().begin(&dir, None);
        }
        let contents = match fill(skill, &dir)? {
            Some(contents) => contents,
            None => version::contents(&dir)?,
        };
        let provenance = Provenance::now(self.options.by, &contents);
        let version = contents.version;
        let (replaced, unchanged) = match scope {
            Scope::Baseline => self.baseline(skill, &dir, &version, provenance)?,
            Scope::Overlay => (self.overlay(skill, dir, provenance)?, false),
        };
        self.published.push(Published { skill: skill.clone(), version, replaced, unchanged, number: None });
        Ok(())
    }

    /// Plans to put `dir` in the place of the application's version, or beside it. Tells whether there is one, and whether the
    /// same content is there already: then nothing is planned.
    fn baseline(
        &mut self,
        skill: &SkillId,
        dir: &Dir,
        version: &Version,
        provenance: Provenance,
    ) -> Result<(bool, bool)> {
        let (agent, is_staged) = (self.agent, self.options.is_staged);
        version::set_label(dir, version)?;
        if is_staged { provenance.staged() } else { provenance }.mark(dir)?;
        self.options.note.mark(dir)?;
        let current = self.store.baseline_version(agent, skill)?;
        self.options.presence.check(skill, current.is_some())?;
        if self.store.skills().has_published(agent, skill, current.as_ref(), version, is_staged)? {
            self.transaction.dir().remove_tree(&self.transaction.next_name())?;
            return Ok((current.is_some(), true));
        }
        let (agent, skill, version) = (agent.clone(), skill.clone(), version.clone());
        let (to, change) = match is_staged {
            true => {
                let to = Destination::Version { agent, skill: skill.clone(), version: version.clone() };
                (to, Change::Staged(skill, version))
            }
            false => {
                (Destination::Baseline { agent, skill: skill.clone() }, Change::Baseline(skill, version))
            }
        };
        self.transaction.place(to)?;
        self.changes.push(change);
        Ok((current.is_some(), false))
    }

    /// Plans to make `dir` the user's overlay of a skill, with the record of what it begins with. Tells whether there is an
    /// overlay.
    fn overlay(&mut self, skill: &SkillId, dir: Dir, provenance: Provenance) -> Result<bool> {
        dir.set_attribute(OPAQUE, b"y")?;
        let replaced = self.has_overlay(skill)?;
        let tree = TreeId::Skill(self.user.clone(), self.agent.clone(), skill.clone());
        let mut counter = self.store.counter_of(&tree);
        counter.tree(&dir)?;
        self.admitted.push(self.store.admit_whole(&tree, counter.end().taken)?);
        self.transaction.place(Destination::overlay(&tree)?)?;
        self.changes.push(Change::Overlay(tree.clone()));
        let mut base = self.transaction.dir().create_file(&self.transaction.next_name(), 0o600)?;
        let line = provenance.describing(dir, skill)?.line();
        base.write_all(format!("{}\n{line}", self.store.base_text(self.agent, skill)?).as_bytes())
            .map_err(|error| Error::from_io("write", "base", error))?;
        self.transaction.place(Destination::base(&tree)?)?;
        self.changes.push(Change::Base(tree));
        Ok(replaced)
    }

    /// Tells whether the user has an overlay of a skill, and not one that is there for the sake of a view only.
    fn has_overlay(&self, skill: &SkillId) -> Result<bool> {
        if self.store.is_only_mounted(&TreeId::Skill(self.user.clone(), self.agent.clone(), skill.clone()))? {
            return Ok(false);
        }
        match self.store.root().open_dir(&layout::overlay(self.user, self.agent)?) {
            Ok(dir) => {
                Ok(dir.stat_entry(OsStr::new(skill.as_str()))?.is_some_and(|stat| !stat.is_whiteout()))
            }
            Err(Error::NotFound(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }
}

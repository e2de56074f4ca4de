//! A manager's operations on a skill for all users: look at its versions, go back to one, publish a user's changes.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use crate::core::usage::Flight;
use crate::dir::DEPTH_MAX;
use crate::error::{Error, Result};
use crate::layers::copy_merged::{copy_tree, taken_by_copy};
use crate::layers::stack::{Found, Layers};
use crate::layers::trash::Trash;
use crate::layout;
use crate::skills::Skills;
use crate::skills::publish::{Over, Promoting, Publication};
use crate::skills::status::Status;
use crate::version::{self, Version};

/// A version of a skill that is there to be gone back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// Its name.
    pub version: Version,
    /// When another took its place, in nanoseconds since 1970; `None` for the current one.
    pub replaced_ns: Option<i128>,
}

impl Skills {
    /// The versions of a skill of an application that are kept: the current one, then the former, the last first.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none.
    pub fn versions(&self, agent: &AgentId, skill: &SkillId) -> Result<Vec<KeptVersion>> {
        let current = self.store.baseline_version(agent, skill)?;
        let mut kept = Vec::new();
        match self.store.root().open_dir(&layout::versions(agent, skill)?) {
            Err(Error::NotFound(_)) => {}
            versions => {
                let versions = versions?;
                for entry in versions.entries()? {
                    let version = entry.name.to_str().and_then(Version::parse);
                    let (Some(version), Some(stat)) = (version, versions.stat_entry(&entry.name)?) else {
                        continue;
                    };
                    if current.as_ref() != Some(&version) {
                        // A rename moves the change time: it is when the version was replaced.
                        kept.push(KeptVersion { version, replaced_ns: Some(stat.changed_ns) });
                    }
                }
            }
        }
        kept.sort_unstable_by_key(|kept| std::cmp::Reverse(kept.replaced_ns));
        if let Some(version) = current {
            kept.insert(0, KeptVersion { version, replaced_ns: None });
        }
        if kept.is_empty() { Err(Error::NotFound(skill.to_string())) } else { Ok(kept) }
    }

    /// Makes a former version the current one again, which `by` is written down for. The one that it takes the place of is kept.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the version is not kept; those of [`Skills::publish`].
    pub fn rollback(
        &self,
        by: &str,
        user: &UserId,
        agent: &AgentId,
        skill: &SkillId,
        wanted: &Version,
    ) -> Result<Publication> {
        let gone = || Error::NotFound(format!("{skill} {wanted}"));
        let skills = std::slice::from_ref(skill);
        self.publish_by(by, Scope::Baseline, user, agent, skills, &mut |_, into| {
            let former = self.store.version_dir(agent, skill, wanted)?.ok_or_else(gone)?;
            let former = Layers { upper: None, lower: Some(former) };
            let taken = taken_by_copy(&former, None, self.store.options().files.tree_entries)?;
            self.store.admit_space_for(taken.all.bytes)?;
            copy_tree(&former, into, None, DEPTH_MAX)?;
            // A publication meanwhile may have had it removed while it was read.
            let contents = version::contents(into)?;
            if contents.version == *wanted { Ok(Some(contents)) } else { Err(gone()) }
        })
    }

    /// Publishes what a user sees of a skill as the application's next version, which `by` is written down for.
    ///
    /// The user's changes now belong to all users and are dropped from the overlay: at once, or when the last command
    /// in them has ended, but for what was changed since. With `force`, what the application changed since the user
    /// began is overwritten.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Conflict`] when the user changed nothing, or both
    /// the user and the application changed the same, or another version was published meanwhile, and `force` is not set,
    /// or a command is still in what the user promoted before; those of [`Skills::publish`].
    pub fn promote(&self, by: &str, id: &TreeId, force: bool) -> Result<Publication> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
        {
            let _alone = self.store.locks().write(id);
            if self.store.close_unless_used(id)? && self.store.promotion_of(id)?.is_some() {
                return Err(Error::Conflict(format!(
                    "a command is in what was promoted of `{skill}` before: promote again when it has ended"
                )));
            }
        }
        // Conflicts are looked for with this version, before it is known that no other one takes its place meanwhile.
        let current = self.store.baseline_version(agent, skill)?;
        let merged_with = Cell::new(None);
        let over = Over {
            by,
            expected: (!force).then_some(&current),
            promoting: Some(Promoting { id, merged_with: &merged_with }),
        };
        let skills = std::slice::from_ref(skill);
        self.publish_over(&over, Scope::Baseline, user, agent, skills, &mut |_, into| {
                let _held = self.store.locks().read(id);
                let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
                let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
                    return Err(Error::NotFound(skill.to_string()));
                };
                match self.status_held(id)?.status {
                    Status::OutOfSync if !force => {
                        return Err(Error::Conflict(format!(
                            "the application changed what the user changed in `{skill}`: pull first, or promote with `force`"
                        )));
                    }
                    Status::Unchanged => {
                        return Err(Error::Conflict(format!("the user changed nothing in `{skill}`")));
                    }
                    Status::OutOfSync | Status::Modified | Status::LocalOnly => {}
                }
                let _flight = self.admit_promotion(id, skill, &layers)?;
                copy_tree(&layers, into, None, DEPTH_MAX)?;
                merged_with.set(self.store.baseline_version(agent, skill)?);
                Ok(None)
            })
    }

    /// Refuses to copy what a user sees of a skill when the user's own part of it, every name by itself, is more than a
    /// tree may take, or than the user may have on the way: a copy shares nothing.
    fn admit_promotion(&self, id: &TreeId, skill: &SkillId, from: &Layers) -> Result<Flight> {
        let taken = taken_by_copy(from, None, self.store.options().files.tree_entries)?;
        let (own, limits) = (taken.of_upper, self.store.limits_of(id));
        let [of_bytes, of_files] = self.store.settings_of(id);
        let quota = |setting, unit, limit, needs: u64| {
            let tree = format!("what the user changed in `{skill}`, every name by itself,");
            Err(Error::Quota { tree, setting, unit, used: 0, limit, needs })
        };
        if own.bytes > limits.bytes {
            return quota(of_bytes, "bytes", limits.bytes, own.bytes);
        }
        if own.files > limits.files {
            return quota(of_files, "files", limits.files, own.files);
        }
        self.store.admit_space_for(taken.all.bytes)?;
        let mut flight = self.store.flight(id.user());
        flight.take(own.bytes)?;
        Ok(flight)
    }

    /// Collects former versions after a change that is done: a failure here is no failure of the change.
    pub(super) fn collect_versions_or_warn(&self, agent: &AgentId, skill: &SkillId) -> Vec<Arc<Trash>> {
        let collected = self.collect_versions(agent, skill).unwrap_or_else(|error| {
            tracing::warn!(
                %error, %agent, %skill,
                "failed to remove former versions: they stay until the next publication"
            );
            Vec::new()
        });
        collected.into_iter().map(Arc::new).collect()
    }

    /// Takes away former versions that no overlay began with and no command sees, but for the newest few.
    ///
    /// The caller holds no lock.
    fn collect_versions(&self, agent: &AgentId, skill: &SkillId) -> Result<Vec<Trash>> {
        let mut trash = Vec::new();
        let _alone = self.store.locks().write_baseline(agent, skill)?;
        let versions = match self.store.root().open_dir(&layout::versions(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(trash),
            versions => versions?,
        };
        let mounted = self.store.views().map(|views| views.lower_inodes(agent, skill)).unwrap_or_default();
        let mut kept: Vec<(i128, u64, OsString)> = Vec::new();
        for entry in versions.entries()? {
            if let Some(stat) = versions.stat_entry(&entry.name)? {
                // A rename moves the change time: it is when the version was replaced.
                kept.push((stat.changed_ns, stat.inode, entry.name));
            }
        }
        if kept.len() <= self.store.options().keep_versions {
            return Ok(trash);
        }
        kept.sort_unstable();
        kept.truncate(kept.len() - self.store.options().keep_versions);
        let based_on = self.store.bases(agent, skill)?;
        for (_, inode, name) in kept {
            if !based_on.contains(name.as_bytes()) && !mounted.contains(&inode) {
                trash.push(self.store.stage().discard(&versions, &name, None)?);
            }
        }
        Ok(trash)
    }
}

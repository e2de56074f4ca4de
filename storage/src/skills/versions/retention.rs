//! Which versions of a skill stay: those that are pinned, those that something needs, and the newest few of the others.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::Arc;

use policy::{AgentId, SkillId};

use super::VersionName;
use crate::error::{Error, Result};
use crate::layers::trash::{Leftovers, Trash};
use crate::layout;
use crate::skills::Skills;
use crate::skills::version_log::{Former, There, VersionLog};
use crate::version::Version;

/// Versions of one skill that can be pinned at once.
pub const PINS_MAX: usize = 64;

/// A version that was removed.
pub struct RemovedVersion {
    /// Its name.
    pub version: Version,
    /// Whether it was the last one, so that the application has no such skill any more.
    pub is_last: bool,
    /// What is to be deleted.
    pub leftovers: Leftovers,
}

impl Skills {
    /// Has a version stay whatever is published after it. Tells whether it was not pinned before.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the version is not there; [`Error::Conflict`] when [`PINS_MAX`] are pinned;
    /// [`Error::NoSpace`], [`Error::Io`].
    pub fn pin_version(&self, agent: &AgentId, skill: &SkillId, wanted: &VersionName) -> Result<bool> {
        let _alone = self.store.locks().write_baseline(agent, skill)?;
        let (there, log) = self.held_versions(agent, skill)?;
        let version = self.named(&there, &log, skill, wanted)?;
        let pins = self.pins(agent, skill)?;
        if pins.contains(&version) {
            return Ok(false);
        }
        if pins.len() >= PINS_MAX {
            return Err(Error::Conflict(format!(
                "`{skill}` has {PINS_MAX} pinned versions: unpin one before you pin another"
            )));
        }
        let dir = self.store.stage().ensure_path(self.store.root(), &layout::pins(agent, skill)?)?;
        dir.create_file(OsStr::new(version.as_str()), 0o600)?;
        if self.store.is_strict() {
            dir.sync()?;
        }
        Ok(true)
    }

    /// Lets a version go like any other. Tells whether it was pinned.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the version is not there; [`Error::Io`].
    pub fn unpin_version(&self, agent: &AgentId, skill: &SkillId, wanted: &VersionName) -> Result<bool> {
        let _alone = self.store.locks().write_baseline(agent, skill)?;
        let (there, log) = self.held_versions(agent, skill)?;
        let version = self.named(&there, &log, skill, wanted)?;
        self.unpin(agent, skill, &version)
    }

    /// Removes a version that nothing needs. The current one can go only as the last one, and then the application has no
    /// such skill any more.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the version is not there; [`Error::Conflict`] when it is the current one and there are others,
    /// and without `force` when it is pinned or a user's changes began with it; [`Error::NoSpace`], [`Error::Io`].
    pub fn remove_version(
        &self,
        agent: &AgentId,
        skill: &SkillId,
        wanted: &VersionName,
        force: bool,
    ) -> Result<RemovedVersion> {
        let _alone = self.store.locks().write_baseline(agent, skill)?;
        let (there, log) = self.held_versions(agent, skill)?;
        let version = self.named(&there, &log, skill, wanted)?;
        let is_current = there.is_current(&version);
        let has_others = there.former.iter().any(|former| former.version != version);
        let is_last = !has_others && (is_current || there.current.is_none());
        let refused = |why: &str| Err(Error::Conflict(format!("version {wanted} of `{skill}` {why}")));
        if is_current && has_others {
            return refused("is the current one: make another one current first");
        }
        if !force && self.pins(agent, skill)?.contains(&version) {
            return refused("is pinned: unpin it first, or send `force=true`");
        }
        if !force && self.store.bases(agent, skill)?.contains(version.as_str().as_bytes()) {
            return refused(
                "is what changes of a user began with: send `force=true` to remove it all the same",
            );
        }
        // A crash after this leaves a version that goes like any other.
        self.unpin(agent, skill, &version)?;
        let name = OsStr::new(version.as_str());
        let mut leftovers = Leftovers::default();
        let mut keep = |trash: Trash| {
            let trash = Arc::new(trash);
            self.store.keep_for_views(agent, skill, &trash);
            leftovers.trash.push(trash);
        };
        if let Some(dir) = &there.dir
            && there.former.iter().any(|former| former.version == version)
        {
            keep(self.store.stage().discard(dir, name, None)?);
        }
        if is_current {
            let baseline = self.store.root().open_dir(&layout::baseline(agent)?)?;
            let trash = self.store.stage().discard(&baseline, OsStr::new(skill.as_str()), None)?;
            self.store.tell_views(agent, skill);
            keep(trash);
            if self.store.is_strict() {
                baseline.sync()?;
            }
        }
        if self.store.is_strict()
            && let Some(dir) = &there.dir
        {
            dir.sync()?;
        }
        Ok(RemovedVersion { version, is_last, leftovers })
    }

    /// The versions of a skill that are pinned.
    pub(super) fn pins(&self, agent: &AgentId, skill: &SkillId) -> Result<HashSet<Version>> {
        let pins = match self.store.root().open_dir(&layout::pins(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(HashSet::new()),
            pins => pins?,
        };
        let names = pins.entries()?;
        Ok(names.iter().filter_map(|entry| entry.name.to_str().and_then(Version::parse)).collect())
    }

    fn unpin(&self, agent: &AgentId, skill: &SkillId, version: &Version) -> Result<bool> {
        let pins = match self.store.root().open_dir(&layout::pins(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(false),
            pins => pins?,
        };
        match pins.remove_file(OsStr::new(version.as_str())) {
            Err(Error::NotFound(_)) => return Ok(false),
            removed => removed?,
        }
        if self.store.is_strict() {
            pins.sync()?;
        }
        Ok(true)
    }

    /// What is there of a skill, and its log, which is on the disk. The caller holds the skill alone.
    fn held_versions(&self, agent: &AgentId, skill: &SkillId) -> Result<(There, VersionLog)> {
        let there = self.there(agent, skill)?;
        let log = self.complete_log(agent, skill, &there)?;
        Ok((there, log))
    }

    fn named(
        &self,
        there: &There,
        log: &VersionLog,
        skill: &SkillId,
        wanted: &VersionName,
    ) -> Result<Version> {
        let version = match wanted {
            VersionName::Version(version) => Some(version),
            VersionName::Number(number) => log.numbered(*number),
        };
        let is_there = |version: &&Version| {
            there.is_current(version) || there.former.iter().any(|former| former.version == **version)
        };
        version.filter(is_there).cloned().ok_or_else(|| Error::NotFound(format!("{skill} {wanted}")))
    }

    /// Collects former versions after a change that is done: a failure here is no failure of the change.
    pub(in crate::skills) fn collect_versions_or_warn(
        &self,
        agent: &AgentId,
        skill: &SkillId,
    ) -> Vec<Arc<Trash>> {
        let collected = self.collect_versions(agent, skill).unwrap_or_else(|error| {
            tracing::warn!(
                %error, %agent, %skill,
                "failed to remove former versions: they stay until the next publication"
            );
            Vec::new()
        });
        collected.into_iter().map(Arc::new).collect()
    }

    /// Takes away former versions that are not pinned, that no overlay began with and no command sees, but for the newest few;
    /// and staged ones, but for the newest few of those.
    ///
    /// The caller holds no lock.
    fn collect_versions(&self, agent: &AgentId, skill: &SkillId) -> Result<Vec<Trash>> {
        let keep = self.store.options().keep_versions;
        let _alone = self.store.locks().write_baseline(agent, skill)?;
        let there = self.there(agent, skill)?;
        if there.former.len() <= keep {
            return Ok(Vec::new());
        }
        // Their numbers are on the disk before they go.
        let log = self.complete_log(agent, skill, &there)?;
        let surplus = surplus(&there, &log, &self.pins(agent, skill)?, keep);
        let mut trash = Vec::new();
        let Some(dir) = there.dir.as_ref().filter(|_| !surplus.is_empty()) else { return Ok(trash) };
        let mounted = self.store.views().map(|views| views.lower_inodes(agent, skill)).unwrap_or_default();
        let based_on = self.store.bases(agent, skill)?;
        for former in surplus {
            let name = former.version.as_str();
            if !based_on.contains(name.as_bytes()) && !mounted.contains(&former.inode) {
                trash.push(self.store.stage().discard(dir, OsStr::new(name), None)?);
            }
        }
        Ok(trash)
    }
}

/// The versions beyond the newest `keep` former ones and the newest `keep` staged ones (one at least), pinned ones apart.
fn surplus<'a>(there: &'a There, log: &VersionLog, pins: &HashSet<Version>, keep: usize) -> Vec<&'a Former> {
    let newest = log.newest();
    let counted = |former: &&Former| !there.is_current(&former.version) && !pins.contains(&former.version);
    let mut by_number: Vec<(u64, bool, &Former)> = there
        .former
        .iter()
        .filter(counted)
        .map(|former| {
            let entry = newest.get(&former.version);
            (entry.map_or(0, |entry| entry.number), entry.is_some_and(|entry| entry.staged), former)
        })
        .collect();
    by_number.sort_unstable_by_key(|(number, ..)| std::cmp::Reverse(*number));
    let of = |staged: bool, keep: usize| {
        let those = by_number.iter().filter(move |(_, is_staged, _)| *is_staged == staged);
        those.skip(keep).map(|(.., former)| *former)
    };
    of(false, keep).chain(of(true, keep.max(1))).collect()
}

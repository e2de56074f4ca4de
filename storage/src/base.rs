//! Which baseline version an overlay began with, and which former versions may go.
//!
//! One small file per (agent, skill, user) outside the overlay: what lies in an overlay can be changed by commands.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

use policy::{AgentId, SkillId, TreeId};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::place;
use crate::provenance::{self, Provenance};
use crate::store::Store;
use crate::trash::Trash;
use crate::version::{self, Version};

/// What a base record says when the skill had no baseline.
const NO_BASE: &str = "none";

impl Store {
    /// The current baseline of a skill; `None` when it has none.
    pub(crate) fn baseline_dir(&self, agent: &AgentId, skill: &SkillId) -> Result<Option<Dir>> {
        match self.inner.root.open_dir(&place::baseline(agent)?) {
            Ok(dir) => match open_own(&dir, OsStr::new(skill.as_str())) {
                Ok(dir) => Ok(Some(dir)),
                Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => Ok(None),
                Err(other) => Err(other),
            },
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The version of the current baseline of a skill; `None` when it has none.
    pub(crate) fn baseline_version(&self, agent: &AgentId, skill: &SkillId) -> Result<Option<Version>> {
        self.baseline_dir(agent, skill)?.map(|dir| version::of(&dir)).transpose()
    }

    /// What a base record of the current baseline says.
    pub(crate) fn base_text(&self, agent: &AgentId, skill: &SkillId) -> Result<String> {
        Ok(self.baseline_version(agent, skill)?.map_or_else(|| NO_BASE.to_owned(), String::from))
    }

    /// Records that the overlay of `id`, about to be made, begins with the current baseline; nobody published it.
    pub(crate) fn record_base(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(_, agent, skill) = id else { return Ok(()) };
        self.record_base_text(id, &self.base_text(agent, skill)?)
    }

    /// Records that the overlay of `id`, about to be made, begins with `base`; see [`Store::base_text`].
    pub(crate) fn record_base_text(&self, id: &TreeId, base: &str) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let dir = self.inner.stage.ensure_path(&self.inner.root, &place::bases(agent, skill)?)?;
        let mut file = self.inner.stage.file(0o600, None)?;
        file.file().write_all(base.as_bytes()).map_err(|error| Error::from_io("write", "base", error))?;
        file.finish()?;
        file.place(&dir, OsStr::new(user.as_str()))?;
        if self.is_strict() { dir.sync() } else { Ok(()) }
    }

    /// Records that the overlay of `id` lies over the current baseline from now on. That it was published stays.
    pub(crate) fn record_rebase(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(_, agent, skill) = id else { return Ok(()) };
        let base = self.base_text(agent, skill)?;
        match self.published_in_base(id)? {
            Some(published) => self.record_base_text(id, &format!("{base}\n{}", published.line())),
            None => self.record_base_text(id, &base),
        }
    }

    /// What the overlay of `id` was published as; `None` when it was not.
    pub(crate) fn published_in_base(&self, id: &TreeId) -> Result<Option<Provenance>> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(None) };
        let bases = match self.inner.root.open_dir(&place::bases(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(None),
            bases => bases?,
        };
        match bases.open_file_entry(OsStr::new(user.as_str())) {
            Err(Error::NotFound(_)) => Ok(None),
            opened => Ok(provenance::read_record(opened?.0)?.1),
        }
    }

    /// The version that the overlay of `id` began with; `None` without a record or a baseline.
    pub(crate) fn base_of(&self, id: &TreeId) -> Result<Option<Version>> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(None) };
        match self.inner.root.open_dir(&place::bases(agent, skill)?) {
            Ok(dir) => read_base(&dir, OsStr::new(user.as_str())),
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Forgets which version an overlay began with: the overlay is gone.
    pub(crate) fn forget_base(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        match self.inner.root.open_dir(&place::bases(agent, skill)?) {
            Ok(dir) => match dir.remove_file(OsStr::new(user.as_str())) {
                Err(Error::NotFound(_)) => Ok(()),
                removed => removed,
            },
            Err(Error::NotFound(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The directory of a former or the current version; `None` when it is not kept.
    pub(crate) fn version_dir(
        &self,
        agent: &AgentId,
        skill: &SkillId,
        wanted: &Version,
    ) -> Result<Option<Dir>> {
        if let Some(current) = self.baseline_dir(agent, skill)?
            && version::of(&current)? == *wanted
        {
            return Ok(Some(current));
        }
        match self.inner.root.open_dir(&place::versions(agent, skill)?) {
            Ok(versions) => match open_own(&versions, OsStr::new(wanted.as_str())) {
                Ok(dir) => Ok(Some(dir)),
                Err(Error::NotFound(_)) => Ok(None),
                Err(other) => Err(other),
            },
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Takes away former versions that no overlay began with and no command sees, but for the newest few.
    ///
    /// The caller holds no lock.
    pub(crate) fn collect_versions(&self, agent: &AgentId, skill: &SkillId) -> Result<Vec<Trash>> {
        let mut trash = Vec::new();
        let _alone = self.inner.locks.write_baseline(agent, skill);
        let versions = match self.inner.root.open_dir(&place::versions(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(trash),
            versions => versions?,
        };
        let mounted = self.views().map(|views| views.lower_inodes(agent, skill)).unwrap_or_default();
        let mut kept: Vec<(i128, u64, OsString)> = Vec::new();
        for entry in versions.entries()? {
            if let Some(stat) = versions.stat_entry(&entry.name)? {
                // A rename moves the change time: it is when the version was replaced.
                kept.push((stat.changed_ns, stat.inode, entry.name));
            }
        }
        if kept.len() <= self.inner.options.keep_versions {
            return Ok(trash);
        }
        kept.sort_unstable();
        kept.truncate(kept.len() - self.inner.options.keep_versions);
        let based_on = self.bases(agent, skill)?;
        for (_, inode, name) in kept {
            if !based_on.contains(name.as_bytes()) && !mounted.contains(&inode) {
                trash.push(self.inner.stage.discard(&versions, &name, None)?);
            }
        }
        Ok(trash)
    }

    /// Every version that an overlay of the skill began with.
    fn bases(&self, agent: &AgentId, skill: &SkillId) -> Result<HashSet<Vec<u8>>> {
        let dir = match self.inner.root.open_dir(&place::bases(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(HashSet::new()),
            dir => dir?,
        };
        let mut bases = HashSet::new();
        for entry in dir.entries()? {
            if let Some(version) = read_base(&dir, &entry.name)? {
                bases.insert(version.as_str().as_bytes().to_vec());
            }
        }
        Ok(bases)
    }
}

/// Opens a version, which belongs to the service, whatever a command has made of its permissions.
fn open_own(dir: &Dir, name: &OsStr) -> Result<Dir> {
    match dir.open_dir_entry(name) {
        Err(Error::Closed(_)) => dir.open_closed_dir(name),
        opened => opened,
    }
}

fn read_base(dir: &Dir, user: &OsStr) -> Result<Option<Version>> {
    let file = match dir.open_file_entry(user) {
        Err(Error::NotFound(_)) => return Ok(None),
        opened => opened?.0,
    };
    // What was published follows on a second line, which does not matter here.
    let mut bytes = Vec::new();
    file.take(64).read_to_end(&mut bytes).map_err(|error| Error::from_io("read", "base", error))?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(std::str::from_utf8(line).ok().and_then(Version::parse))
}

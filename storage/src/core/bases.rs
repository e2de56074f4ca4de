//! Which baseline version an overlay began with or became.
//!
//! One small file per (agent, skill, user) outside the overlay: what lies in an overlay can be changed by commands.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{Read, Write};

use policy::{AgentId, SkillId, TreeId};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;
use crate::version::{self, Version};

/// The text of a base record when the skill had no baseline.
pub(crate) const NO_BASE: &str = "none";
/// The attribute of a base record that tells of a promotion; see [`Promotion`].
const PROMOTED: &str = "user.filesecbox.promoted";

/// A user's skill that became the application's while a command was in it: what the overlay holds is to be told from the
/// version that it became, once the command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promotion {
    /// The version that it became.
    pub(crate) promoted: Version,
    /// The version that the user's changes were merged with; `None` when there was none.
    pub(crate) over: Option<Version>,
    /// The version that the command sees them over.
    pub(crate) mounted: Option<Version>,
}

impl Promotion {
    /// As it stands in the attribute: the three versions.
    fn text(&self) -> String {
        let word = |version: &Option<Version>| {
            version.as_ref().map_or_else(|| NO_BASE.to_owned(), |version| version.as_str().to_owned())
        };
        format!("{} {} {}", self.promoted.as_str(), word(&self.over), word(&self.mounted))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let promoted = Version::parse(words.next()?)?;
        let (over, mounted) = (Version::parse(words.next()?), Version::parse(words.next()?));
        Some(Self { promoted, over, mounted })
    }

    fn versions(self) -> impl Iterator<Item = Version> {
        [Some(self.promoted), self.over, self.mounted].into_iter().flatten()
    }
}

impl Store {
    /// The current baseline of a skill; `None` when it has none.
    pub(crate) fn baseline_dir(&self, agent: &AgentId, skill: &SkillId) -> Result<Option<Dir>> {
        match self.inner.root.open_dir(&layout::baseline(agent)?) {
            Ok(dir) => match open_own(&dir, OsStr::new(skill.as_str())) {
                Ok(dir) => Ok(Some(dir.frozen())),
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

    /// The text of a base record of the current baseline.
    pub(crate) fn base_text(&self, agent: &AgentId, skill: &SkillId) -> Result<String> {
        Ok(self.baseline_version(agent, skill)?.map_or_else(|| NO_BASE.to_owned(), String::from))
    }

    /// Records that the overlay of `id`, about to be made, begins with the current baseline; it was not uploaded.
    pub(crate) fn record_base(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(_, agent, skill) = id else { return Ok(()) };
        self.record_base_text(id, &self.base_text(agent, skill)?)
    }

    /// Records that the overlay of `id`, about to be made, begins with `base`; see [`Store::base_text`].
    pub(crate) fn record_base_text(&self, id: &TreeId, base: &str) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let dir = self.inner.stage.ensure_path(&self.inner.root, &layout::bases(agent, skill)?)?;
        let mut file = self.inner.stage.file(0o600, None)?;
        file.file().write_all(base.as_bytes()).map_err(|error| Error::from_io("write", "base", error))?;
        file.finish()?;
        file.place(&dir, OsStr::new(user.as_str()))?;
        if self.is_strict() { dir.sync() } else { Ok(()) }
    }

    /// The version that the overlay of `id` began with, or that it became since; `None` without a record or a baseline.
    pub(crate) fn base_of(&self, id: &TreeId) -> Result<Option<Version>> {
        let (base, promotion) = self.read_base_of(id)?;
        Ok(promotion.map(|promotion| promotion.promoted).or(base))
    }

    /// The version that the overlay of `id` became while a command was in it, if that is not settled.
    pub(crate) fn promotion_of(&self, id: &TreeId) -> Result<Option<Promotion>> {
        Ok(self.read_base_of(id)?.1)
    }

    fn read_base_of(&self, id: &TreeId) -> Result<(Option<Version>, Option<Promotion>)> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok((None, None)) };
        match self.inner.root.open_dir(&layout::bases(agent, skill)?) {
            Ok(dir) => read_base(&dir, OsStr::new(user.as_str())),
            Err(Error::NotFound(_)) => Ok((None, None)),
            Err(other) => Err(other),
        }
    }

    /// Notes beside the base of `id` what its overlay is about to become; the next record takes the place of both.
    pub(crate) fn record_promotion(&self, id: &TreeId, promotion: &Promotion) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let open = || {
            let dir = self.inner.root.open_dir(&layout::bases(agent, skill)?)?;
            Ok(dir.open_file_entry(OsStr::new(user.as_str()))?.0)
        };
        let file = match open() {
            Err(Error::NotFound(_)) => {
                self.record_base(id)?;
                open()?
            }
            opened => opened?,
        };
        rustix::fs::fsetxattr(&file, PROMOTED, promotion.text().as_bytes(), XattrFlags::empty())
            .map_err(|errno| Error::from_errno("setxattr", "base", errno))?;
        if self.is_strict() {
            file.sync_all().map_err(|error| Error::from_io("fsync", "base", error))?;
        }
        Ok(())
    }

    /// Takes back what [`Store::record_promotion`] noted.
    pub(crate) fn forget_promotion(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        let dir = self.inner.root.open_dir(&layout::bases(agent, skill)?)?;
        let file = dir.open_file_entry(OsStr::new(user.as_str()))?.0;
        match rustix::fs::fremovexattr(&file, PROMOTED) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(Error::from_errno("removexattr", "base", errno)),
        }
    }

    /// Forgets which version an overlay began with: the overlay is gone.
    pub(crate) fn forget_base(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        match self.inner.root.open_dir(&layout::bases(agent, skill)?) {
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
        match self.inner.root.open_dir(&layout::versions(agent, skill)?) {
            Ok(versions) => match open_own(&versions, OsStr::new(wanted.as_str())) {
                Ok(dir) => Ok(Some(dir.frozen())),
                Err(Error::NotFound(_)) => Ok(None),
                Err(other) => Err(other),
            },
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Every version that an overlay of the skill began with.
    pub(crate) fn bases(&self, agent: &AgentId, skill: &SkillId) -> Result<HashSet<Vec<u8>>> {
        let dir = match self.inner.root.open_dir(&layout::bases(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(HashSet::new()),
            dir => dir?,
        };
        let mut bases = HashSet::new();
        for entry in dir.entries()? {
            let (base, promotion) = read_base(&dir, &entry.name)?;
            let promoted = promotion.into_iter().flat_map(Promotion::versions);
            bases
                .extend(base.into_iter().chain(promoted).map(|version| version.as_str().as_bytes().to_vec()));
        }
        Ok(bases)
    }
}

/// Opens a version, which belongs to the service, even after a command has changed its permissions.
fn open_own(dir: &Dir, name: &OsStr) -> Result<Dir> {
    match dir.open_dir_entry(name) {
        Err(Error::Closed(_)) => dir.open_closed_dir(name),
        opened => opened,
    }
}

fn read_base(dir: &Dir, user: &OsStr) -> Result<(Option<Version>, Option<Promotion>)> {
    let file = match dir.open_file_entry(user) {
        Err(Error::NotFound(_)) => return Ok((None, None)),
        opened => opened?.0,
    };
    // The publication follows on a second line, which does not matter here.
    let mut attribute = [0; 256];
    let promotion = match rustix::fs::fgetxattr(&file, PROMOTED, &mut attribute) {
        Ok(length) => {
            attribute.get(..length).and_then(|text| Promotion::parse(std::str::from_utf8(text).ok()?))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => None,
        Err(errno) => return Err(Error::from_errno("getxattr", "base", errno)),
    };
    let mut bytes = Vec::new();
    file.take(64).read_to_end(&mut bytes).map_err(|error| Error::from_io("read", "base", error))?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok((std::str::from_utf8(line).ok().and_then(Version::parse), promotion))
}

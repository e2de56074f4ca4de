//! [`Standing`]: a published skill that still stands, its publisher and its time. The disk alone tells them.
//!
//! Where it came from is written down together with what is published, so that no crash parts them: for a baseline skill
//! in an attribute of its directory, for a user's in the record of the overlay's base, where no command reaches. What is
//! changed in an overlay afterwards changes nothing of it: it tells what was published.

use std::ffi::OsStr;
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use policy::skill_md::Metadata;
use policy::{AgentId, RelPath, SkillId, TreeId, UserId};
use serde::{Deserialize, Serialize};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::stack::Layers;
use crate::layout;
use crate::skills::Skills;
use crate::skills::list::describe;
use crate::stat::Kind;
use crate::version::{self, Contents, Version};

/// The extended attribute of a published baseline skill that tells where it came from.
const ATTRIBUTE: &str = "user.filesecbox.published";
/// The longest record of a base with what was published: a description has at most 4096 characters.
pub(crate) const RECORD_BYTES_MAX: u64 = 64 * 1024;

/// Where a skill is published: for all users of an agent, or for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shelf {
    /// The agent.
    pub agent: AgentId,
    /// The skill.
    pub skill: SkillId,
    /// The user whose overlay it is in; `None` for the baseline.
    pub user: Option<UserId>,
}

impl Shelf {
    /// Where a user's own skill stands; `None` for a workspace.
    #[must_use]
    pub fn of(tree: &TreeId) -> Option<Self> {
        let TreeId::Skill(user, agent, skill) = tree else { return None };
        Some(Self { agent: agent.clone(), skill: skill.clone(), user: Some(user.clone()) })
    }

    /// Where the application's skill below a user's stands; `None` for a workspace.
    #[must_use]
    pub fn below(tree: &TreeId) -> Option<Self> {
        Self::of(tree).map(|shelf| Self { user: None, ..shelf })
    }
}

/// A skill that was published on a shelf and still stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The content of the published tree.
    pub contents: Contents,
    /// Its display name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Who published it, as its publisher was told; `None` for a tree that was put there by hand.
    pub by: Option<String>,
    /// When it was published, in milliseconds since 1970.
    pub at_ms: i64,
}

/// Where a published tree came from, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    by: String,
    at_ms: i64,
    digest: String,
    files: usize,
    bytes: u64,
    /// The tree's description of itself; left out where the tree still holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Whether it was kept beside the current version instead of taking its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    staged: bool,
}

impl Provenance {
    /// Of something that `by` publishes now.
    pub(crate) fn now(by: &str, contents: &Contents) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            by: by.to_owned(),
            at_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            digest: contents.digest.clone(),
            files: contents.files,
            bytes: contents.bytes,
            name: None,
            description: None,
            staged: false,
        }
    }

    /// As of something that does not take the place of the current version.
    pub(crate) fn staged(self) -> Self {
        Self { staged: true, ..self }
    }

    /// What is written on `tree`, if it is about that content: a copy that was edited by hand and kept the attribute has lost or
    /// kept the label `version`, and is what it is called.
    pub(crate) fn of_version(tree: &Dir, version: &Version) -> Result<Option<Self>> {
        let line = tree.attribute(ATTRIBUTE)?.and_then(|value| String::from_utf8(value).ok());
        let written = line.and_then(|line| Self::parse(&line));
        Ok(written.filter(|written| written.version().as_ref() == Some(version)))
    }

    pub(crate) fn by(&self) -> &str {
        &self.by
    }

    pub(crate) fn at_ms(&self) -> i64 {
        self.at_ms
    }

    pub(crate) fn files(&self) -> usize {
        self.files
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_staged(&self) -> bool {
        self.staged
    }

    /// With what the skill `id` in `dir` says of itself, for a tree that will be changed.
    pub(crate) fn describing(self, dir: Dir, id: &SkillId) -> Result<Self> {
        let (Metadata { name, description, .. }, _) =
            describe(&Layers { upper: None, lower: Some(dir) }, id)?;
        Ok(Self { name: Some(name), description: Some(description), ..self })
    }

    /// Writes it down on the tree itself, which is not changed any more.
    pub(crate) fn mark(&self, tree: &Dir) -> Result<()> {
        tree.set_attribute(ATTRIBUTE, self.line().as_bytes())
    }

    /// It as one line of text.
    pub(crate) fn line(&self) -> String {
        // Texts and numbers always become JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads it from a line; `None` for any other text.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok().filter(|read: &Self| read.version().is_some())
    }

    fn version(&self) -> Option<Version> {
        Version::parse(self.digest.get(..32)?)
    }

    fn contents(&self) -> Option<Contents> {
        let version = self.version()?;
        Some(Contents { version, digest: self.digest.clone(), files: self.files, bytes: self.bytes })
    }
}

impl Skills {
    /// The publication on `shelf` that still stands there; `None` when none does.
    ///
    /// A baseline skill that was put there by hand is read whole, and stands since it was last changed.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn standing(&self, shelf: &Shelf) -> Result<Option<Standing>> {
        match &shelf.user {
            None => self.standing_in_baseline(&shelf.agent, &shelf.skill),
            Some(user) => self.standing_in_overlay(user, &shelf.agent, &shelf.skill),
        }
    }

    fn standing_in_baseline(&self, agent: &AgentId, skill: &SkillId) -> Result<Option<Standing>> {
        let _held = self.store.locks().read_baseline(agent, skill);
        let Some(dir) = self.store.baseline_dir(agent, skill)? else { return Ok(None) };
        let written = Provenance::of_version(&dir, &version::of(&dir)?)?;
        let (contents, by, at_ms) = match written.as_ref().and_then(Provenance::contents).zip(written) {
            Some((contents, written)) => (contents, Some(written.by), written.at_ms),
            None => {
                let at_ms = i64::try_from(dir.stat()?.modified_ns.div_euclid(1_000_000)).unwrap_or_default();
                (version::contents(&dir)?, None, at_ms)
            }
        };
        let (said, _) = describe(&Layers { upper: None, lower: Some(dir) }, skill)?;
        Ok(Some(Standing { contents, name: said.name, description: said.description, by, at_ms }))
    }

    fn standing_in_overlay(
        &self,
        user: &UserId,
        agent: &AgentId,
        skill: &SkillId,
    ) -> Result<Option<Standing>> {
        let id = TreeId::Skill(user.clone(), agent.clone(), skill.clone());
        let _held = self.store.locks().read(&id);
        let name = OsStr::new(skill.as_str());
        let overlays = match self.store.root().open_dir(&layout::overlay(user, agent)?) {
            Err(Error::NotFound(_)) => return Ok(None),
            overlays => overlays?,
        };
        // A whiteout, or nothing: the published skill is gone, although its record may still be there.
        if overlays.stat_entry(name)?.is_none_or(|stat| stat.kind != Kind::Directory) {
            return Ok(None);
        }
        let written = self.published_in_base(&id)?;
        Ok(written.as_ref().and_then(Provenance::contents).zip(written).map(|(contents, written)| Standing {
            contents,
            name: written.name.unwrap_or_else(|| skill.to_string()),
            description: written.description.unwrap_or_default(),
            by: Some(written.by),
            at_ms: written.at_ms,
        }))
    }

    /// Names every shelf on which something may stand, in no particular order.
    ///
    /// Names that are no ids are passed over.
    ///
    /// # Errors
    /// The error of `visit`; [`Error::Io`].
    pub fn each_shelf<E: From<Error>>(&self, visit: &mut dyn FnMut(Shelf) -> Result<(), E>) -> Result<(), E> {
        let open = |place| self.store.root().open_dir(&RelPath::parse(place)?);
        let baseline = open(layout::BASELINE)?;
        for (agent, skills) in ids(&baseline, |name| AgentId::parse(name).ok())? {
            for (skill, _) in ids(&skills, |name| SkillId::parse(name).ok())? {
                visit(Shelf { agent: agent.clone(), skill, user: None })?;
            }
        }
        let bases = open(layout::BASES)?;
        for (agent, skills) in ids(&bases, |name| AgentId::parse(name).ok())? {
            for (skill, users) in ids(&skills, |name| SkillId::parse(name).ok())? {
                for entry in users.entries()? {
                    let Some(user) = entry.name.to_str().and_then(|name| UserId::parse(name).ok()) else {
                        continue;
                    };
                    visit(Shelf { agent: agent.clone(), skill: skill.clone(), user: Some(user) })?;
                }
            }
        }
        Ok(())
    }

    /// The upload that the overlay of `id` holds; `None` when it was not uploaded.
    pub(crate) fn published_in_base(&self, id: &TreeId) -> Result<Option<Provenance>> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(None) };
        let bases = match self.store.root().open_dir(&layout::bases(agent, skill)?) {
            Err(Error::NotFound(_)) => return Ok(None),
            bases => bases?,
        };
        match bases.open_file_entry(OsStr::new(user.as_str())) {
            Err(Error::NotFound(_)) => Ok(None),
            opened => Ok(read_record(opened?.0)?.1),
        }
    }
}

/// The directories of `dir` whose names are ids, opened.
fn ids<'a, Id: 'a>(
    dir: &'a Dir,
    parse: impl Fn(&str) -> Option<Id> + 'a,
) -> Result<impl Iterator<Item = (Id, Dir)> + 'a> {
    let entries = dir.entries()?;
    Ok(entries.into_iter().filter_map(move |entry| {
        let id = parse(entry.name.to_str()?)?;
        // A shelf that has gone meanwhile, or is no directory, holds nothing.
        Some((id, dir.open_dir_entry(&entry.name).ok()?))
    }))
}

/// Reads a record of a base: its first line, and what was published with it.
pub(crate) fn read_record(file: impl Read) -> Result<(String, Option<Provenance>)> {
    let mut bytes = Vec::new();
    file.take(RECORD_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::from_io("read", "base", error))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    Ok(match text.split_once('\n') {
        Some((base, line)) => (base.to_owned(), Provenance::parse(line)),
        None => (text, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_provenance_fits_into_an_attribute_and_a_record() {
        let by = "\"".repeat(128);
        let digest = "f".repeat(64);
        let version = Version::parse(&digest[..32]).unwrap();
        let contents = Contents { version, digest, files: usize::MAX, bytes: u64::MAX };
        let plain = Provenance { at_ms: i64::MAX, ..Provenance::now(&by, &contents) };
        assert!(plain.line().len() <= crate::dir::ATTRIBUTE_BYTES_MAX, "{}", plain.line().len());
        let (name, description) = (Some("\"".repeat(256)), Some("𠀀".repeat(4096)));
        let full = Provenance { name, description, ..plain };
        assert!(full.line().len() + 64 < usize::try_from(RECORD_BYTES_MAX).unwrap());
        assert_eq!(Provenance::parse(&full.line()), Some(full));
    }

    #[test]
    fn a_record_without_a_second_line_or_with_a_broken_one_tells_the_base_alone() {
        for (text, base) in [("none", "none"), ("none\n{", "none"), ("", ""), ("x\n{\"by\":\"u\"}", "x")] {
            assert_eq!(read_record(text.as_bytes()).unwrap(), (base.to_owned(), None));
        }
    }
}

//! The skills that a user sees: listed and described.

use std::ffi::OsStr;
use std::io::Read;

use policy::skill_md::{self as metadata, HEADER_BYTES_MAX, Metadata};
use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use crate::error::{Error, Result};
use crate::layers::stack::{Found, Layers};
use crate::layout;
use crate::skills::Skills;
use crate::skills::status::{SkillStatus, Status};
use crate::stat::{Kind, Layer};
use crate::version::{self, Version};

/// One skill as a user sees it.
#[derive(Clone, Debug)]
pub struct Skill {
    /// Its id, which is its directory's name.
    pub id: SkillId,
    /// Its description of itself.
    pub metadata: Metadata,
    /// The name of the file that describes it: its `SKILL.md` in any case of letters, else its `README.md`.
    pub described_by: Option<String>,
    /// The layer it comes from; the overlay as soon as the user changed anything.
    pub layer: Layer,
    /// How it stands to the baseline.
    pub status: SkillStatus,
    /// The version of the baseline; `None` when only the user has it.
    pub version: Option<Version>,
    /// The newest modification time known, in nanoseconds since 1970: of the overlay's files, else of the
    /// baseline's directory.
    pub modified_ns: i128,
}

impl Skills {
    /// Lists the skills that `user` sees of `agent`, sorted by id.
    ///
    /// Directories whose names are no [`SkillId`] are passed over.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn list(&self, user: &UserId, agent: &AgentId) -> Result<Vec<Skill>> {
        let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
        let children = Layers::open(self.store.root(), &overlay, &baseline)?.children()?;
        let mut skills = Vec::new();
        for child in children {
            let id = child.name.to_str().and_then(|name| SkillId::parse(name).ok());
            let (Some(id), Kind::Directory) = (id, child.kind) else { continue };
            let tree = TreeId::Skill(user.clone(), agent.clone(), id.clone());
            let _held = self.store.locks().read(&tree);
            // Looked up again under its lock: it may have gone meanwhile.
            let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
            let Some(Found::Directory(dirs, mut stat, mut layer)) = layers.lookup(&child.name)? else {
                continue;
            };
            if let Some(lower) = &dirs.lower
                && self.store.is_only_mounted(&tree)?
            {
                (stat, layer) = (lower.stat()?, Layer::Baseline);
            }
            let mut status = match self.status_held(&tree) {
                // A command may make more, nest it deeper or change it faster than can be compared. One such skill
                // spoils no list.
                Err(Error::TooManyEntries(_) | Error::Conflict(_)) => {
                    let overlay_modified_ns = Some(stat.modified_ns);
                    SkillStatus { status: Status::Modified, changes: Vec::new(), overlay_modified_ns }
                }
                status => status?,
            };
            let baseline = self.store.baseline_dir(agent, &id)?;
            if baseline.is_none() && layer == Layer::Overlay {
                status.status = Status::LocalOnly;
            }
            let version = baseline.as_ref().map(version::of).transpose()?;
            let modified_ns = status.overlay_modified_ns.unwrap_or(stat.modified_ns);
            let (metadata, described_by) = describe(&dirs, &id)?;
            skills.push(Skill { metadata, described_by, id, layer, status, version, modified_ns });
        }
        Ok(skills)
    }
}

impl Skills {
    /// Tells whether the skill `id` is there and declares `name`: the one that `user` sees, or that of the baseline.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn declares(
        &self,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        id: &SkillId,
        name: &str,
    ) -> Result<bool> {
        let tree = TreeId::Skill(user.clone(), agent.clone(), id.clone());
        let _held = self.store.locks().read(&tree);
        let baseline = layout::baseline(agent)?;
        let upper = match scope {
            Scope::Overlay => layout::overlay(user, agent)?,
            Scope::Baseline => baseline.clone(),
        };
        let layers = Layers::open(self.store.root(), &upper, &baseline)?;
        match layers.lookup(OsStr::new(id.as_str()))? {
            Some(Found::Directory(dirs, ..)) => Ok(describe(&dirs, id)?.0.name == name),
            Some(Found::Leaf(..)) | None => Ok(false),
        }
    }
}

/// Reads what a skill says of itself, and tells which file says it.
pub(crate) fn describe(dirs: &Layers, id: &SkillId) -> Result<(Metadata, Option<String>)> {
    let children = dirs.children()?;
    let names = children.iter().filter(|child| child.kind == Kind::File).map(|child| child.name.as_os_str());
    let markers = metadata::marker(names);
    let skill_md = markers.skill_md.map(|name| head(dirs, name)).transpose()?.flatten();
    let readme = markers.readme.map(|name| head(dirs, name)).transpose()?.flatten();
    let file = markers.skill_md.or(markers.readme).map(|name| name.to_string_lossy().into_owned());
    Ok((metadata::parse(skill_md.as_deref(), readme.as_deref(), id.as_str()), file))
}

/// Reads the beginning of a file; `None` when it has gone.
fn head(dirs: &Layers, name: &OsStr) -> Result<Option<Vec<u8>>> {
    let Some(Found::Leaf(_, layer)) = dirs.lookup(name)? else { return Ok(None) };
    let (file, _) = match dirs.at(layer)?.open_file_entry(name) {
        Err(Error::NotFound(_) | Error::NotAFile(_) | Error::Escape(_)) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(HEADER_BYTES_MAX).unwrap_or(u64::MAX);
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::from_io("read", name.to_string_lossy(), error))?;
    Ok(Some(bytes))
}

//! The skills that a user sees: listed, described, and packed for download.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};

use crate::archive::{self, PackEntry, PackSource};
use crate::error::{Error, Result};
use crate::metadata::{self, HEADER_BYTES_MAX, Metadata};
use crate::place;
use crate::stat::{Kind, Layer};
use crate::status::{SkillStatus, Status};
use crate::store::Store;
use crate::tree::WalkOptions;
use crate::union::layers::{Found, Layers};
use crate::version::{self, Version};

/// One skill as a user sees it.
#[derive(Clone, Debug)]
pub struct Skill {
    /// Its id, which is its directory's name.
    pub id: SkillId,
    /// What it says of itself.
    pub metadata: Metadata,
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

impl Store {
    /// Lists the skills that `user` sees of `agent`, sorted by id.
    ///
    /// Directories whose names are no [`SkillId`] are passed over.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn skills(&self, user: &UserId, agent: &AgentId) -> Result<Vec<Skill>> {
        let (overlay, baseline) = (place::overlay(user, agent)?, place::baseline(agent)?);
        let children = Layers::open(&self.inner.root, &overlay, &baseline)?.children()?;
        let mut skills = Vec::new();
        for child in children {
            let id = child.name.to_str().and_then(|name| SkillId::parse(name).ok());
            let (Some(id), Kind::Directory) = (id, child.kind) else { continue };
            let tree = TreeId::Skill(user.clone(), agent.clone(), id.clone());
            let _held = self.inner.locks.read(&tree);
            // Looked up again under its lock: it may have gone meanwhile.
            let layers = Layers::open(&self.inner.root, &overlay, &baseline)?;
            let Some(Found::Directory(dirs, mut stat, mut layer)) = layers.lookup(&child.name)? else {
                continue;
            };
            if let Some(lower) = &dirs.lower
                && self.is_only_mounted(&tree)?
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
            let baseline = self.baseline_dir(agent, &id)?;
            if baseline.is_none() && layer == Layer::Overlay {
                status.status = Status::LocalOnly;
            }
            let version = baseline.as_ref().map(version::of).transpose()?;
            let modified_ns = status.overlay_modified_ns.unwrap_or(stat.modified_ns);
            skills.push(Skill { metadata: describe(&dirs, &id)?, id, layer, status, version, modified_ns });
        }
        Ok(skills)
    }

    /// Writes the merged view of a skill as a ZIP into an unnamed file of the store and returns it with its size
    /// in bytes, at its beginning.
    ///
    /// The archive is of one moment: nobody changes the skill while it is read. Links are left out.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooManyEntries`], [`Error::NoSpace`].
    pub fn pack(&self, id: &TreeId) -> Result<(File, u64)> {
        let TreeId::Skill(_, _, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let spool = self.spool()?;
        {
            let _held = self.inner.locks.read(id);
            let tree = self.tree(id)?;
            let entries = self.inner.options.files.tree_entries;
            let options = WalkOptions { depth: usize::MAX, entries, look: true };
            let mut walked = tree.walk(&RelPath::root(), options)?;
            walked.sort_unstable_by(|a, b| a.path.cmp(&b.path));
            let packed = walked.into_iter().filter_map(|entry| {
                let stat = entry.stat?;
                let source = match entry.kind {
                    Kind::Directory => Ok(PackSource::Directory),
                    Kind::File => match tree.open(&entry.path) {
                        // A command that has the skill mounted removed or replaced it meanwhile.
                        Err(Error::NotFound(_) | Error::IsDirectory(_) | Error::NotADirectory(_)) => {
                            return None;
                        }
                        opened => opened.map(|opened| PackSource::File(opened.file)),
                    },
                    Kind::Symlink | Kind::Other => return None,
                };
                let entry = |source| PackEntry {
                    path: entry.path,
                    mode: stat.mode,
                    modified_ns: stat.modified_ns,
                    source,
                };
                Some(source.map(entry))
            });
            archive::pack(skill, packed, &spool)?;
        }
        let io = |error| Error::from_io("seek", "download", error);
        let mut file = spool;
        let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        Ok((file, bytes))
    }

    /// Makes a file of no name in the store, for an upload or a download. It goes when it is closed.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn spool(&self) -> Result<File> {
        self.admit_space()?;
        let name = self.inner.stage.fresh_name();
        let file = self.inner.stage.dir().create_file(&name, 0o600)?;
        self.inner.stage.dir().remove_file(&name)?;
        Ok(file)
    }
}

/// Reads what a skill says of itself.
pub(crate) fn describe(dirs: &Layers, id: &SkillId) -> Result<Metadata> {
    let children = dirs.children()?;
    let names = children.iter().filter(|child| child.kind == Kind::File).map(|child| child.name.as_os_str());
    let markers = metadata::marker(names);
    let skill_md = markers.skill_md.map(|name| head(dirs, name)).transpose()?.flatten();
    let readme = markers.readme.map(|name| head(dirs, name)).transpose()?.flatten();
    Ok(metadata::parse(skill_md.as_deref(), readme.as_deref(), id.as_str()))
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

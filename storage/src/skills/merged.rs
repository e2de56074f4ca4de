//! The skills of an agent by name, and the version that a user's merged view would have if it were published now.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::stack::{Found, Layers};
use crate::layout;
use crate::skills::Skills;
use crate::skills::list::describe;
use crate::skills::status::Status;
use crate::skills::versions::VersionDescription;
use crate::stat::{Kind, Layer};
use crate::version::{Digester, Version};

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 * 1024;

impl Skills {
    /// The ids of the skills that an application has, sorted.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn baseline_ids(&self, agent: &AgentId) -> Result<Vec<SkillId>> {
        self.ids_in(self.store.root().open_dir(&layout::baseline(agent)?))
    }

    /// The ids of the skills of which an application ever published a version, sorted; also those that are gone.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn logged_ids(&self, agent: &AgentId) -> Result<Vec<SkillId>> {
        self.ids_in(self.store.root().open_dir(&layout::histories(agent)?))
    }

    /// Tells whether a layer has a skill: the baseline, or what a user has of their own.
    ///
    /// # Errors
    /// As [`Skills::status`].
    pub fn has(&self, scope: Scope, user: &UserId, agent: &AgentId, skill: &SkillId) -> Result<bool> {
        match scope {
            Scope::Baseline => Ok(self.store.baseline_dir(agent, skill)?.is_some()),
            Scope::Overlay => {
                let id = TreeId::Skill(user.clone(), agent.clone(), skill.clone());
                Ok(self.status(&id)?.status != Status::Unchanged)
            }
        }
    }

    fn ids_in(&self, dir: Result<Dir>) -> Result<Vec<SkillId>> {
        let dir = match dir {
            Err(Error::NotFound(_)) => return Ok(Vec::new()),
            dir => dir?,
        };
        let entries = dir.entries_at_most(self.store.options().files.tree_entries)?;
        let directories = entries.into_iter().filter(|entry| entry.kind == Kind::Directory);
        let mut ids: Vec<SkillId> =
            directories.filter_map(|entry| SkillId::parse(entry.name.to_str()?).ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The version that what a user sees of a skill would have if it were published now, and what it says of itself. Every file is
    /// read.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::TooManyEntries`], [`Error::Io`]; those of
    /// [`crate::interrupt::check`].
    pub fn seen(&self, id: &TreeId) -> Result<(Version, VersionDescription)> {
        let TreeId::Skill(user, agent, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let _held = self.store.locks().read(id);
        let layers =
            Layers::open(self.store.root(), &layout::overlay(user, agent)?, &layout::baseline(agent)?)?;
        let Some(Found::Directory(layers, ..)) = layers.lookup(OsStr::new(skill.as_str()))? else {
            return Err(Error::NotFound(skill.to_string()));
        };
        let mut walk = Walk {
            digester: Digester::new(),
            path: Vec::new(),
            entries_left: self.store.options().files.tree_entries,
            entries_max: self.store.options().files.tree_entries,
            buffer: vec![0; BUFFER_BYTES],
        };
        walk.directory(&layers, DEPTH_MAX)?;
        let (said, _) = describe(&layers, skill)?;
        let said = VersionDescription::of(said);
        Ok((walk.digester.finish().version, said))
    }
}

/// Tells the entries of a merged directory to a digester, as [`crate::version::contents`] does those of one of a single layer.
struct Walk {
    digester: Digester,
    path: Vec<u8>,
    entries_left: usize,
    entries_max: usize,
    buffer: Vec<u8>,
}

impl Walk {
    fn directory(&mut self, layers: &Layers, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        let parent_bytes = self.path.len();
        for child in layers.children()? {
            interrupt::check()?;
            self.entries_left =
                self.entries_left.checked_sub(1).ok_or(Error::TooManyEntries(self.entries_max))?;
            if parent_bytes > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(child.name.as_bytes());
            match layers.lookup(&child.name)? {
                Some(Found::Directory(below, ..)) => {
                    self.digester.directory(&self.path);
                    self.directory(&below, levels)?;
                }
                Some(Found::Leaf(stat, layer)) if stat.kind == Kind::File => {
                    self.file(layers, layer, &child.name)?;
                }
                Some(Found::Leaf(stat, layer)) if stat.kind == Kind::Symlink => {
                    let target = layers.at(layer)?.read_link(&child.name)?;
                    self.digester.symlink(&self.path, target.as_bytes());
                }
                Some(Found::Leaf(..)) | None => {}
            }
            self.path.truncate(parent_bytes);
        }
        Ok(())
    }

    fn file(&mut self, layers: &Layers, layer: Layer, name: &OsStr) -> Result<()> {
        let (mut file, stat) = layers.at(layer)?.open_file_entry(name)?;
        let mut hasher = blake3::Hasher::new();
        loop {
            interrupt::check()?;
            let read = file
                .read(&mut self.buffer)
                .map_err(|error| Error::from_io("read", name.to_string_lossy(), error))?;
            if read == 0 {
                break;
            }
            hasher.update(self.buffer.get(..read).unwrap_or_default());
        }
        self.digester.file(&self.path, stat.mode, &hasher.finalize(), hasher.count());
        Ok(())
    }
}

//! [`Wanted`]: the files that a machine is to have, and where their bytes are.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use policy::{RelPath, TreeId, UserId};
use storage::{Dir, Kind, Stat};

use crate::config::RunnersConfig;
use crate::ops::Service;
use crate::ops::admission::{Job, Weight};
use crate::ops::error::Result;

/// Files of one synchronisation, and their bytes.
const FILES_MAX: usize = 20_000;
const BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Entries that are looked at in directories of the host.
const ENTRIES_MAX: usize = 100_000;
/// Levels below a skill.
const LEVELS_MAX: usize = 32;
/// What makes a directory a skill.
const SKILL_FILE: &str = "SKILL.md";

/// A file that is to be there.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) from: From,
    pub(super) bytes: u64,
    pub(super) executable: bool,
}

/// Where the bytes of a file are.
#[derive(Clone)]
pub(super) enum From {
    /// In a directory of the host.
    Host(Arc<Dir>, RelPath),
    /// In a skill, as its user sees it.
    Skill(TreeId, RelPath),
}

/// What is to be on a machine.
#[derive(Default)]
pub(super) struct Collected {
    /// By paths in the machine's workspace.
    pub(super) files: BTreeMap<String, Wanted>,
    /// What was left out, and why.
    pub(super) left_out: Vec<String>,
    bytes: u64,
}

impl Collected {
    fn add(&mut self, path: String, wanted: Wanted) {
        if self.files.len() >= FILES_MAX || self.bytes.saturating_add(wanted.bytes) > BYTES_MAX {
            if self.left_out.len() < 16 {
                self.left_out.push(format!(
                    "`{path}` and more: there are more than {FILES_MAX} files or {BYTES_MAX} bytes"
                ));
            }
            return;
        }
        self.bytes += wanted.bytes;
        self.files.insert(path, wanted);
    }

    /// A skill of a later source takes the place of one of the same name, whole.
    fn forget(&mut self, directory: &str) {
        let prefix = format!("{directory}/");
        let bytes = &mut self.bytes;
        self.files.retain(|path, wanted| {
            let stays = !path.starts_with(&prefix);
            if !stays {
                *bytes -= wanted.bytes;
            }
            stays
        });
    }
}

/// Collects what is to be on a machine of `user`. Directories of the host come first; later ones, and then the user's own skills, take
/// the place of skills of the same name.
///
/// # Errors
/// Those of looking through the user's skills. A directory of the host that cannot be read is left out, and told.
pub(super) async fn collect(service: &Service, config: &RunnersConfig, user: &UserId) -> Result<Collected> {
    let (global, global_config) = (Collected::default(), config.clone());
    let from_host = move || Ok(of_host(global, &global_config));
    let mut collected = service.work(Job::of(user, Weight::Long), from_host).await?;
    for agent in &config.skills_of {
        for skill in service.skill_ids(user.clone(), agent.clone()).await? {
            let directory = format!("{}/{skill}", config.skills_directory);
            collected.forget(&directory);
            let id = TreeId::Skill(user.clone(), agent.clone(), skill);
            for entry in service.walk(id.clone(), RelPath::root(), LEVELS_MAX, true).await? {
                let Some(stat) = entry.stat.filter(|_| entry.kind == Kind::File) else { continue };
                let from = From::Skill(id.clone(), entry.path.clone());
                collected.add(format!("{directory}/{}", entry.path), wanted(from, &stat));
            }
        }
    }
    Ok(collected)
}

fn wanted(from: From, stat: &Stat) -> Wanted {
    Wanted { from, bytes: stat.size, executable: stat.mode & 0o100 != 0 }
}

/// The skills and agents in directories of the host.
fn of_host(mut collected: Collected, config: &RunnersConfig) -> Collected {
    let mut room = ENTRIES_MAX;
    for place in &config.global_skills {
        if let Err(error) = skills_in(&mut collected, place, config.skills_directory.as_str(), &mut room) {
            // Without its path: the machine's user is told.
            tracing::warn!(place = %place.display(), %error, "skills for machines cannot be read");
            collected.left_out.push("a directory of skills of the service cannot be read".to_owned());
        }
    }
    for place in &config.global_agents {
        if let Err(error) = agents_in(&mut collected, place, config.agents_directory.as_str(), &mut room) {
            tracing::warn!(place = %place.display(), %error, "agents for machines cannot be read");
            collected.left_out.push("a directory of agents of the service cannot be read".to_owned());
        }
    }
    collected
}

fn skills_in(collected: &mut Collected, place: &Path, into: &str, room: &mut usize) -> storage::Result<()> {
    let top = Arc::new(Dir::ambient_open(place)?);
    for entry in entries(&top, room)? {
        let Some(path) = entry.name.to_str().and_then(|name| RelPath::parse(name).ok()) else { continue };
        let is_skill = entry.kind == Kind::Directory && top.open_file(&path.join(SKILL_FILE)?).is_ok();
        if is_skill {
            let directory = format!("{into}/{path}");
            collected.forget(&directory);
            below(collected, &top, &path, into, LEVELS_MAX, room)?;
        }
    }
    Ok(())
}

fn agents_in(collected: &mut Collected, place: &Path, into: &str, room: &mut usize) -> storage::Result<()> {
    let top = Arc::new(Dir::ambient_open(place)?);
    for entry in entries(&top, room)? {
        let Some(path) = entry.name.to_str().and_then(|name| RelPath::parse(name).ok()) else { continue };
        if entry.kind == Kind::File && path.as_str().ends_with(".md") {
            let (_, stat) = top.open_file(&path)?;
            collected.add(format!("{into}/{path}"), wanted(From::Host(Arc::clone(&top), path), &stat));
        }
    }
    Ok(())
}

/// Everything below a directory of the host; links are left out.
fn below(
    collected: &mut Collected,
    top: &Arc<Dir>,
    path: &RelPath,
    into: &str,
    levels: usize,
    room: &mut usize,
) -> storage::Result<()> {
    let Some(levels) = levels.checked_sub(1) else { return Ok(()) };
    for entry in entries(&top.open_dir(path)?, room)? {
        let Some(inner) = entry.name.to_str().and_then(|name| path.join(name).ok()) else { continue };
        match entry.kind {
            Kind::Directory => below(collected, top, &inner, into, levels, room)?,
            Kind::File => {
                let (_, stat) = top.open_file(&inner)?;
                collected.add(format!("{into}/{inner}"), wanted(From::Host(Arc::clone(top), inner), &stat));
            }
            Kind::Symlink | Kind::Other => {}
        }
    }
    Ok(())
}

fn entries(dir: &Dir, room: &mut usize) -> storage::Result<Vec<storage::dir::Entry>> {
    let entries = dir.entries_at_most(*room)?;
    *room -= entries.len();
    Ok(entries)
}

impl From {
    /// Opens the file, and tells its length.
    ///
    /// # Errors
    /// It cannot be opened, or is no file any more.
    pub(super) async fn open(&self, service: &Service, user: &UserId) -> Result<(File, u64)> {
        match self {
            Self::Host(dir, path) => {
                let (dir, path) = (Arc::clone(dir), path.clone());
                let open = move || Ok(dir.open_file(&path)?);
                let (file, stat) = service.work(Job::of(user, Weight::Light), open).await?;
                Ok((file, stat.size))
            }
            Self::Skill(id, path) => {
                let opened = service.open(id.clone(), path.clone()).await?;
                Ok((opened.file, opened.stat.size))
            }
        }
    }
}

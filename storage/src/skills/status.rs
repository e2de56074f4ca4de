//! The changes of a user in a skill: by content, never by time.
//!
//! Each entry of the overlay is compared with the version the overlay began with (*base*) and with the baseline
//! as it is now (*current*). Because former versions are immutable and kept, this needs no log of changes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufReader, Read};

use policy::TreeId;
use serde::{Deserialize, Serialize};

use crate::dir::{DEPTH_MAX, Dir, subdirectory};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::whiteouts::is_opaque;
use crate::layout;
use crate::skills::Skills;
use crate::stat::{Kind, Stat};
use crate::version;

/// How often a skill is compared again because a command changed it meanwhile.
const STATUS_TRIES: usize = 8;

/// How a user's view of a skill stands to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// The user sees the baseline.
    Unchanged,
    /// The user changed something.
    Modified,
    /// Only the user has the skill.
    LocalOnly,
    /// The baseline moved on where the user had changed something.
    OutOfSync,
}

/// The change of one entry of a skill in an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only the user has it.
    Created,
    /// The user has another content, mode or kind.
    Modified,
    /// The user removed it.
    Deleted,
    /// The user changed or removed it, and the baseline has changed it too.
    Conflict,
}

/// One changed entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Changed {
    /// Path from the skill's root; what is not UTF-8 is shown with replacement characters.
    pub path: String,
    /// The change.
    pub change: Change,
}

impl PartialOrd for Change {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Change {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

/// How a user's view of a skill stands to the baseline, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillStatus {
    /// The summary.
    pub status: Status,
    /// The changed entries, sorted by path.
    pub changes: Vec<Changed>,
    /// The newest modification time in the overlay, in nanoseconds since 1970; `None` without an overlay.
    pub overlay_modified_ns: Option<i128>,
}

impl Skills {
    /// Compares a user's overlay of a skill with the baseline.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn status(&self, id: &TreeId) -> Result<SkillStatus> {
        let _held = self.store.locks().read(id);
        self.status_held(id)
    }

    /// As [`Skills::status`]. The caller holds the tree as it is; commands that have it mounted do not.
    pub(crate) fn status_held(&self, id: &TreeId) -> Result<SkillStatus> {
        for _ in 0..STATUS_TRIES {
            match self.compare(id) {
                // An entry that was listed a moment ago is gone, or of another kind.
                Err(
                    Error::NotFound(_)
                    | Error::NotADirectory(_)
                    | Error::IsDirectory(_)
                    | Error::NotAFile(_)
                    | Error::Escape(_),
                ) if self.store.seat(id).is_some() => {}
                compared => return compared,
            }
        }
        Err(Error::Conflict("a command keeps changing the skill: try again when it is done".to_owned()))
    }

    fn compare(&self, id: &TreeId) -> Result<SkillStatus> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let unchanged =
            SkillStatus { status: Status::Unchanged, changes: Vec::new(), overlay_modified_ns: None };
        let overlays = match self.store.root().open_dir(&layout::overlay(user, agent)?) {
            Err(Error::NotFound(_)) => return Ok(unchanged),
            overlays => overlays?,
        };
        let upper = match overlays.open_dir_entry(OsStr::new(skill.as_str())) {
            Err(Error::NotFound(_) | Error::NotADirectory(_)) => return Ok(unchanged),
            upper => upper?,
        };
        if self.store.is_only_mounted(id)? {
            return Ok(unchanged);
        }
        let current = self.store.baseline_dir(agent, skill)?;
        let base_version = self.store.base_of(id)?;
        let current_version = current.as_ref().map(version::of).transpose()?;
        let moved = base_version != current_version;
        let base = match &base_version {
            Some(version) if moved => self.store.version_dir(agent, skill, version)?,
            Some(_) => current.as_ref().map(Dir::reopen).transpose()?,
            None => None,
        };
        let mut comparison = Comparison {
            moved,
            with_modes: false,
            entries_left: self.store.options().files.tree_entries,
            limit: self.store.options().files.tree_entries,
            changes: Vec::new(),
            newest_ns: upper.stat()?.modified_ns,
        };
        comparison.directory(&upper, is_opaque(&upper)?, base.as_ref(), current.as_ref(), "", DEPTH_MAX)?;
        let Comparison { mut changes, newest_ns, .. } = comparison;
        changes.sort_unstable();
        let status = if current.is_none() {
            Status::LocalOnly
        } else if changes.iter().any(|changed| changed.change == Change::Conflict) {
            Status::OutOfSync
        } else if changes.is_empty() {
            Status::Unchanged
        } else {
            Status::Modified
        };
        Ok(SkillStatus { status, changes, overlay_modified_ns: Some(newest_ns) })
    }
}

pub(crate) struct Comparison {
    /// Whether base and current may differ at all.
    moved: bool,
    /// Whether another mode is a change where nothing else is.
    with_modes: bool,
    entries_left: usize,
    limit: usize,
    changes: Vec<Changed>,
    newest_ns: i128,
}

impl Comparison {
    /// The changes that `upper` makes to `current`, modes alone too, and whether `base` stands between; at most `most`
    /// entries are looked at.
    pub(crate) fn changes(
        upper: &Dir,
        base: Option<&Dir>,
        current: Option<&Dir>,
        most: usize,
    ) -> Result<Vec<Changed>> {
        let mut comparison = Self {
            moved: false,
            with_modes: true,
            entries_left: most,
            limit: most,
            changes: Vec::new(),
            newest_ns: 0,
        };
        comparison.directory(upper, is_opaque(upper)?, base, current, "", DEPTH_MAX)?;
        Ok(comparison.changes)
    }

    fn directory(
        &mut self,
        upper: &Dir,
        opaque: bool,
        base: Option<&Dir>,
        current: Option<&Dir>,
        prefix: &str,
        levels: usize,
    ) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else { return Err(Error::TooManyEntries(DEPTH_MAX)) };
        let mut hidden = if opaque { names(base, current)? } else { BTreeSet::new() };
        let entries = upper.first_entries(self.entries_left.saturating_add(1))?;
        for entry in entries {
            interrupt::check()?;
            self.entries_left = self.entries_left.checked_sub(1).ok_or(Error::TooManyEntries(self.limit))?;
            let name = entry.name.as_os_str();
            hidden.remove(name);
            let Some(stat) = upper.stat_entry(name)? else { continue };
            self.newest_ns = self.newest_ns.max(stat.modified_ns);
            let path = format!("{prefix}{}", name.to_string_lossy());
            if stat.is_whiteout() {
                self.removed(base, current, name, path)?;
            } else if stat.kind == Kind::Directory {
                let below = upper.open_dir_entry(name)?;
                let (base_below, current_below) = (subdirectory(base, name)?, subdirectory(current, name)?);
                let replaced = current_below.is_none() && exists(current, name)?;
                let new = current_below.is_none() && !exists(base, name)?;
                if replaced
                    || (new && below.entries()?.is_empty())
                    || self.is_other_mode(&stat, current, name)?
                {
                    let change = if replaced { Change::Modified } else { Change::Created };
                    self.changes.push(Changed { path: path.clone(), change });
                }
                // A directory in an opaque directory is opaque too, marked or not: nothing of the lower layer is there.
                let opaque = opaque || is_opaque(&below)?;
                let prefix = format!("{path}/");
                self.directory(&below, opaque, base_below.as_ref(), current_below.as_ref(), &prefix, levels)?;
            } else {
                self.leaf(upper, base, current, name, &stat, path)?;
            }
        }
        for name in hidden {
            let path = format!("{prefix}{}", name.to_string_lossy());
            self.removed(base, current, &name, path)?;
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        upper: &Dir,
        base: Option<&Dir>,
        current: Option<&Dir>,
        name: &OsStr,
        stat: &Stat,
        path: String,
    ) -> Result<()> {
        if stat.kind == Kind::Other
            || (same(Some(upper), current, name)? && !self.is_other_mode(stat, current, name)?)
        {
            return Ok(());
        }
        let change = if self.moved && !same(base, current, name)? {
            Change::Conflict
        } else if exists(current, name)? {
            Change::Modified
        } else {
            Change::Created
        };
        self.changes.push(Changed { path, change });
        Ok(())
    }

    /// Tells whether `current` has another mode under `name`, and that matters.
    fn is_other_mode(&self, stat: &Stat, current: Option<&Dir>, name: &OsStr) -> Result<bool> {
        if !self.with_modes || stat.kind == Kind::Symlink {
            return Ok(false);
        }
        let theirs = current.map(|current| current.stat_entry(name)).transpose()?.flatten();
        Ok(theirs.is_some_and(|theirs| theirs.mode != stat.mode))
    }

    fn removed(
        &mut self,
        base: Option<&Dir>,
        current: Option<&Dir>,
        name: &OsStr,
        path: String,
    ) -> Result<()> {
        if exists(current, name)? {
            let conflict = self.moved && !same(base, current, name)?;
            let change = if conflict { Change::Conflict } else { Change::Deleted };
            self.changes.push(Changed { path, change });
        }
        Ok(())
    }
}

/// The names of two directories together.
fn names(base: Option<&Dir>, current: Option<&Dir>) -> Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    for dir in [base, current].into_iter().flatten() {
        names.extend(dir.entries()?.into_iter().map(|entry| entry.name));
    }
    Ok(names)
}

pub(crate) fn exists(dir: Option<&Dir>, name: &OsStr) -> Result<bool> {
    Ok(dir.map(|dir| dir.stat_entry(name)).transpose()?.flatten().is_some())
}

/// Tells whether two directories have the same under `name`: nothing, or equal kind, execute bit and content.
pub(crate) fn same(a: Option<&Dir>, b: Option<&Dir>, name: &OsStr) -> Result<bool> {
    let stat = |dir: Option<&Dir>| dir.map(|dir| dir.stat_entry(name)).transpose().map(Option::flatten);
    let (stat_a, stat_b) = (stat(a)?, stat(b)?);
    match (a, stat_a, b, stat_b) {
        (_, None, _, None) => Ok(true),
        (Some(a), Some(stat_a), Some(b), Some(stat_b)) if stat_a.kind == stat_b.kind => match stat_a.kind {
            Kind::File => {
                let comparable = stat_a.size == stat_b.size && stat_a.mode & 0o100 == stat_b.mode & 0o100;
                Ok(comparable && (stat_a.inode == stat_b.inode || same_bytes(a, b, name)?))
            }
            Kind::Symlink => Ok(a.read_link(name)? == b.read_link(name)?),
            Kind::Directory => {
                let (a, b) = (a.open_dir_entry(name)?, b.open_dir_entry(name)?);
                Ok(version::digest(&a)? == version::digest(&b)?)
            }
            Kind::Other => Ok(true),
        },
        _ => Ok(false),
    }
}

fn same_bytes(a: &Dir, b: &Dir, name: &OsStr) -> Result<bool> {
    let open = |dir: &Dir| dir.open_file_entry(name).map(|(file, _)| BufReader::new(file));
    let (mut a, mut b) = (open(a)?, open(b)?);
    let read = |from: &mut BufReader<std::fs::File>, chunk: &mut [u8]| -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = chunk.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match from.read(rest).map_err(|error| Error::from_io("read", name.to_string_lossy(), error))? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    };
    let (mut chunk_a, mut chunk_b) = ([0; 8192], [0; 8192]);
    loop {
        interrupt::check()?;
        let (read_a, read_b) = (read(&mut a, &mut chunk_a)?, read(&mut b, &mut chunk_b)?);
        if read_a != read_b || chunk_a.get(..read_a) != chunk_b.get(..read_b) {
            return Ok(false);
        }
        if read_a == 0 {
            return Ok(true);
        }
    }
}

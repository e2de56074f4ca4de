//! Finds the skills in an archive, whichever way people pack them.
//!
//! | Shape | Becomes |
//! | --- | --- |
//! | `SKILL.md …` in the root | one skill, named by the upload's file name or the front matter |
//! | `a/… b/…` | the skills `a` and `b`, with or without a `SKILL.md` |
//! | `wrapper/{a/SKILL.md, b/…}` | the same, when the wrapper itself has only directories and readmes |
//! | `a/a/…` | the skill `a` |
//! | `a/SKILL.md, a/b/SKILL.md` | the skill `a`; what is inside a skill belongs to it |
//!
//! Files beside skills, hidden directories beside skills and what macOS and Windows leave behind are skipped and
//! reported.

use std::fmt;

use policy::SkillId;
use serde::Serialize;

use super::tree::{Directory, Node, PackedFile};
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};
use crate::skills::metadata;

/// Wrappers around the skills, and repetitions of a skill's directory, that are taken off.
pub(super) const WRAPPERS_MAX: usize = 8;

/// Skipped paths that a plan lists; it counts the rest.
const SKIPPED_LISTED: usize = 100;

/// Beginnings (in lower case) of the files that a wrapper may hold beside its skills.
const BESIDE_SKILLS: [&str; 8] =
    [".", "readme", "license", "licence", "notice", "changelog", "contributing", "code_of_conduct"];

/// Why something in the archive was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// macOS metadata (`__MACOSX/`, `._name`, `.DS_Store`).
    MacOs,
    /// Windows metadata (`Thumbs.db`, `desktop.ini`).
    Windows,
    /// A file that lies beside the skills, in none.
    BesideSkills,
    /// A directory whose name begins with a dot, beside the skills.
    Hidden,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MacOs => "macOS metadata",
            Self::Windows => "Windows metadata",
            Self::BesideSkills => "beside the skills, in none of them",
            Self::Hidden => "hidden directory beside the skills",
        })
    }
}

/// One path that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The path in the archive; shortened when very long.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

/// The entries that were not taken, listed up to a bound.
#[derive(Clone, Debug, Default)]
pub(super) struct SkippedList {
    pub(super) listed: Vec<Skipped>,
    pub(super) total: usize,
}

impl SkippedList {
    pub(super) fn add(&mut self, path: &str, reason: SkipReason) {
        self.total += 1;
        if self.listed.len() < SKIPPED_LISTED {
            self.listed.push(Skipped { path: excerpt(path.as_bytes()), reason });
        }
    }
}

/// Tells whether `path` is what an operating system leaves behind.
pub(super) fn junk(path: &str) -> Option<SkipReason> {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    if path.split('/').any(|segment| segment == "__MACOSX") || name == ".DS_Store" || name.starts_with("._") {
        Some(SkipReason::MacOs)
    } else if name.eq_ignore_ascii_case("thumbs.db") || name.eq_ignore_ascii_case("desktop.ini") {
        Some(SkipReason::Windows)
    } else {
        None
    }
}

/// Divides `root` into skills, in no particular order.
///
/// `fallback_name` names a skill that lies in the root; where it cannot be an id, `front_matter_name` is asked
/// with the skill's `SKILL.md`.
///
/// # Errors
/// [`ArchiveError`]: `Empty`, `NoSkill`, `Nameless`, `SkillName`; and what `front_matter_name` answers.
pub(super) fn divide(
    root: Directory,
    fallback_name: Option<&str>,
    front_matter_name: impl FnOnce(&PackedFile) -> Result<Option<String>>,
    skipped: &mut SkippedList,
) -> Result<Vec<(SkillId, Directory)>> {
    if root.extent().files == 0 {
        return Err(ArchiveError::Empty.into());
    }
    if let Some(skill_md) = skill_md(&root) {
        let id = match fallback_name.and_then(|name| SkillId::parse(name).ok()) {
            Some(id) => Some(id),
            None => front_matter_name(skill_md)?.and_then(|name| SkillId::parse(&name).ok()),
        };
        let id = id.ok_or(ArchiveError::Nameless)?;
        return Ok(vec![(id, root)]);
    }
    let (prefix, level) = unwrap(root, skipped);
    let mut skills = Vec::new();
    let directories = level.directories().count();
    for (name, node) in level.children {
        let path = format!("{prefix}{name}");
        let directory = match node {
            Node::File(_) => {
                skipped.add(&path, SkipReason::BesideSkills);
                continue;
            }
            Node::Directory(directory) => directory,
        };
        if name.starts_with('.') && directories > 1 && skill_md(&directory).is_none() {
            skipped.add(&path, SkipReason::Hidden);
            continue;
        }
        let id = SkillId::parse(&name)
            .map_err(|source| ArchiveError::SkillName { name: excerpt(path.as_bytes()), source })?;
        skills.push((id, flatten(&name, directory)));
    }
    if skills.is_empty() { Err(ArchiveError::NoSkill.into()) } else { Ok(skills) }
}

/// The file that makes `directory` a skill, if it has one.
fn skill_md(directory: &Directory) -> Option<&PackedFile> {
    let name = metadata::marker(directory.files().map(|(name, _)| name)).skill_md?;
    directory.files().find(|(other, _)| *other == name).map(|(_, file)| file)
}

/// Takes wrappers off; returns the directory that holds the skills and its path, empty or ending in `/`.
fn unwrap(root: Directory, skipped: &mut SkippedList) -> (String, Directory) {
    let mut prefix = String::new();
    let mut level = root;
    for wrappers_left in (0..WRAPPERS_MAX).rev() {
        let Some(name) = wrapper_in(&level, wrappers_left) else { break };
        let Some(inner) = level.take_directory(&name) else { break };
        for (beside, node) in &level.children {
            let reason = match node {
                Node::File(_) => SkipReason::BesideSkills,
                Node::Directory(_) => SkipReason::Hidden,
            };
            skipped.add(&format!("{prefix}{beside}"), reason);
        }
        prefix = format!("{prefix}{name}/");
        level = inner;
    }
    (prefix, level)
}

/// The name of the one directory in `level`, when it is a wrapper.
fn wrapper_in(level: &Directory, wrappers_left: usize) -> Option<String> {
    let (name, wrapper) = only_shown(level)?;
    is_wrapper(wrapper, wrappers_left).then(|| name.to_owned())
}

/// The directory in `level` whose name does not begin with a dot, when there is exactly one.
fn only_shown(level: &Directory) -> Option<(&str, &Directory)> {
    let mut shown = level.directories().filter(|(name, _)| !name.starts_with('.'));
    shown.next().filter(|_| shown.next().is_none())
}

/// Tells whether `directory` holds skills and is none: no `SKILL.md`, nothing but directories and readmes, and at
/// least one skill below, perhaps in a further wrapper.
fn is_wrapper(directory: &Directory, wrappers_left: usize) -> bool {
    let has_only_readmes = directory.files().all(|(name, _)| {
        let name = name.to_lowercase();
        BESIDE_SKILLS.iter().any(|beginning| name.starts_with(beginning))
    });
    if !has_only_readmes {
        return false;
    }
    directory.directories().any(|(name, below)| skill_md(innermost(name, below)).is_some())
        || only_shown(directory)
            .is_some_and(|(_, only)| wrappers_left > 0 && is_wrapper(only, wrappers_left - 1))
}

/// The one directory of the same name that is all `directory` holds, if so.
fn repetition<'tree>(name: &str, directory: &'tree Directory) -> Option<&'tree Directory> {
    match directory.children.first_key_value() {
        Some((inner_name, Node::Directory(inner))) if directory.children.len() == 1 && inner_name == name => {
            Some(inner)
        }
        _ => None,
    }
}

fn innermost<'tree>(name: &str, directory: &'tree Directory) -> &'tree Directory {
    let mut inner = directory;
    for _ in 0..WRAPPERS_MAX {
        match repetition(name, inner) {
            Some(repeated) => inner = repeated,
            None => break,
        }
    }
    inner
}

/// Turns `a/a/…` into `a/…`.
fn flatten(name: &str, mut directory: Directory) -> Directory {
    for _ in 0..WRAPPERS_MAX {
        if repetition(name, &directory).is_none() {
            break;
        }
        match directory.take_directory(name) {
            Some(inner) => directory = inner,
            None => break,
        }
    }
    directory
}

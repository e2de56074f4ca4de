//! Finds the skills in an archive, whichever way people pack them.
//!
//! The topmost directories with a `SKILL.md`, in any case of letters, are the skills, at any depth:
//!
//! | Shape | Becomes |
//! | --- | --- |
//! | `SKILL.md …` in the root | one skill |
//! | `a/SKILL.md, b/SKILL.md` | the skills `a` and `b` |
//! | `repo-main/{README.md, package.json, skills/a/SKILL.md, .claude/skills/b/SKILL.md}` | the skills `a` and `b` |
//! | `a/SKILL.md, a/b/SKILL.md` | the skill `a`; what is inside a skill belongs to it |
//! | `a/run.py, b/README.md`, and no `SKILL.md` at all | the skills `a` and `b`, with a warning |
//! | `a/a/run.py`, and no `SKILL.md` at all | the skill `a`, with a warning |
//!
//! What lies beside the skills is skipped and reported, a directory as one path. Dependencies and what programs keep for
//! themselves (`node_modules`, `META-INF`, `.git`) are not searched.

use policy::skill_md;

use super::skipped::{SkipReason, SkippedList, never};
use super::tree::{Directory, Node};
use crate::error::ArchiveError;

/// Repetitions of a directory's name that are taken off where there is no `SKILL.md`.
const REPETITIONS_MAX: usize = 8;

/// A directory that is a skill.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Its path in the archive; empty for the root.
    pub(super) path: String,
    /// What it holds.
    pub(super) tree: Directory,
}

/// The skills of an archive.
#[derive(Debug)]
pub(super) struct Divided {
    /// In the order of their paths.
    pub(super) skills: Vec<Candidate>,
    /// Whether they have a `SKILL.md`; else they are the directories of the root.
    pub(super) is_marked: bool,
}

/// Divides `root` into skills.
///
/// # Errors
/// [`ArchiveError`]: `Empty`, `NoSkill`.
pub(super) fn divide(root: Directory, skipped: &mut SkippedList) -> Result<Divided, ArchiveError> {
    if root.extent().files == 0 {
        return Err(ArchiveError::Empty);
    }
    if !holds_skill(&root) {
        let skills = directories_of(root, skipped);
        return if skills.is_empty() {
            Err(ArchiveError::NoSkill)
        } else {
            Ok(Divided { skills, is_marked: false })
        };
    }
    let mut skills = Vec::new();
    collect(root, String::new(), &mut skills, skipped);
    Ok(Divided { skills, is_marked: true })
}

/// The names directly in `directory` by which it may be a skill: of files, and of links that lead to something below it.
fn leaves(directory: &Directory) -> impl Iterator<Item = &str> {
    let is_below =
        |target: &str| !target.starts_with('/') && target.split('/').all(|segment| segment != "..");
    directory.children.iter().filter_map(move |(name, node)| match node {
        Node::File(_) => Some(name.as_str()),
        Node::Link(target) => is_below(target).then_some(name.as_str()),
        Node::Directory(_) => None,
    })
}

/// The names in `directory` that are spellings of `SKILL.md`, the one that counts first.
pub(super) fn markers(directory: &Directory) -> Vec<&str> {
    let Some(chosen) = skill_md::marker(leaves(directory)).skill_md else { return Vec::new() };
    let others = leaves(directory).filter(|name| *name != chosen && name.eq_ignore_ascii_case("SKILL.md"));
    [chosen].into_iter().chain(others).collect()
}

/// The paths below `directory` of further directories with a `SKILL.md`, at most `most`, and how many there are.
pub(super) fn nested(directory: &Directory, most: usize) -> (Vec<String>, usize) {
    fn look(directory: &Directory, prefix: &str, most: usize, found: &mut (Vec<String>, usize)) {
        for (name, below) in directory.directories() {
            let path = format!("{prefix}{name}");
            if is_marked(below) {
                found.1 += 1;
                if found.0.len() < most {
                    found.0.push(path.clone());
                }
            }
            look(below, &format!("{path}/"), most, found);
        }
    }
    let mut found = (Vec::new(), 0);
    look(directory, "", most, &mut found);
    found
}

fn is_marked(directory: &Directory) -> bool {
    leaves(directory).any(|name| name.eq_ignore_ascii_case("SKILL.md"))
}

/// Tells whether `directory` is a skill or one is below it.
fn holds_skill(directory: &Directory) -> bool {
    is_marked(directory)
        || directory.directories().any(|(name, below)| never(name).is_none() && holds_skill(below))
}

/// Takes the skills out of `directory`, whose path is `path`, and reports the rest.
fn collect(directory: Directory, path: String, skills: &mut Vec<Candidate>, skipped: &mut SkippedList) {
    if is_marked(&directory) {
        skills.push(Candidate { path, tree: directory });
        return;
    }
    for (name, node) in directory.children {
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        match node {
            Node::Directory(below) if never(&name).is_none() && holds_skill(&below) => {
                collect(below, path, skills, skipped);
            }
            node => skipped.add(&path, beside(&name, &node)),
        }
    }
}

/// Why something beside the skills is not taken.
fn beside(name: &str, node: &Node) -> SkipReason {
    match node {
        Node::Link(_) => SkipReason::Link,
        Node::File(_) => SkipReason::BesideSkills,
        Node::Directory(below) => match never(name) {
            Some(reason) => reason,
            None if below.extent().files == 0 => SkipReason::Empty,
            None if name.starts_with('.') => SkipReason::Hidden,
            None => SkipReason::BesideSkills,
        },
    }
}

/// The directories of a root in which nothing is a `SKILL.md`.
fn directories_of(root: Directory, skipped: &mut SkippedList) -> Vec<Candidate> {
    let is_possible = |name: &str, below: &Directory| never(name).is_none() && below.extent().files > 0;
    let possible = root.directories().filter(|(name, below)| is_possible(name, below)).count();
    let mut skills = Vec::new();
    for (name, node) in root.children {
        match node {
            Node::Directory(below)
                if is_possible(&name, &below) && (possible == 1 || !name.starts_with('.')) =>
            {
                skills.push(Candidate { tree: flatten(&name, below), path: name });
            }
            node => skipped.add(&name, beside(&name, &node)),
        }
    }
    skills
}

/// Turns `a/a/…` into `a/…`.
fn flatten(name: &str, mut directory: Directory) -> Directory {
    for _ in 0..REPETITIONS_MAX {
        let is_repetition = match directory.children.first_key_value() {
            Some((inner, Node::Directory(_))) => directory.children.len() == 1 && inner == name,
            _ => false,
        };
        if !is_repetition {
            break;
        }
        match directory.take_directory(name) {
            Some(inner) => directory = inner,
            None => break,
        }
    }
    directory
}

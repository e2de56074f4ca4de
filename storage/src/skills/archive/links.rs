//! Links in a skill become what they lead to; no link is ever written.
//!
//! A skill is packed with links when its files are shared (`references/api.md -> ../shared/api.md`) or have two names
//! (`AGENTS.md -> SKILL.md`). A link to a file or directory of the same skill becomes a copy of it; one that leaves the
//! skill, leads to nothing or leads round in a circle is refused by its name. Copies count like any other file, so that
//! links to directories full of links cannot multiply beyond the limits.

use std::collections::VecDeque;

use policy::ArchiveLimits;

use super::tree::{Directory, LEVELS_MAX, Node, PackedFile};
use crate::error::Result;
use crate::error::{ArchiveError, excerpt};
use crate::interrupt;

/// Links that one link may lead through, as in the kernel (path_resolution(7)).
const HOPS_MAX: usize = 40;

/// Names that all links of an archive together are looked up by: a second's work at most.
const LOOKUPS_MAX: usize = 4_000_000;

/// Names that going through one link costs as much as.
const HOP_LOOKUPS: usize = 50;

/// What the skills of an archive may still take.
pub(super) struct Budget<'limits> {
    limits: &'limits ArchiveLimits,
    nodes: usize,
    bytes: u64,
    lookups: usize,
}

impl<'limits> Budget<'limits> {
    pub(super) fn new(limits: &'limits ArchiveLimits) -> Self {
        Self { limits, nodes: 0, bytes: 0, lookups: 0 }
    }

    fn node(&mut self, path: &[String], name: impl Fn() -> String) -> Result<(), ArchiveError> {
        let limits = self.limits;
        let bytes = path.iter().map(|segment| segment.len() + 1).sum::<usize>().saturating_sub(1);
        if bytes > limits.path_bytes {
            return Err(ArchiveError::PathTooLong { name: name(), limit: limits.path_bytes });
        }
        self.nodes += 1;
        if self.nodes > limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        Ok(())
    }

    /// Counts a file by its declared size. Unpacking refuses a byte more than declared, so that what holds here holds
    /// for what is written.
    fn file(
        &mut self,
        path: &[String],
        file: &PackedFile,
        name: impl Fn() -> String,
    ) -> Result<(), ArchiveError> {
        self.node(path, &name)?;
        let limits = self.limits;
        if file.size > limits.file_bytes {
            return Err(ArchiveError::FileTooLarge {
                name: name(),
                bytes: file.size,
                limit: limits.file_bytes,
            });
        }
        self.bytes = self.bytes.saturating_add(file.size);
        if self.bytes > limits.total_bytes {
            return Err(ArchiveError::TotalTooLarge { limit: limits.total_bytes });
        }
        let is_large = file.size > limits.ratio_from_bytes;
        if is_large && file.size > file.packed.saturating_mul(limits.ratio) {
            return Err(ArchiveError::Ratio { name: name(), limit: limits.ratio });
        }
        Ok(())
    }

    /// Counts `lookups`; `false` when there were too many.
    fn look_up(&mut self, lookups: usize) -> bool {
        self.lookups = self.lookups.saturating_add(lookups);
        self.lookups <= LOOKUPS_MAX
    }
}

/// Returns the skill `tree` with what its links lead to in their places, counted.
///
/// `folder` names the skill in messages.
///
/// # Errors
/// [`ArchiveError`]: `LinkLeaves`, `LinkDangling`, `LinkLoop`; `TooManyEntries`, `TooDeep`, `PathTooLong`,
/// `FileTooLarge`, `TotalTooLarge`, `Ratio`; those of [`interrupt::check`].
pub(super) fn settle(folder: &str, tree: &Directory, budget: &mut Budget<'_>) -> Result<Directory> {
    let mut settling = Settling { folder, tree, budget, active: Vec::new() };
    settling.directory(tree, &mut Vec::new(), &mut Vec::new())
}

struct Settling<'a, 'limits> {
    folder: &'a str,
    tree: &'a Directory,
    budget: &'a mut Budget<'limits>,
    /// The directories that are being copied, by their true paths, outermost first.
    active: Vec<Vec<String>>,
}

impl<'a> Settling<'a, '_> {
    /// Copies `directory`, whose true path is `own`, to the path `at`.
    fn directory(
        &mut self,
        directory: &'a Directory,
        own: &mut Vec<String>,
        at: &mut Vec<String>,
    ) -> Result<Directory> {
        let limit = self.budget.limits.depth.min(LEVELS_MAX);
        if at.len() > limit {
            return Err(ArchiveError::TooDeep { name: shown(self.folder, at), limit }.into());
        }
        self.active.push(own.clone());
        let mut copy = Directory::default();
        for (name, node) in &directory.children {
            at.push(name.clone());
            let node = match node {
                Node::File(file) => {
                    self.budget.file(at, file, || shown(self.folder, at))?;
                    Node::File(*file)
                }
                Node::Directory(below) => {
                    self.budget.node(at, || shown(self.folder, at))?;
                    own.push(name.clone());
                    let below = self.directory(below, own, at)?;
                    own.pop();
                    Node::Directory(below)
                }
                Node::Link(target) => self.link(target, own, at)?,
            };
            at.pop();
            copy.children.insert(name.clone(), node);
        }
        self.active.pop();
        Ok(copy)
    }

    /// What the link at `at`, in the directory `own`, leads to.
    fn link(&mut self, target: &str, own: &[String], at: &mut Vec<String>) -> Result<Node> {
        interrupt::check()?;
        let mut true_path = self.locate(target, own, at)?;
        match self.tree.get(&true_path) {
            Some(Node::File(file)) => {
                self.budget.file(at, file, || shown(self.folder, at))?;
                Ok(Node::File(*file))
            }
            Some(Node::Directory(_)) if self.active.contains(&true_path) => {
                Err(ArchiveError::LinkLoop { name: shown(self.folder, at) }.into())
            }
            Some(Node::Directory(below)) => {
                self.budget.node(at, || shown(self.folder, at))?;
                Ok(Node::Directory(self.directory(below, &mut true_path, at)?))
            }
            // The skill itself is being copied.
            Some(Node::Link(_)) | None => Err(ArchiveError::LinkLoop { name: shown(self.folder, at) }.into()),
        }
    }

    /// The true path in the skill that a link in the directory `from` leads to, through further links.
    fn locate(&mut self, written: &str, from: &[String], at: &[String]) -> Result<Vec<String>> {
        let tree = self.tree;
        let folder = self.folder;
        let leaves =
            || ArchiveError::LinkLeaves { name: shown(folder, at), target: excerpt(written.as_bytes()) };
        let mut reached = from.to_vec();
        let mut left: VecDeque<String> = VecDeque::new();
        let mut hops = 0;
        let mut text = written;
        loop {
            if text.starts_with('/') {
                return Err(leaves().into());
            }
            for segment in text.split('/').rev().filter(|segment| !matches!(*segment, "" | ".")) {
                left.push_front(segment.to_owned());
            }
            text = loop {
                let Some(segment) = left.pop_front() else { return Ok(reached) };
                if segment == ".." {
                    if reached.pop().is_none() {
                        return Err(leaves().into());
                    }
                    continue;
                }
                reached.push(segment);
                if !self.budget.look_up(reached.len()) {
                    return Err(ArchiveError::LinkLoop { name: shown(folder, at) }.into());
                }
                match tree.get(&reached) {
                    Some(Node::Directory(_)) => {}
                    Some(Node::File(_)) if left.is_empty() => {}
                    Some(Node::Link(next)) => {
                        reached.pop();
                        hops += 1;
                        if hops > HOPS_MAX || !self.budget.look_up(HOP_LOOKUPS) {
                            return Err(ArchiveError::LinkLoop { name: shown(self.folder, at) }.into());
                        }
                        break next.as_str();
                    }
                    Some(Node::File(_)) | None => {
                        let target = excerpt(written.as_bytes());
                        return Err(ArchiveError::LinkDangling { name: shown(folder, at), target }.into());
                    }
                }
            };
        }
    }
}

/// The path of something in a skill for messages.
fn shown(folder: &str, at: &[String]) -> String {
    let path = [folder].into_iter().chain(at.iter().map(String::as_str)).filter(|part| !part.is_empty());
    excerpt(path.collect::<Vec<_>>().join("/").as_bytes())
}

//! [`Directory`]: the files of an archive as a tree, in which each path exists once.

use std::collections::BTreeMap;

use policy::RelPath;

use super::entry::Method;
use crate::error::{ArchiveError, excerpt};

/// Deepest tree ever built, in levels: what walks it goes down the stack.
pub(super) const LEVELS_MAX: usize = 512;

/// A directory: what it holds, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) children: BTreeMap<String, Node>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(PackedFile),
    Directory(Directory),
    /// A symbolic link, and where it says that it leads; none is left in a planned skill.
    Link(String),
}

/// Where a file's data lies and what it must become.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedFile {
    pub(super) data_at: u64,
    pub(super) packed: u64,
    pub(super) size: u64,
    /// CRC-32 of the unpacked data, where the archive has one.
    pub(super) crc: Option<u32>,
    pub(super) method: Method,
    /// Permission bits, 0644 or 0755.
    pub(super) mode: u32,
    /// Seconds since 1970.
    pub(super) modified: Option<i64>,
}

/// The extent of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) files: usize,
    /// Unpacked size of all files.
    pub(super) bytes: u64,
    /// Directory levels below.
    pub(super) levels: usize,
}

impl Directory {
    /// Puts a file or link, or else a directory, at `path`, with every directory above it, and returns how many nodes
    /// are new.
    ///
    /// # Errors
    /// [`ArchiveError`]: `Duplicate`, `FileAndDirectory`.
    pub(super) fn insert(&mut self, path: &RelPath, mut leaf: Option<Node>) -> Result<usize, ArchiveError> {
        let shown = || excerpt(path.as_str().as_bytes());
        let mut new = 0;
        let mut directory = self;
        let mut segments = path.segments().peekable();
        while let Some(segment) = segments.next() {
            if segments.peek().is_none()
                && let Some(leaf) = leaf.take()
            {
                return match directory.children.get(segment) {
                    None => {
                        directory.children.insert(segment.to_owned(), leaf);
                        Ok(new + 1)
                    }
                    Some(Node::File(_) | Node::Link(_)) => Err(ArchiveError::Duplicate { name: shown() }),
                    Some(Node::Directory(_)) => Err(ArchiveError::FileAndDirectory { name: shown() }),
                };
            }
            let node = directory.children.entry(segment.to_owned()).or_insert_with(|| {
                new += 1;
                Node::Directory(Self::default())
            });
            match node {
                Node::Directory(below) => directory = below,
                Node::File(_) | Node::Link(_) => {
                    return Err(ArchiveError::FileAndDirectory { name: shown() });
                }
            }
        }
        Ok(new)
    }

    /// The files directly in it.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &PackedFile)> {
        self.children.iter().filter_map(|(name, node)| match node {
            Node::File(file) => Some((name.as_str(), file)),
            Node::Directory(_) | Node::Link(_) => None,
        })
    }

    /// The directories directly in it.
    pub(super) fn directories(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.children.iter().filter_map(|(name, node)| match node {
            Node::Directory(directory) => Some((name.as_str(), directory)),
            Node::File(_) | Node::Link(_) => None,
        })
    }

    /// Takes the directory `name` out.
    pub(super) fn take_directory(&mut self, name: &str) -> Option<Self> {
        match self.children.remove(name)? {
            Node::Directory(directory) => Some(directory),
            Node::File(_) | Node::Link(_) => None,
        }
    }

    /// What is at a path below, by its segments; links are not followed.
    pub(super) fn get<'tree>(&'tree self, segments: &[String]) -> Option<&'tree Node> {
        let (last, above) = segments.split_last()?;
        let directory =
            above.iter().try_fold(self, |directory, segment| match directory.children.get(segment) {
                Some(Node::Directory(below)) => Some(below),
                _ => None,
            })?;
        directory.children.get(last)
    }

    /// Counts what it holds, at any depth; a link counts as a file of no bytes.
    pub(super) fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for (_, file) in self.files() {
            extent.files += 1;
            extent.bytes = extent.bytes.saturating_add(file.size);
        }
        extent.files += self.children.values().filter(|node| matches!(node, Node::Link(_))).count();
        for (_, directory) in self.directories() {
            let below = directory.extent();
            extent.files += below.files;
            extent.bytes = extent.bytes.saturating_add(below.bytes);
            extent.levels = extent.levels.max(below.levels + 1);
        }
        extent
    }
}

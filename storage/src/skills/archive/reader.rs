//! [`Reader`]: content of an archive that planning needs: heads, texts of links, manifests, digests.

use super::source::Source;
use super::tree::{Directory, Node, PackedFile};
use super::unpack::Unpacker;
use crate::error::Result;
use crate::interrupt;
use policy::skill_md;

/// Reads files of one archive.
pub(super) struct Reader<'file> {
    source: Source<'file>,
    unpacker: Unpacker,
}

impl<'file> Reader<'file> {
    /// A reader of the archive that is `source`.
    pub(super) fn new(source: Source<'file>) -> Self {
        Self { source, unpacker: Unpacker::new() }
    }

    /// The content of a file, of which the caller knows the size; `name` is for messages.
    pub(super) fn whole(&mut self, file: &PackedFile, name: &str) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        self.each(file, name, &mut |bytes| content.extend_from_slice(bytes))?;
        Ok(content)
    }

    /// The beginning of a `SKILL.md` or `README.md`, which is unpacked and checked whole.
    pub(super) fn head(&mut self, file: &PackedFile, name: &str) -> Result<Vec<u8>> {
        let mut head = Vec::new();
        self.each(file, name, &mut |bytes| {
            let room = skill_md::HEADER_BYTES_MAX.saturating_sub(head.len());
            head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        })?;
        Ok(head)
    }

    /// A digest of everything in `tree`.
    pub(super) fn digest(&mut self, tree: &Directory) -> Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        self.add(tree, &mut hasher)?;
        Ok(hasher.finalize())
    }

    fn add(&mut self, tree: &Directory, hasher: &mut blake3::Hasher) -> Result<()> {
        for (name, node) in &tree.children {
            let (kind, size) = match node {
                Node::File(file) => (file.mode, file.size),
                Node::Directory(below) => (1, below.children.len() as u64),
                Node::Link(_) => (2, 0),
            };
            // Lengths first, so that no two trees give the same bytes.
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&kind.to_le_bytes());
            hasher.update(&size.to_le_bytes());
            match node {
                Node::File(file) => self.each(file, name, &mut |bytes| {
                    hasher.update(bytes);
                })?,
                Node::Directory(below) => self.add(below, hasher)?,
                Node::Link(_) => {}
            }
        }
        Ok(())
    }

    fn each(&mut self, file: &PackedFile, name: &str, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.unpacker.unpack(&mut self.source, file, name, |bytes| {
            interrupt::check()?;
            sink(bytes);
            Ok(())
        })
    }
}

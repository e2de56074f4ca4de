//! What is told of entries and of changes: the same of a local tree and of a remote one. What a backend does not tell is `None`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::RelPath;
use sandbox::{DirEntry, FileInfo, FileKind};
use storage::encoding::TextEncoding;
use storage::{ETag, Kind, Layer, Owner, Stat};

use crate::ops::remote;

/// The facts of one entry.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its kind.
    pub kind: Kind,
    /// In bytes; of a directory, 0.
    pub size: u64,
    /// Its permission bits.
    pub mode: Option<u32>,
    /// When its content changed last, in nanoseconds since 1970.
    pub modified_ns: Option<i128>,
    /// Which layer it comes from.
    pub layer: Option<Layer>,
    /// Where a link points to.
    pub target: Option<String>,
    /// Who owns it, as commands see it; `None` also where it was not looked for.
    pub owner: Option<Owner>,
    tag: Tag,
}

/// What the tag of an entry is made of. Of a long list, only the tags of one page are ever made.
#[derive(Clone, Debug)]
enum Tag {
    Unknown,
    Of(Stat),
    Version(sandbox::Version),
}

impl Facts {
    /// The facts that this service has of an entry.
    #[must_use]
    pub fn local(stat: Stat, layer: Option<Layer>) -> Self {
        Self {
            kind: stat.kind,
            size: if stat.kind == Kind::Directory { 0 } else { stat.size },
            mode: Some(stat.mode),
            modified_ns: Some(stat.modified_ns),
            layer,
            target: None,
            owner: None,
            tag: Tag::Of(stat),
        }
    }

    /// With its owner, as commands see it.
    pub(super) fn owned(self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// With where a link points to.
    pub(super) fn pointing(self, target: Option<String>) -> Self {
        Self { target, ..self }
    }

    /// The facts that a backend tells of an entry that it looked at.
    pub(super) fn remote(info: FileInfo) -> Self {
        Self {
            mode: Some(info.mode & 0o777),
            modified_ns: Some(nanoseconds(info.modified)),
            tag: info.version.map_or(Tag::Unknown, Tag::Version),
            ..Self::listed(info.kind, info.size)
        }
    }

    /// The facts that a backend tells of an entry of a list.
    pub(super) fn listed(kind: FileKind, size: u64) -> Self {
        let kind = kind_of(kind);
        let size = if kind == Kind::Directory { 0 } else { size };
        Self {
            kind,
            size,
            mode: None,
            modified_ns: None,
            layer: None,
            target: None,
            owner: None,
            tag: Tag::Unknown,
        }
    }

    /// The tag of its content.
    #[must_use]
    pub fn etag(&self) -> Option<ETag> {
        match &self.tag {
            Tag::Unknown => None,
            Tag::Of(stat) => Some(stat.etag()),
            Tag::Version(version) => Some(remote::tag(version)),
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its facts.
    pub facts: Facts,
}

impl From<DirEntry> for Entry {
    fn from(entry: DirEntry) -> Self {
        Self { facts: Facts::listed(entry.kind, entry.size), name: entry.name }
    }
}

/// An entry that was met on a walk.
#[derive(Clone, Debug)]
pub struct Walked {
    /// Its path in the tree.
    pub path: RelPath,
    /// Its kind.
    pub kind: Kind,
    /// Its facts; `None` where they were not looked for.
    pub facts: Option<Facts>,
}

impl From<storage::tree::Walked> for Walked {
    fn from(walked: storage::tree::Walked) -> Self {
        let layer = walked.layer;
        let facts = walked.stat.map(|stat| Facts::local(stat, Some(layer)));
        Self { path: walked.path, kind: walked.kind, facts }
    }
}

impl From<(RelPath, DirEntry)> for Walked {
    fn from((path, entry): (RelPath, DirEntry)) -> Self {
        let facts = Facts::listed(entry.kind, entry.size);
        Self { path, kind: facts.kind, facts: Some(facts) }
    }
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its size, in bytes.
    pub size: u64,
    /// The tag of its content.
    pub etag: Option<ETag>,
    /// Whether there was none before.
    pub created: Option<bool>,
    /// How a text lies on the disk; `None` of a file that was written as bytes.
    pub encoding: Option<TextEncoding>,
}

impl From<storage::Written> for Written {
    fn from(written: storage::Written) -> Self {
        let storage::Written { stat, created } = written;
        Self { size: stat.size, etag: Some(stat.etag()), created: Some(created), encoding: None }
    }
}

impl From<(storage::Written, TextEncoding)> for Written {
    fn from((written, encoding): (storage::Written, TextEncoding)) -> Self {
        Self { encoding: Some(encoding), ..written.into() }
    }
}

impl From<remote::Edited> for Written {
    fn from(edited: remote::Edited) -> Self {
        let remote::Edited { bytes, created, encoding, version } = edited;
        let etag = version.as_ref().map(remote::tag);
        Self { size: bytes, etag, created: Some(created), encoding: Some(encoding) }
    }
}

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Other => Kind::Other,
    }
}

/// A time as nanoseconds since 1970.
#[must_use]
pub fn nanoseconds(time: SystemTime) -> i128 {
    let whole = |distance: Duration| i128::try_from(distance.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => whole(after),
        Err(before) => -whole(before.duration()),
    }
}

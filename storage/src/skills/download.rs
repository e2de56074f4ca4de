//! [`Skills::pack`]: the merged view of a skill as an archive, for a download; and any directory of a tree ([`Packing`]).
//!
//! Packing takes as long as the directory is large, so the tree is held only while it is walked and while each file is
//! opened: requests replace whole files, so that an open file stays what it was. A file that is another one by the time
//! it is opened begins the archive anew. When the directory changes again and again, a small one is held throughout; of a
//! large one, each file is as it was at some moment.

use std::cell::Cell;
use std::io::{Seek, SeekFrom};

use policy::{RelPath, TreeId, UserId};

use crate::core::spool::Spool;
use crate::error::{Error, Result};
use crate::layers::tree::{Opened, Tree, WalkOptions};
use crate::skills::Skills;
use crate::skills::archive::{self, PackEntry, PackFormat, PackLimits, PackSource, Packed};
use crate::stat::Kind;
use crate::version::Version;

/// The time of an entry that has none.
const NO_TIME_NS: i128 = -1;
/// How often an archive is begun.
const TRIES: usize = 3;
/// Size of a directory that is held while it is packed, in bytes: half a second's work.
const HELD_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// A directory to pack.
#[derive(Clone, Copy)]
pub(super) struct Packing<'a> {
    pub(super) id: &'a TreeId,
    pub(super) from: &'a RelPath,
    /// The user whom the archive counts for while it is there.
    pub(super) account: &'a UserId,
    /// Where in the archive, below `prefix`, its entries stand.
    pub(super) under: Option<&'a RelPath>,
    /// Files that come first, beside everything else.
    pub(super) beside: &'a [(RelPath, Vec<u8>)],
    /// Bytes in all files together, at most.
    pub(super) bytes_max: u64,
    /// The directory in the archive that everything lies in; none puts it at the top.
    pub(super) prefix: Option<&'a str>,
    pub(super) format: PackFormat,
    /// A published version instead of what the user sees.
    pub(super) version: Option<&'a Version>,
    /// Whether modes and times are left out as far as versions leave them out, so that equal versions become equal archives.
    pub(super) is_plain: bool,
}

impl<'a> Packing<'a> {
    /// The whole tree `id` as a ZIP of all that it has, for the account of its user, of as many bytes as downloads may have.
    pub(super) fn new(id: &'a TreeId, from: &'a RelPath) -> Self {
        Self {
            id,
            from,
            account: id.user(),
            under: None,
            beside: &[],
            bytes_max: u64::MAX,
            prefix: None,
            format: PackFormat::Zip,
            version: None,
            is_plain: false,
        }
    }

    /// What errors call the directory.
    fn name(&self) -> &str {
        match (self.prefix, self.from.is_root()) {
            (Some(prefix), _) => prefix,
            (None, true) => "the tree",
            (None, false) => self.from.as_str(),
        }
    }
}

impl Skills {
    /// Writes the merged view of a skill as a ZIP into a spool of its user and returns it with its size in bytes, at its
    /// beginning.
    ///
    /// A link to a file of the skill becomes that file; other links are left out. A ZIP knows neither holes nor second names, so that each name is packed by itself, in all its
    /// size, up to `limits.files.download_bytes`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooManyEntries`], [`Error::Unpackable`]; as [`crate::Flight::take`];
    /// [`Error::NoSpace`]; those of [`crate::interrupt::check`].
    pub fn pack(&self, id: &TreeId) -> Result<(Spool, u64)> {
        let TreeId::Skill(.., skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let root = RelPath::root();
        let packing = Packing { prefix: Some(skill.as_str()), ..Packing::new(id, &root) };
        self.packed(&packing).map(|(spool, bytes, _)| (spool, bytes))
    }

    /// As [`Skills::pack`], without what is no part of a version, as [`Skills::pack_version`] does it.
    ///
    /// # Errors
    /// As [`Skills::pack`].
    pub fn pack_seen(&self, id: &TreeId) -> Result<(Spool, u64)> {
        let TreeId::Skill(.., skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let root = RelPath::root();
        let packing = Packing { prefix: Some(skill.as_str()), is_plain: true, ..Packing::new(id, &root) };
        self.packed(&packing).map(|(spool, bytes, _)| (spool, bytes))
    }

    /// As [`Skills::pack`], of a published version of the skill, below a directory of the skill's name unless `is_flat`.
    ///
    /// Equal versions of a skill become equal archives on every host: entries are sorted by the bytes of their paths, have no times,
    /// and modes that follow from the version.
    ///
    /// # Errors
    /// As [`Skills::pack`].
    pub fn pack_version(&self, id: &TreeId, version: &Version, is_flat: bool) -> Result<(Spool, u64)> {
        let TreeId::Skill(.., skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let prefix = (!is_flat).then_some(skill.as_str());
        let root = RelPath::root();
        let packing = Packing { prefix, version: Some(version), is_plain: true, ..Packing::new(id, &root) };
        self.packed(&packing).map(|(spool, bytes, _)| (spool, bytes))
    }

    /// Packs a directory into a spool. Returns it, its size in bytes, and what is in it.
    pub(super) fn packed(&self, packing: &Packing<'_>) -> Result<(Spool, u64, Packed)> {
        for left in (0..TRIES).rev() {
            let mut spool = self.store.spool(packing.account)?;
            if let Some(packed) = self.pack_once(packing, &mut spool, left == 0)? {
                let io = |error| Error::from_io("seek", "download", error);
                let bytes = spool.file().seek(SeekFrom::End(0)).map_err(io)?;
                spool.file().seek(SeekFrom::Start(0)).map_err(io)?;
                spool.parts().1.take_up_to(bytes)?;
                return Ok((spool, bytes, packed));
            }
        }
        Err(Error::Conflict(format!("`{}` keeps changing: try again later", packing.name())))
    }

    /// Packs a directory; `None` when it changed meanwhile, which the last try bears with.
    fn pack_once(&self, packing: &Packing<'_>, spool: &mut Spool, is_last: bool) -> Result<Option<Packed>> {
        let &Packing { id, from, under, beside, prefix, format, version, is_plain, .. } = packing;
        let held = self.store.locks().read(id);
        let limits = &self.store.options().files;
        let bytes_max = packing.bytes_max.min(limits.download_bytes);
        let opened = match version {
            Some(version) => self.store.version_tree(id, version),
            None => self.store.tree(id),
        };
        let tree = match opened {
            // A workspace that was never written to is an empty one.
            Err(Error::NotFound(_)) if from.is_root() && matches!(id, TreeId::Workspace(..)) => {
                let (into, flight) = spool.parts();
                let admit = &mut |bytes| flight.take_up_to(bytes);
                let limits = PackLimits { bytes: bytes_max, admit };
                return archive::pack(format, prefix, [], into, limits).map(Some);
            }
            tree => tree?,
        };
        let options = WalkOptions { depth: usize::MAX, entries: limits.tree_entries, look: true };
        let mut walked = tree.walk(from, options)?;
        let files = walked.iter().filter(|entry| entry.kind == Kind::File);
        let bytes = files
            .filter_map(|entry| entry.stat.as_ref())
            .fold(0_u64, |sum, stat| sum.saturating_add(stat.size));
        if bytes > bytes_max {
            return Err(Error::Unpackable { what: packing.name().to_owned(), bytes, limit: bytes_max });
        }
        let held = Some(held).filter(|_| is_last && bytes <= HELD_BYTES_MAX);
        walked.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let has_changed = Cell::new(false);
        let changed = || {
            has_changed.set(true);
            Some(Err(Error::Conflict(format!("`{}` has changed meanwhile", packing.name()))))
        };
        let entries = walked.into_iter().filter_map(|entry| {
            let stat = entry.stat?;
            // Names in the archive begin in the directory.
            let path = entry.path.below(from)?;
            let source = match entry.kind {
                Kind::Directory => PackSource::Directory,
                Kind::File => {
                    let opened = {
                        let _held = held.is_none().then(|| self.store.locks().read(id));
                        tree.open(&entry.path)
                    };
                    match opened {
                        Ok(Opened { file, stat: now, .. }) if is_last || now.etag() == stat.etag() => {
                            PackSource::File(file)
                        }
                        Ok(_) => return changed(),
                        Err(Error::NotFound(_) | Error::IsDirectory(_) | Error::NotADirectory(_)) => {
                            return if is_last { None } else { changed() };
                        }
                        Err(other) => return Some(Err(other)),
                    }
                }
                Kind::Symlink => return linked(&*tree, &entry.path, path).transpose(),
                Kind::Other => return None,
            };
            let (mode, modified_ns) = (stat.mode, stat.modified_ns);
            Some(Ok(PackEntry { path, mode, modified_ns, source }))
        });
        let entries = entries.map(|entry| match is_plain {
            // The rest of a file's mode and its time are no part of a version.
            true => {
                entry.map(|entry| PackEntry { mode: entry.mode & 0o100, modified_ns: NO_TIME_NS, ..entry })
            }
            false => entry,
        });
        let entries = entries.map(|entry| match under {
            Some(under) => {
                entry.and_then(|entry| Ok(PackEntry { path: placed(under, &entry.path)?, ..entry }))
            }
            None => entry,
        });
        let beside = beside.iter().map(|(path, bytes)| {
            let source = PackSource::Bytes(bytes.clone());
            Ok(PackEntry { path: path.clone(), mode: 0, modified_ns: NO_TIME_NS, source })
        });
        let (into, flight) = spool.parts();
        let limits = PackLimits { bytes: bytes_max, admit: &mut |bytes| flight.take_up_to(bytes) };
        match archive::pack(format, prefix, beside.chain(entries), into, limits) {
            Err(_) if has_changed.get() => Ok(None),
            packed => packed.map(Some),
        }
    }
}

/// The path of an entry of the directory `under`.
fn placed(under: &RelPath, path: &RelPath) -> Result<RelPath> {
    if path.is_root() { Ok(under.clone()) } else { Ok(RelPath::parse(&format!("{under}/{path}"))?) }
}

/// The file that the link `at` leads to, as `path`; none where that is no file of the tree.
fn linked(tree: &dyn Tree, at: &RelPath, path: RelPath) -> Result<Option<PackEntry>> {
    match tree.open(at) {
        Ok(Opened { file, stat, .. }) => {
            let (mode, modified_ns) = (stat.mode, stat.modified_ns);
            Ok(Some(PackEntry { path, mode, modified_ns, source: PackSource::File(file) }))
        }
        Err(
            Error::NotFound(_)
            | Error::IsDirectory(_)
            | Error::NotADirectory(_)
            | Error::NotAFile(_)
            | Error::Escape(_),
        ) => Ok(None),
        Err(other) => Err(other),
    }
}

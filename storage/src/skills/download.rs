//! [`Store::pack`]: the merged view of a skill as an archive, for a download.
//!
//! Packing takes as long as the skill is large, so the skill is held only while it is walked and while each file is
//! opened: requests replace whole files, so that an open file stays what it was. A file that is another one by the time
//! it is opened begins the archive anew. When the skill changes again and again, a small one is held throughout; of a
//! large one, each file is as it was at some moment.

use std::cell::Cell;
use std::io::{Seek, SeekFrom};

use policy::{RelPath, SkillId, TreeId};

use crate::core::spool::Spool;
use crate::core::store::Store;
use crate::error::{Error, Result};
use crate::layers::tree::{Opened, Tree, WalkOptions};
use crate::skills::archive::{self, PackEntry, PackLimits, PackSource};
use crate::stat::Kind;

/// How often an archive is begun.
const TRIES: usize = 3;
/// Size of a skill that is held while it is packed, in bytes: half a second's work.
const HELD_BYTES_MAX: u64 = 32 * 1024 * 1024;

impl Store {
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
        let TreeId::Skill(user, _, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        for left in (0..TRIES).rev() {
            let mut spool = self.spool(user)?;
            if self.pack_once(id, skill, &mut spool, left == 0)? {
                let io = |error| Error::from_io("seek", "download", error);
                let bytes = spool.file().seek(SeekFrom::End(0)).map_err(io)?;
                spool.file().seek(SeekFrom::Start(0)).map_err(io)?;
                spool.parts().1.take_up_to(bytes)?;
                return Ok((spool, bytes));
            }
        }
        Err(Error::Conflict(format!("`{skill}` keeps changing: try again later")))
    }

    /// Packs a skill; `false` when it changed meanwhile, which the last try bears with.
    fn pack_once(&self, id: &TreeId, skill: &SkillId, spool: &mut Spool, is_last: bool) -> Result<bool> {
        let held = self.inner.locks.read(id);
        let tree = self.tree(id)?;
        let limits = &self.inner.options.files;
        let options = WalkOptions { depth: usize::MAX, entries: limits.tree_entries, look: true };
        let mut walked = tree.walk(&RelPath::root(), options)?;
        let files = walked.iter().filter(|entry| entry.kind == Kind::File);
        let bytes = files
            .filter_map(|entry| entry.stat.as_ref())
            .fold(0_u64, |sum, stat| sum.saturating_add(stat.size));
        if bytes > limits.download_bytes {
            return Err(Error::Unpackable { skill: skill.to_string(), bytes, limit: limits.download_bytes });
        }
        let held = Some(held).filter(|_| is_last && bytes <= HELD_BYTES_MAX);
        walked.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let has_changed = Cell::new(false);
        let changed = || {
            has_changed.set(true);
            Some(Err(Error::Conflict(format!("`{skill}` has changed meanwhile"))))
        };
        let entries = walked.into_iter().filter_map(|entry| {
            let stat = entry.stat?;
            let source = match entry.kind {
                Kind::Directory => PackSource::Directory,
                Kind::File => {
                    let opened = {
                        let _held = held.is_none().then(|| self.inner.locks.read(id));
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
                Kind::Symlink => return linked(&*tree, entry.path).transpose(),
                Kind::Other => return None,
            };
            let (mode, modified_ns) = (stat.mode, stat.modified_ns);
            Some(Ok(PackEntry { path: entry.path, mode, modified_ns, source }))
        });
        let (into, flight) = spool.parts();
        let limits =
            PackLimits { bytes: limits.download_bytes, admit: &mut |bytes| flight.take_up_to(bytes) };
        match archive::pack(skill, entries, into, limits) {
            Err(_) if has_changed.get() => Ok(false),
            packed => packed.map(|_| true),
        }
    }
}

/// The file that a link leads to, under the link's name; none where that is no file of the skill.
fn linked(tree: &dyn Tree, path: RelPath) -> Result<Option<PackEntry>> {
    match tree.open(&path) {
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
